"""Sums of values over bootstrap resamples, by the compiled kernel if it is installed.

Kernel and Python draw from the same stream and add in the same order, so their results are
identical to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stream_metrics.core import compiled
from stream_metrics.lab.choices import SEED
from stream_metrics.lab.statistics.resampling import draw_counts, generator
from stream_metrics.lab.statistics.units import Floats

MOST_UNITS: Final = 2**32 - 1
"""The most units that the kernel supports; above this, numpy draws 64-bit words."""


def resampled_sums(
    columns: Sequence[Floats], count: int, *, seed: int = SEED, stream: int = 0
) -> list[Floats]:
    """The sum of each column of values in each resample, one array per column.

    Memory holds the columns, one count per unit and the sums, independent of the number of
    resamples.

    Args:
        columns: Values by unit, of equal length. All columns share the resamples.
        count: The number of resamples.
        seed: The seed of the stream.
        stream: Which of the seed's independent streams.

    >>> ones, halves = resampled_sums([np.ones(3), np.full(3, 0.5)], 2)
    >>> ones.tolist(), halves.tolist()
    ([3.0, 3.0], [1.5, 1.5])
    """
    found: list[bytes] | None = None
    if 0 < len(columns[0]) <= MOST_UNITS:
        bits = generator(seed, stream).bit_generator.state["state"]
        arrays = [np.ascontiguousarray(column) for column in columns]
        found = compiled.resampled_sums(arrays, count, bits["state"], bits["inc"])
    if found is None:
        return plain_sums(columns, count, seed=seed, stream=stream)
    return [np.frombuffer(sums) for sums in found]


def plain_sums(
    columns: Sequence[Floats], count: int, *, seed: int = SEED, stream: int = 0
) -> list[Floats]:
    """``resampled_sums`` in Python."""
    found = [np.empty(count) for _ in columns]
    rows = 0
    for times in draw_counts(len(columns[0]), count, seed=seed, stream=stream):
        part = slice(rows, rows + len(times))
        for values, sums in zip(columns, found, strict=True):
            # Neither a matrix product nor einsum: their bits depend on the processor.
            sums[part] = (times * values).sum(axis=1)
        rows = part.stop
    return found
