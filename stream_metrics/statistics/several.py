"""Several tests at once, and several strata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Final, NamedTuple

from stream_metrics.choices import CORRECTIONS, SEED, Correction, Method
from stream_metrics.statistics.intervals import Estimate, estimate
from stream_metrics.statistics.units import Units

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


def bonferroni(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust the p-values of one family of tests by its size, at most to 1.

    A test that was not made (None) stays None, and counts in the size.

    >>> bonferroni([0.01, None, 0.5])
    [0.03, None, 1.0]
    """
    return [None if p is None else min(1.0, p * len(p_values)) for p in p_values]


def adjusted(
    p_values: Sequence[float | None], correction: Correction = "holm"
) -> list[float | None]:
    """The p-values of one family of tests, so that all together find something that is not there
    no more often than one test alone; ``none`` leaves them as they are.

    Raises:
        ValueError: There is no such correction.

    >>> adjusted([0.02, 0.03], "bonferroni"), adjusted([0.02, 0.03]), adjusted([0.02], "none")
    ([0.04, 0.06], [0.04, 0.04], [0.02])
    """
    if correction not in CORRECTIONS:
        known = ", ".join(CORRECTIONS)
        raise ValueError(f"no correction is called {correction!r}; there are {known}")
    if correction == "none":
        return list(p_values)
    return holm(p_values) if correction == "holm" else bonferroni(p_values)


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


class Spread(NamedTuple):
    """How the figures of several strata lie: their mean, each counting the same, and their variance
    with n below. None without any figure."""

    average: float | None
    variance: float | None


def stratum_note(units: int) -> str | None:
    """What a stratum of that many units is too small for; None if it is large enough.

    >>> stratum_note(49), stratum_note(200)
    ('fewer than 50 units: a warning, not a result', None)
    """
    if units < FEW:
        return f"fewer than {FEW} units: a warning, not a result"
    if units < MODERATE:
        return f"fewer than {MODERATE} units: differences of some size only are seen"
    return None


def spread_of_strata(figures: Iterable[float | None]) -> Spread:
    """Mean and variance of the strata's figures; those that are None take no part.

    >>> spread_of_strata([0.5, None, 1.0])
    Spread(average=0.75, variance=0.0625)
    """
    known = [figure for figure in figures if figure is not None]
    if not known:
        return Spread(None, None)
    average = fsum(known) / len(known)
    return Spread(average, fsum((figure - average) ** 2 for figure in known) / len(known))


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
    found = {name: stratum_note(one.units) for name, one in estimates.items()}
    notes = {name: note for name, note in found.items() if note is not None}
    return Strata(estimates, notes, *spread_of_strata(one.mean for one in estimates.values()))
