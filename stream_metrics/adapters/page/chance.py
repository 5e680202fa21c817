"""What chance alone does not explain: the bounds of the alerts.

Each is asked for a ratio, what is usual, and of how many results, iterations, decisions or searches
the ratio is: whether it is some four standard deviations away.
``deploy/prometheus/bounds.rules.yml`` has the same, and says where the spreads come from.
"""

from __future__ import annotations

from collections.abc import Callable
from math import asin, log, sin, sqrt

Surely = Callable[[float, float, int], bool]


def share_above(deviations: float, design: float) -> Surely:
    """For a share of many; ``design`` is the variance by what independence would give."""
    return lambda value, usual, count: (
        value > usual + deviations * sqrt(design * usual * (1 - usual) / count)
    )


def skewed_below(deviations: float, design: float, most: float = 1.0) -> Surely:
    """For a share near 0 or 1 that must not fall; what is usual is ``most`` at most."""

    def surely(value: float, usual: float, count: int) -> bool:
        middle = asin(sqrt(min(usual, most)))
        bound = sin(max(middle - deviations / 2 * sqrt(design / count), 0.0)) ** 2
        return bool(value < bound)

    return surely


def few_above(deviations: float, least: float) -> Surely:
    """For a share of a handful that must not rise, by its deviance; usual is ``least`` at least."""
    nearly = 1e-9  # from 0 and 1, which have no logarithm

    def surely(value: float, usual: float, count: int) -> bool:
        usual = min(max(usual, least), 1 - nearly)
        if value <= usual:
            return False
        share = min(max(value, nearly), 1 - nearly)
        odds = share * log(share / usual) + (1 - share) * log((1 - share) / (1 - usual))
        return sqrt(2 * count * odds) > deviations

    return surely


def mean_below(deviations: float, variance: float) -> Surely:
    """For a mean whose variance is ``variance`` times itself."""
    return lambda value, usual, count: bool(
        value < max(sqrt(usual) - deviations / 2 * sqrt(variance / count), 0.0) ** 2
    )


def spread_below(deviations: float, spread: float) -> Surely:
    """For a ratio with a standard deviation of ``spread`` for one search."""
    return lambda value, usual, count: value < usual - deviations * spread / sqrt(count)


def relative_below(deviations: float, spread: float) -> Surely:
    """For a mean with a standard deviation of ``spread`` times itself for one search."""
    return lambda value, usual, count: value < usual * (1 - deviations * spread / sqrt(count))
