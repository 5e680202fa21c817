"""The judge: draws a random sample of turns, asks a model for grades, and writes labels."""
