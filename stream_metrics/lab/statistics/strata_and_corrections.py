"""Corrections for multiple tests, and estimates by stratum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Final, NamedTuple

from stream_metrics.lab.choices import CORRECTIONS, SEED, Correction, Method
from stream_metrics.lab.statistics.intervals import Estimate, estimate
from stream_metrics.lab.statistics.units import Units

FEW: Final = 50
"""Strata with fewer units get a warning."""
MODERATE: Final = 200
"""Strata with fewer units get a note."""


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust the p-values of one family of tests (Holm, 1979). They keep their order.

    A test that was not made (None) stays None. It counts in the size of the family, so that the
    result does not depend on which tests could be made.

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
    """Adjust the p-values of one family of tests to control the family-wise error rate.

    ``none`` leaves them unchanged.

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
    """A figure in each stratum, and its variation between strata.

    Attributes:
        estimates: The estimates by stratum, sorted by name.
        notes: Remarks on strata that are too small, by name.
        stratum_average: The unweighted mean of the strata's figures.
        cross_stratum_variance: The population variance of those figures.
    """

    estimates: dict[str, Estimate]
    notes: dict[str, str]
    stratum_average: float | None
    cross_stratum_variance: float | None


class StratumSpread(NamedTuple):
    """The unweighted mean and population variance of strata's figures; None without figures."""

    average: float | None
    variance: float | None


def stratum_note(units: int) -> str | None:
    """A remark on a stratum with too few units; None if it is large enough.

    >>> stratum_note(49), stratum_note(200)
    ('fewer than 50 units: a warning, not a result', None)
    """
    if units < FEW:
        return f"fewer than {FEW} units: a warning, not a result"
    if units < MODERATE:
        return f"fewer than {MODERATE} units: only large differences can be detected"
    return None


def spread_of_strata(figures: Iterable[float | None]) -> StratumSpread:
    """Mean and variance of the strata's figures; None is ignored.

    >>> spread_of_strata([0.5, None, 1.0])
    StratumSpread(average=0.75, variance=0.0625)
    """
    known = [figure for figure in figures if figure is not None]
    if not known:
        return StratumSpread(None, None)
    average = fsum(known) / len(known)
    return StratumSpread(average, fsum((figure - average) ** 2 for figure in known) / len(known))


def stratify(
    strata: Mapping[str, Units], method: Method = "percentile", *, seed: int = SEED
) -> Strata:
    """Estimate a figure in each stratum.

    Args:
        strata: The values by stratum.
        method: The interval method.
        seed: The seed of the random draws.

    >>> found = stratify({"de": Units.of_values([("a", 0.5)]), "en": Units.of_values([("b", 1.0)])})
    >>> found.stratum_average, found.cross_stratum_variance, found.notes["de"]
    (0.75, 0.0625, 'fewer than 50 units: a warning, not a result')
    """
    estimates = {name: estimate(strata[name], method, seed=seed) for name in sorted(strata)}
    found = {name: stratum_note(one.units) for name, one in estimates.items()}
    notes = {name: note for name, note in found.items() if note is not None}
    return Strata(estimates, notes, *spread_of_strata(one.mean for one in estimates.values()))
