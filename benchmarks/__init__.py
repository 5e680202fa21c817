"""Measurements: ``python -m benchmarks [live | cost | peers …] [--quick]``; see the README here."""
