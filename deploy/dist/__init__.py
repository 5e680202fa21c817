"""Release files: source distributions, wheels that need no compiler, bills of materials."""
