"""Sums of values over the resamples of the bootstrap, by the compiled kernel where it is there.

The twins draw from the same stream and add up in the same order: their bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stream_metrics import compiled
from stream_metrics.choices import SEED
from stream_metrics.statistics.resampling import generator, times_drawn
from stream_metrics.statistics.units import Floats

MOST_UNITS: Final = 2**32 - 1
"""Units that the kernel draws from; above, numpy takes whole words of the generator."""


def resampled_sums(
    columns: Sequence[Floats], count: int, *, seed: int = SEED, stream: int = 0
) -> list[Floats]:
    """The sum of each column of values in each resample, one array a column.

    Memory is that of the columns, of one count a unit and of the sums, however many resamples.

    Args:
        columns: Values by unit, of one length; the resamples are the same for all.
        count: How many resamples.
        seed: Of the stream.
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
    """The same in Python."""
    found = [np.empty(count) for _ in columns]
    rows = 0
    for times in times_drawn(len(columns[0]), count, seed=seed, stream=stream):
        part = slice(rows, rows + len(times))
        for values, sums in zip(columns, found, strict=True):
            # Neither a matrix product nor einsum: their bits depend on the processor.
            sums[part] = (times * values).sum(axis=1)
        rows = part.stop
    return found
