"""Several tests at once, and several strata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Final, NamedTuple

from stream_metrics.statistics.intervals import Estimate, Method, estimate
from stream_metrics.statistics.resampling import SEED
from stream_metrics.statistics.units import Units

ALPHA: Final = 0.05
FEW: Final = 50
"""Units below which a stratum's figures come with a warning."""
MODERATE: Final = 200
"""Units below which they come with a note."""


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust the p-values of one family of tests (Holm, 1979): they keep their order.

    A test that was not made (None) stays None. It counts in the size of the family, so that what is
    found does not depend on which tests could be made.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.04, 0.09, None, 0.09]
    """
    order = sorted((p, at) for at, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for place, (p, at) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(p_values) - place)))
        adjusted[at] = largest
    return adjusted


class Strata(NamedTuple):
    """A figure in each stratum, and how it differs between them.

    Attributes:
        estimates: By stratum, sorted.
        notes: What a stratum is too small for.
        stratum_average: The mean of the strata's figures, each counting the same.
        cross_stratum_variance: The variance of those figures, with n below.
    """

    estimates: dict[str, Estimate]
    notes: dict[str, str]
    stratum_average: float | None
    cross_stratum_variance: float | None


def stratify(
    strata: Mapping[str, Units], method: Method = "percentile", *, seed: int = SEED
) -> Strata:
    """Estimate a figure in each stratum.

    Args:
        strata: The values by stratum.
        method: Of the intervals.
        seed: Of the draws.

    >>> found = stratify({"de": Units.of_values([("a", 0.5)]), "en": Units.of_values([("b", 1.0)])})
    >>> found.stratum_average, found.cross_stratum_variance, found.notes["de"]
    (0.75, 0.0625, 'fewer than 50 units: a warning, not a result')
    """
    estimates = {name: estimate(strata[name], method, seed=seed) for name in sorted(strata)}
    notes = {}
    for name, found in estimates.items():
        if found.units < FEW:
            notes[name] = f"fewer than {FEW} units: a warning, not a result"
        elif found.units < MODERATE:
            notes[name] = f"fewer than {MODERATE} units: differences of some size only are seen"
    figures = [found.mean for found in estimates.values() if found.mean is not None]
    if not figures:
        return Strata(estimates, notes, None, None)
    average = fsum(figures) / len(figures)
    variance = fsum((figure - average) ** 2 for figure in figures) / len(figures)
    return Strata(estimates, notes, average, variance)
