"""Turns of a trace: their iterations, and what refuses them."""
