"""Measurements: ``python -m benchmarks [live | cost | profile] [--quick]``; see the README here."""
