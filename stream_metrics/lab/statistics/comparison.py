"""Compare two systems on the same units: difference, interval, effect size, significance test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import fsum, sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_metrics.lab.choices import CONFIDENCE, RESAMPLES, SEED, TEST_RESAMPLES, TESTS, Test
from stream_metrics.lab.statistics.distributions import t_paired, wilcoxon
from stream_metrics.lab.statistics.intervals import percentile_interval
from stream_metrics.lab.statistics.resampling import resamples, swaps
from stream_metrics.lab.statistics.units import Floats, Units, standard_deviation

FEWEST: Final = 5
"""The fewest units that are tested."""
TOLERANCE: Final = 1e-12
"""How far below the observed statistic a value still counts as extreme, so that rounding has no
effect."""


class Comparison(NamedTuple):
    """The difference of two systems' figures.

    Attributes:
        n: The number of shared units; in an unpaired comparison, of all units.
        a, b: The two figures over those units.
        difference: a − b.
        ci_low, ci_high: The interval of the difference; None for fewer than two units, or if no
            interval was requested.
        effect: The difference in standard deviations of the units' contributions to it (see
            ``contributions``): d_z, or Hedges' g for an unpaired comparison. None if they are
            all equal.
        test: The test that p comes from; None if no test was requested.
        statistic: The test statistic; None if the test has none.
        p: The two-sided p-value. None: no test was made, and ``reason`` says why.
        reason: Why p is None, or a remark on it.
    """

    n: int
    a: float | None
    b: float | None
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    effect: float | None
    test: str | None
    statistic: float | None
    p: float | None
    reason: str | None = None


class Significance(NamedTuple):
    """The result of a significance test."""

    statistic: float | None
    p: float | None
    reason: str | None


UNTESTED: Final = Significance(None, None, "no test was asked for")


class Pairs(NamedTuple):
    """Sums and counts of both systems by unit."""

    a_sums: Floats
    a_counts: Floats
    b_sums: Floats
    b_counts: Floats

    @property
    def differences(self) -> Floats:
        """Each unit's mean under a minus its mean under b."""
        return self.a_sums / self.a_counts - self.b_sums / self.b_counts

    @property
    def single(self) -> bool:
        """Whether each unit has a count of 1 in both."""
        return bool((self.a_counts == 1).all() and (self.b_counts == 1).all())


