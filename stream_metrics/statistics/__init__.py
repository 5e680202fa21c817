"""Means with intervals, comparisons of two systems, and what to make of several at once.

The unit of resampling is the conversation (for rankings without one: the query), because searches
of one conversation are not independent. ``docs/evidence/calibration.md`` shows
how well each method does.
"""
