"""Scores that evaluators gave, and the labels that follow from them."""
