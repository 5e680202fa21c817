"""Bounds of chance: whether a ratio is further from its usual value than noise explains.

Each takes a ratio, its usual value, and the number of documents or searches behind the ratio. A
bound is so many standard deviations from the usual value.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_metrics.core.alerts.promql import Value, at_least, sqrt

Bound = Callable[[Value, Value, Value], Value]


def share_below(deviations: float, design: float, least: float) -> Bound:
    """For a share whose complement is assumed to be ``least`` at least."""
    return lambda value, usual, count: (
        value < usual - deviations * sqrt(design * usual * at_least(1 - usual, least) / count)
    )


def spread_below(deviations: float, spread: float) -> Bound:
    """For a ratio with a standard deviation of ``spread`` for one search."""
    return lambda value, usual, count: value < usual - deviations * spread / sqrt(count)
