"""What events mean: read, deduplicated, measured and kept as state. Nothing here does any I/O."""
