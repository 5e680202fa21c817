"""A store, a log and dead letters in one SQLite file, for one process without servers."""
