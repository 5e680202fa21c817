"""Topics as recordings: read to a fixed end, and written as they were recorded."""
