"""Means with intervals, comparisons of two systems, and corrections for multiple tests.

The resampling unit is the conversation, because searches of one conversation are not independent;
rankings without a conversation are resampled by query. ``docs/evidence/calibration.md`` shows how
well each method is calibrated.
"""
