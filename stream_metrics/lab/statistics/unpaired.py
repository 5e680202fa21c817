"""Compare two systems without shared units, as in a live A/B test."""

from __future__ import annotations

from math import exp, lgamma, log
from typing import Final, Literal, get_args

import numpy as np

from stream_metrics.lab.choices import CONFIDENCE, RESAMPLES, SEED, TEST_RESAMPLES
from stream_metrics.lab.statistics.comparison import (
    FEWEST,
    UNTESTED,
    Comparison,
    Significance,
    contributions,
    influences,
    pooled_deviation,
    share_of_extremes,
    standard_error,
    studentised,
)
from stream_metrics.lab.statistics.distributions import t_unpaired
from stream_metrics.lab.statistics.intervals import percentile_interval, resampled
from stream_metrics.lab.statistics.resampling import resamples
from stream_metrics.lab.statistics.units import Floats, Units

UnpairedTest = Literal["bootstrap", "welch", "pooled_t"]
UNPAIRED_TESTS: Final[tuple[UnpairedTest, ...]] = get_args(UnpairedTest)


def compare_unpaired(
    a: Units,
    b: Units,
    test: UnpairedTest | None = "welch",
    *,
    confidence: float | None = CONFIDENCE,
    interval_resamples: int = RESAMPLES,
    resample_count: int = TEST_RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Compare two systems that were observed on different units.

    Args:
        a: The values of the system of interest.
        b: The values of the baseline.
        test: ``welch``: Welch's t-test of the units' means. ``bootstrap``: of the studentised
            difference, resampling each system's units independently. ``pooled_t``: Student's, for
            samples of equal variance. None: no test is made.
        confidence: The confidence level of the percentile bootstrap interval. None: no interval.
        interval_resamples: The number of resamples for the interval.
        resample_count: The number of resamples for the bootstrap test.
        seed: The seed of the random draws.

    Raises:
        ValueError: There is no such test.

    >>> a = Units.of_values(zip("abcde", [0.9, 0.8, 1.0, 0.7, 0.9]))
    >>> b = Units.of_values(zip("vwxyz", [0.4, 0.6, 0.5, 0.5, 0.6]))
    >>> found = compare_unpaired(a, b)
    >>> round(found.difference, 3), round(found.p, 5), round(found.effect, 3)
    (0.34, 0.00089, 3.069)
    """
    found = UNTESTED
    if test is not None:
        found = significance_unpaired(a, b, test, resample_count=resample_count, seed=seed)
    n = a.size + b.size
    if a.figure is None or b.figure is None:
        return Comparison(n, a.figure, b.figure, None, None, None, None, test, *found)
    difference = a.figure - b.figure
    low = high = effect = None
    if min(a.size, b.size) > 1:
        effect = hedges_g(difference, contributions(a), contributions(b))
        if confidence is not None:
            drawn = resampled(a, interval_resamples, seed)
            low, high = percentile_interval(
                drawn - resampled(b, interval_resamples, seed, 1), confidence
            )
    return Comparison(n, a.figure, b.figure, difference, low, high, effect, test, *found)


def significance_unpaired(
    a: Units,
    b: Units,
    test: UnpairedTest = "welch",
    *,
    resample_count: int = TEST_RESAMPLES,
    seed: int = SEED,
) -> Significance:
    """Test the difference of two systems without shared units, as ``compare_unpaired`` does.

    Raises:
        ValueError: There is no such test.
    """
    if test not in UNPAIRED_TESTS:
        raise ValueError(f"no test is called {test!r}; there are {', '.join(UNPAIRED_TESTS)}")
    if min(a.size, b.size) < FEWEST:
        return Significance(None, None, f"fewer than {FEWEST} units on one side")
    flat = [bool((side.means == side.means[0]).all()) for side in (a, b)]
    if all(flat) and a.means[0] == b.means[0]:
        return Significance(None, 1.0, "no unit differs")
    if all(flat) or (any(flat) and test != "pooled_t"):
        # Its estimated variance is 0, which raises false alarms with few units of a 0/1 metric.
        return Significance(None, None, "one side has no spread")
    if test == "bootstrap":
        return Significance(*_bootstrap(a, b, resample_count, seed), None)
    return Significance(*t_unpaired(a.means, b.means, pooled=test == "pooled_t"), None)


def hedges_g(difference: float, one: Floats, other: Floats) -> float | None:
    """Difference of means ÷ pooled standard deviation, corrected for bias (Hedges, 1981).

    ``difference`` is the exact difference of the means, as in ``d_z``. The correction is the exact
    one, Γ(m/2) ÷ (√(m/2) · Γ((m − 1)/2)) with m degrees of freedom. None if all values are equal
    within each sample.

    >>> round(hedges_g(1.0, np.array([2.0, 4.0]), np.array([1.0, 3.0])), 4)
    0.3989
    """
    freedom = len(one) + len(other) - 2
    flat = bool((one == one[0]).all() and (other == other[0]).all())
    if flat or freedom < 2:
        return None
    sd = pooled_deviation(one, other)
    correction = exp(lgamma(freedom / 2) - lgamma((freedom - 1) / 2) - log(freedom / 2) / 2)
    return correction * difference / sd


def _bootstrap(a: Units, b: Units, count: int, seed: int) -> tuple[float, float]:
    observed = _figure(a.sums, a.counts) - _figure(b.sums, b.counts)
    scale = float(max(np.abs(a.means).max(), np.abs(b.means).max()))
    error = _error(_own_error(a.sums, a.counts), _own_error(b.sums, b.counts))
    one, one_errors = _parts(a, count, seed, 0)
    other, other_errors = _parts(b, count, seed, 1)
    found = studentised(one - other - observed, _error(one_errors, other_errors), scale)
    statistic = float(observed / error)
    return statistic, share_of_extremes(found, statistic)


def _parts(units: Units, count: int, seed: int, stream: int) -> tuple[Floats, Floats]:
    """Figure and standard error of one system in each resample."""
    figures, deviations = [], []
    for drawn in resamples(units.size, count, seed=seed, stream=stream):
        sums, counts = units.sums[drawn], units.counts[drawn]
        figures.append(_figure(sums, counts))
        deviations.append(_own_error(sums, counts))
    return np.concatenate(figures), np.concatenate(deviations)


def _figure(sums: Floats, counts: Floats) -> Floats:
    return np.asarray(sums.sum(axis=-1) / counts.sum(axis=-1), dtype=np.float64)


def _own_error(sums: Floats, counts: Floats) -> Floats:
    return standard_error(influences(sums, counts))


def _error(one: Floats, other: Floats) -> Floats:
    return np.asarray(np.sqrt(one**2 + other**2), dtype=np.float64)
