"""Tells people what fires and what ends, where there is no Prometheus that does."""
