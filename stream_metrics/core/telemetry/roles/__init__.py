"""Which part a span has in an agent's work: rows of spans' names and attributes, and presets."""