def compare(
    a: Units,
    b: Units,
    test: Test | None = "bootstrap",
    *,
    confidence: float | None = CONFIDENCE,
    interval_resamples: int = RESAMPLES,
    resample_count: int = TEST_RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Compare two systems on the units that both have.

    Args:
        a: The values of the system of interest.
        b: The values of the baseline.
        test: ``bootstrap``: of the studentised difference (Sakai, SIGIR 2006). ``plain_bootstrap``:
            of the difference itself, which rejects too often with fewer than 50 units.
            ``permutation``: swaps the systems within each unit with probability 1/2, or in all 2^n
            ways if these are at most ``resample_count``. ``t``, ``wilcoxon``: of the units' mean
            differences. None: no test is made.
        confidence: The confidence level of the percentile bootstrap interval. None: no interval.
        interval_resamples: The number of resamples for the interval.
        resample_count: The number of resamples or permutations for the test.
        seed: The seed of the random draws.

    Raises:
        ValueError: There is no such test.

    >>> a = Units.of_values(zip("abcdef", [1.0, 1.0, 0.5, 1.0, 0.0, 1.0]))
    >>> b = Units.of_values(zip("abcdef", [0.5, 0.0, 0.5, 0.0, 0.5, 0.5]))
    >>> found = compare(a, b, "permutation")
    >>> round(found.difference, 4), found.p
    (0.4167, 0.25)
    """
    shared = sorted(set(a.keys) & set(b.keys))
    a, b = a.subset(shared), b.subset(shared)
    tested = UNTESTED
    if test is not None:
        tested = significance(a, b, test, resample_count=resample_count, seed=seed)
    if a.figure is None or b.figure is None:
        return Comparison(0, None, None, None, None, None, None, test, *tested)
    pairs = Pairs(a.sums, a.counts, b.sums, b.counts)
    difference = a.figure - b.figure
    low = high = None
    if len(shared) > 1 and confidence is not None:
        low, high = percentile_interval(_resampled(pairs, interval_resamples, seed), confidence)
    return Comparison(
        len(shared),
        a.figure,
        b.figure,
        difference,
        low,
        high,
        _effect(pairs, difference),
        test,
        *tested,
    )


def significance(
    a: Units,
    b: Units,
    test: Test = "bootstrap",
    *,
    resample_count: int = TEST_RESAMPLES,
    seed: int = SEED,
) -> Significance:
    """Test the difference of two systems with the same units, as ``compare`` does.

    Raises:
        ValueError: There is no such test, or the units are not the same.
    """
    if test not in TESTS:
        raise ValueError(f"no test is called {test!r}; there are {', '.join(TESTS)}")
    if a.keys != b.keys:
        raise ValueError(
            "a paired test needs the same units in both; compare takes the shared ones"
        )
    if not a.keys:
        return Significance(None, None, "no unit is shared")
    pairs = Pairs(a.sums, a.counts, b.sums, b.counts)
    differences = pairs.differences
    flat = bool((differences == differences[0]).all())
    if flat and differences[0] == 0 and np.array_equal(a.sums, b.sums):
        return Significance(None, 1.0, "no unit differs")
    if len(differences) < FEWEST:
        return Significance(None, None, f"fewer than {FEWEST} shared units")
    if flat:
        return Significance(None, None, "every unit differs by the same amount")
    return Significance(*_P_VALUES[test](pairs, resample_count, seed), None)


def _drawn(pairs: Pairs, count: int, seed: int) -> Iterator[Pairs]:
    """Both systems' values in each resample of units."""
    for drawn in resamples(len(pairs.a_sums), count, seed=seed):
        yield Pairs(*(values[drawn] for values in pairs))


def _difference(pairs: Pairs) -> Floats:
    """The difference of the figures along the last axis."""
    difference = pairs.a_sums.sum(axis=-1) / pairs.a_counts.sum(axis=-1)
    difference -= pairs.b_sums.sum(axis=-1) / pairs.b_counts.sum(axis=-1)
    return np.asarray(difference, dtype=np.float64)


def _resampled(pairs: Pairs, count: int, seed: int) -> Floats:
    """The difference in each resample."""
    if pairs.single:
        differences = pairs.differences
        blocks = resamples(len(differences), count, seed=seed)
        return np.concatenate([differences[drawn].mean(axis=1) for drawn in blocks])
    return np.concatenate([_difference(drawn) for drawn in _drawn(pairs, count, seed)])


# -- the tests --------------------------------------------------------------------------------


def share_of_extremes(statistics: Floats, observed: float) -> float:
    """The p-value of a resampling test: (values as extreme as observed + 1) ÷ (values + 1)."""
    return (_extremes(statistics, observed) + 1) / (len(statistics) + 1)


def _extremes(statistics: Floats, observed: float) -> int:
    """The number of values at least as far from 0 as the observed one, within ``TOLERANCE``."""
    floor = abs(observed) - TOLERANCE * max(1.0, abs(observed))
    return int((np.abs(statistics) >= floor).sum())


def influences(sums: Floats, counts: Floats) -> Floats:
    """Each unit's first-order influence on the ratio Σ sums ÷ Σ counts, times n."""
    totals = counts.sum(axis=-1, keepdims=True)
    figures = sums.sum(axis=-1, keepdims=True) / totals
    return np.asarray((sums - figures * counts) * (counts.shape[-1] / totals), dtype=np.float64)


def standard_error(residuals: Floats) -> Floats:
    """The standard error of a mean or ratio from its units' influences, whose mean is 0."""
    n = residuals.shape[-1]
    return np.asarray(np.sqrt((residuals**2).sum(axis=-1) / ((n - 1) * n)), dtype=np.float64)


def studentised(distances: Floats, deviations: Floats, scale: float) -> Floats:
    """Distance ÷ standard error; for a resample without variance, 0 or infinity."""
    none = deviations <= TOLERANCE * scale
    beyond = np.where(np.abs(distances) <= TOLERANCE * scale, 0.0, np.inf)
    return np.where(none, beyond, distances / np.where(none, 1.0, deviations))


def _studentised_bootstrap(pairs: Pairs, count: int, seed: int) -> tuple[float, float]:
    observed = float(_difference(pairs))
    scale = float(np.abs(pairs.differences).max())
    error = float(standard_error(_residuals(pairs)))
    distances = []
    if pairs.single:
        differences = pairs.differences
        for drawn in resamples(len(differences), count, seed=seed):
            values = differences[drawn]
            means = values.mean(axis=1)
            values -= means[:, None]
            distances.append(studentised(means - observed, standard_error(values), scale))
    else:
        for resample in _drawn(pairs, count, seed):
            deviations = standard_error(_residuals(resample))
            distances.append(studentised(_difference(resample) - observed, deviations, scale))
    statistic = observed / error
    return statistic, share_of_extremes(np.concatenate(distances), statistic)


def _residuals(pairs: Pairs) -> Floats:
    return influences(pairs.a_sums, pairs.a_counts) - influences(pairs.b_sums, pairs.b_counts)


def _plain_bootstrap(pairs: Pairs, count: int, seed: int) -> tuple[float, float]:
    observed = float(_difference(pairs))
    return observed, share_of_extremes(_resampled(pairs, count, seed) - observed, observed)


def _permutation(pairs: Pairs, count: int, seed: int) -> tuple[float, float]:
    observed = float(_difference(pairs))
    n = len(pairs.a_sums)
    exact = n < 63 and 2**n <= count
    blocks = _every_swap(n) if exact else swaps(n, count, seed=seed)
    differences = np.concatenate([_differences_after_swaps(pairs, swapped) for swapped in blocks])
    if not exact:
        return observed, share_of_extremes(differences, observed)
    return observed, _extremes(differences, observed) / len(differences)


def _differences_after_swaps(pairs: Pairs, swapped: NDArray[np.bool_]) -> Floats:
    """The difference after swapping the systems in some units, one row per permutation."""
    if pairs.single:
        differences = pairs.differences
        return np.asarray(np.where(swapped, -differences, differences).mean(axis=1))
    return _difference(
        Pairs(
            np.where(swapped, pairs.b_sums, pairs.a_sums),
            np.where(swapped, pairs.b_counts, pairs.a_counts),
            np.where(swapped, pairs.a_sums, pairs.b_sums),
            np.where(swapped, pairs.a_counts, pairs.b_counts),
        )
    )


def _every_swap(n: int) -> Iterator[NDArray[np.bool_]]:
    yield (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1


def _t(pairs: Pairs, count: int, seed: int) -> tuple[float, float]:
    return t_paired(pairs.a_sums / pairs.a_counts, pairs.b_sums / pairs.b_counts)


def _wilcoxon(pairs: Pairs, count: int, seed: int) -> tuple[float, float]:
    return wilcoxon(pairs.differences)


_P_VALUES: Final[dict[Test, Callable[[Pairs, int, int], tuple[float, float]]]] = {
    "bootstrap": _studentised_bootstrap,
    "plain_bootstrap": _plain_bootstrap,
    "permutation": _permutation,
    "t": _t,
    "wilcoxon": _wilcoxon,
}


def d_z(difference: float, differences: Floats) -> float | None:
    """Difference ÷ standard deviation (n − 1) of paired differences; None if they are all equal.

    ``difference`` is the exact mean of ``differences``, so that the effect has the sign of the
    displayed difference.

    >>> d_z(2.0, np.array([1.0, 2.0, 3.0]))
    2.0
    """
    sd = standard_deviation(differences.tolist())
    flat = bool((differences == differences[0]).all())
    return None if flat or not sd else difference / sd


def _effect(pairs: Pairs, difference: float) -> float | None:
    if pairs.single:
        return d_z(difference, pairs.differences)
    scale = float(np.abs(pairs.differences).max())
    return d_z(difference, with_spread(difference, _residuals(pairs), scale))


def contributions(units: Units) -> Floats:
    """Each unit's contribution to a figure: its value or, for a quotient of sums, to first order.

    Their mean is the figure. The mean of the units' own quotients is not: a long conversation
    affects SRR more than a short one.

    >>> contributions(Units.of_sums([("a", 1, 2), ("b", 6, 8)])).tolist()
    [0.62, 0.78]
    """
    if units.single:
        return units.means
    scale = float(np.abs(units.means).max())
    return with_spread(units.figure or 0.0, influences(units.sums, units.counts), scale)


def with_spread(middle: float, residuals: Floats, scale: float) -> Floats:
    """A figure plus the residuals, which are dropped if they are rounding errors only."""
    none = np.abs(residuals).max() <= TOLERANCE * scale
    return np.asarray(middle + (0.0 if none else 1.0) * residuals, dtype=np.float64)


def pooled_deviation(one: Floats, other: Floats) -> float:
    """The pooled standard deviation of two samples."""
    squares = [fsum((x - fsum(xs) / len(xs)) ** 2 for x in xs) for xs in (one, other)]
    return sqrt(fsum(squares) / (len(one) + len(other) - 2))
