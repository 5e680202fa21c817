"""How far chance alone takes a ratio from what is usual: the bounds of the alerts.

Each is a function of what is usual and of how many results, iterations, decisions or searches there
are, and gives the ratio beyond which it is no chance: some four standard deviations.
``deploy/prometheus/bounds.rules.yml`` has the same, and says where the spreads come from.
"""

from __future__ import annotations

from collections.abc import Callable
from math import asin, pi, sin, sqrt

Bound = Callable[[float, int], float]


def share_above(deviations: float, design: float) -> Bound:
    """For a share of many; ``design`` is the variance by what independence would give."""
    return lambda usual, count: usual + deviations * sqrt(design * usual * (1 - usual) / count)


def skewed_below(deviations: float, design: float, most: float = 1.0) -> Bound:
    """For a share of few that must not fall; what is usual is ``most`` at most."""

    def bound(usual: float, count: int) -> float:
        middle = asin(sqrt(min(usual, most)))
        return float(sin(max(middle - deviations / 2 * sqrt(design / count), 0.0)) ** 2)

    return bound


def skewed_above(deviations: float, design: float, least: float = 0.0) -> Bound:
    """For a share of few that must not rise; what is usual is ``least`` at least."""

    def bound(usual: float, count: int) -> float:
        middle = asin(sqrt(max(usual, least)))
        return float(sin(min(middle + deviations / 2 * sqrt(design / count), pi / 2)) ** 2)

    return bound


def mean_below(deviations: float, variance: float) -> Bound:
    """For a mean whose variance is ``variance`` times itself."""
    return lambda usual, count: max(sqrt(usual) - deviations / 2 * sqrt(variance / count), 0.0) ** 2


def spread_below(deviations: float, spread: float) -> Bound:
    """For a ratio with a standard deviation of ``spread`` for one search."""
    return lambda usual, count: usual - deviations * spread / sqrt(count)


def relative_below(deviations: float, spread: float) -> Bound:
    """For a mean with a standard deviation of ``spread`` times itself for one search."""
    return lambda usual, count: usual * (1 - deviations * spread / sqrt(count))
