"""Bounds of chance: whether a ratio is further from its usual value than noise explains.

Each takes a ratio, its usual value, and the number of results, iterations, decisions or searches
behind the ratio. A bound is about four standard deviations from the usual value. Results of one
turn are correlated, so the variances are larger than those of independent results;
``docs/guides/alerts.md`` says how to measure yours.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_metrics.core.alerts.promql import Value, asin, clamp, ln, sin, sqrt

Bound = Callable[[Value, Value, Value], Value]

_NEARLY = 1e-9  # keeps shares away from 0 and 1, which have no logarithm


def share_above(deviations: float, design: float) -> Bound:
    """For a share; ``design`` is the design effect: its variance over that of independent items."""
    return lambda value, usual, count: (
        value > usual + deviations * sqrt(design * usual * (1 - usual) / count)
    )


def share_below(deviations: float, design: float, least: float) -> Bound:
    """For a share whose complement is assumed to be ``least`` at least."""
    return lambda value, usual, count: (
        value < usual - deviations * sqrt(design * usual * clamp(1 - usual, least) / count)
    )


def skewed_below(deviations: float, design: float, most: float = 1.0) -> Bound:
    """For a share near 0 or 1 that must not fall; the usual value is capped at ``most``.

    Such shares have a skewed distribution. The arc sine of the square root of a share has a
    constant variance.
    """

    def is_beyond(value: Value, usual: Value, count: Value) -> Value:
        middle = asin(sqrt(clamp(usual, high=most)))
        return value < sin(clamp(middle - deviations / 2 * sqrt(design / count), 0.0)) ** 2

    return is_beyond


def few_above(deviations: float, least: float) -> Bound:
    """For a share of few items that must not rise, by deviance; usual is at least ``least``.

    For very few decisions the normal distribution does not hold, and no transformation helps. The
    square root of the deviance (twice the log-likelihood ratio of the present share and the usual
    one) corresponds to a number of standard errors for any number of decisions. Chance exceeds 4
    at most once in about 3,000 periods (five decisions, usual share 20%), mostly once in 10,000 or
    less. Decisions are assumed to be independent.
    """

    def is_beyond(value: Value, usual: Value, count: Value) -> Value:
        usual, share = clamp(usual, least, 1 - _NEARLY), clamp(value, _NEARLY, 1 - _NEARLY)
        odds = share * ln(share / usual) + (1 - share) * ln((1 - share) / (1 - usual))
        return (value > usual) & (2 * count * odds > deviations * deviations)

    return is_beyond


def mean_below(deviations: float, variance: float) -> Bound:
    """For a mean whose variance is ``variance`` times itself."""

    return lambda value, usual, count: (
        value < clamp(sqrt(usual) - deviations / 2 * sqrt(variance / count), 0.0) ** 2
    )


def spread_below(deviations: float, spread: float) -> Bound:
    """For a ratio with a standard deviation of ``spread`` for one search."""
    return lambda value, usual, count: value < usual - deviations * spread / sqrt(count)


def relative_below(deviations: float, spread: float) -> Bound:
    """For a mean with a standard deviation of ``spread`` times itself for one search."""
    return lambda value, usual, count: value < usual * (1 - deviations * spread / sqrt(count))
