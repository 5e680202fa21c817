"""Means with intervals, resampled by conversation.

The searches and turns of one conversation are not independent, so that a conversation is drawn as
a whole: a figure is the sum of its numerators over the sum of its denominators.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Final, NamedTuple

import numpy as np

RESAMPLES: Final = 1_000
SEED: Final = 20_240_501
_CHUNK_VALUES: Final = 4_000_000


class Mean(NamedTuple):
    """A mean over rows with its spread; None where there is nothing to tell.

    ``sd`` has n - 1 below; ``ci_low`` and ``ci_high`` bound the central 95% of the bootstrap.
    """

    mean: float | None
    n: int
    sd: float | None
    ci_low: float | None
    ci_high: float | None


def mean_of_units(units: Sequence[Sequence[float]], *, resamples: int = RESAMPLES) -> Mean:
    """The mean of all values, with a percentile bootstrap interval over ``units``.

    Args:
        units: The values of each conversation; empty ones take no part.
        resamples: How many times the units are drawn.

    >>> mean_of_units([[1.0], [1.0, 1.0]])[:3]
    (1.0, 3, 0.0)
    >>> mean_of_units([[0.5]])
    Mean(mean=0.5, n=1, sd=None, ci_low=None, ci_high=None)
    """
    values = [value for unit in units for value in unit]
    n = len(values)
    if not n:
        return Mean(None, 0, None, None, None)
    mean = fsum(values) / n
    if n < 2:
        return Mean(mean, n, None, None, None)
    sd = (fsum((value - mean) ** 2 for value in values) / (n - 1)) ** 0.5
    present = [unit for unit in units if unit]
    if len(present) < 2:
        return Mean(mean, n, sd, None, None)
    sums = np.array([fsum(unit) for unit in present])
    counts = np.array([len(unit) for unit in present], dtype=np.float64)
    low, high = np.quantile(_resampled(sums, counts, resamples), [0.025, 0.975])
    return Mean(mean, n, sd, float(low), float(high))


def _resampled(sums: np.ndarray, counts: np.ndarray, resamples: int) -> np.ndarray:
    """The figure in each resample; the draws depend on the number of units alone."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    size = len(sums)
    rows = max(1, _CHUNK_VALUES // size)
    figures = []
    for start in range(0, resamples, rows):
        drawn = generator.integers(0, size, size=(min(rows, resamples - start), size))
        figures.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    return np.concatenate(figures)
