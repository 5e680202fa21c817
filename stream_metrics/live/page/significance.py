"""Significance tests of the page's rules, the same as those of the alerts.

A test takes a ratio, its usual value, and the number of results, iterations, decisions or searches
behind the ratio, and says whether the ratio is about four standard deviations away.
``deploy/prometheus/bounds.rules.yml`` has the same tests, and the source of their variances.
"""

from __future__ import annotations

from collections.abc import Callable
from math import asin, log, sin, sqrt

SignificanceTest = Callable[[float, float, int], bool]


def share_above(deviations: float, design: float) -> SignificanceTest:
    """For a share; ``design`` is the design effect: its variance over that of independent items."""
    return lambda value, usual, count: (
        value > usual + deviations * sqrt(design * usual * (1 - usual) / count)
    )


def skewed_below(deviations: float, design: float, most: float = 1.0) -> SignificanceTest:
    """For a share near 0 or 1 that must not fall; the usual value is capped at ``most``."""

    def is_significant(value: float, usual: float, count: int) -> bool:
        middle = asin(sqrt(min(usual, most)))
        bound = sin(max(middle - deviations / 2 * sqrt(design / count), 0.0)) ** 2
        return bool(value < bound)

    return is_significant


def few_above(deviations: float, least: float) -> SignificanceTest:
    """For a share of few items that must not rise, by deviance; usual is at least ``least``."""
    nearly = 1e-9  # keeps shares away from 0 and 1, which have no logarithm

    def is_significant(value: float, usual: float, count: int) -> bool:
        usual = min(max(usual, least), 1 - nearly)
        if value <= usual:
            return False
        share = min(max(value, nearly), 1 - nearly)
        odds = share * log(share / usual) + (1 - share) * log((1 - share) / (1 - usual))
        return sqrt(2 * count * odds) > deviations

    return is_significant


def mean_below(deviations: float, variance: float) -> SignificanceTest:
    """For a mean whose variance is ``variance`` times itself."""
    return lambda value, usual, count: bool(
        value < max(sqrt(usual) - deviations / 2 * sqrt(variance / count), 0.0) ** 2
    )


def spread_below(deviations: float, spread: float) -> SignificanceTest:
    """For a ratio with a standard deviation of ``spread`` for one search."""
    return lambda value, usual, count: value < usual - deviations * spread / sqrt(count)


def relative_below(deviations: float, spread: float) -> SignificanceTest:
    """For a mean with a standard deviation of ``spread`` times itself for one search."""
    return lambda value, usual, count: value < usual * (1 - deviations * spread / sqrt(count))
