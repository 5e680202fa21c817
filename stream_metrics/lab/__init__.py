"""What looks at recordings: sources, replay, evaluation, statistics and reports."""
