"""What a replay or an evaluation leaves behind: files, pages and series through time."""
