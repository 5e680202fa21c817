"""Reads stored state, and changes none: audit, export, and the worst conversations."""
