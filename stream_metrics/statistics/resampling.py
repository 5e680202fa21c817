"""The draws of the bootstrap: one stream of indices, the same for every figure of as many units.

The stream is PCG64's from a seed, cut into resamples. It depends on the seed and on the number of
units alone: not on which figures are computed, in what order, or by how many processes. Blocks
bound the memory and do not change the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_metrics.choices import SEED

BLOCK: Final = 2_000_000
"""Indices that are held at a time, if one resample has not more."""

CHANGES: Final = 2
"""The stream of a seed that changes of place come from; 0 and 1 are those of two samples."""

CELLS: Final = 1 << 15
"""Counts that are held at a time, if one resample has not more: they fit a processor's cache."""

Indices = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]


def resamples(units: int, count: int, *, seed: int = SEED, stream: int = 0) -> Iterator[Indices]:
    """``count`` resamples of ``units`` units, in blocks: a row a resample.

    Args:
        units: How many units there are, one at least.
        count: How many resamples.
        seed: Of the stream.
        stream: Which of the seed's independent streams; a second sample needs a second one.
    """
    if units * count <= BLOCK:
        yield _whole(units, count, seed, stream)
    else:
        yield from _blocks(units, count, seed, stream)


def times_drawn(units: int, count: int, *, seed: int = SEED, stream: int = 0) -> Iterator[Floats]:
    """How often each unit is in each of ``resamples``, in smaller blocks: a row a resample.

    Sums over resamples come by multiplication then, which is faster than to look up each value.

    >>> [times.sum(axis=1).tolist() for times in times_drawn(3, 2)]
    [[3.0, 3.0]]
    """
    rows = max(1, CELLS // units)
    for drawn in resamples(units, count, seed=seed, stream=stream):
        for start in range(0, len(drawn), rows):
            block = drawn[start : start + rows]
            apart = block + np.arange(len(block))[:, None] * units
            times = np.bincount(apart.ravel(), minlength=block.size)
            yield times.reshape(block.shape).astype(np.float64)


@lru_cache(maxsize=4)
def _whole(units: int, count: int, seed: int, stream: int) -> Indices:
    """All of a short stream, which every metric of a report uses again."""
    drawn = np.concatenate(list(_blocks(units, count, seed, stream)))
    drawn.flags.writeable = False
    return drawn


def _blocks(units: int, count: int, seed: int, stream: int) -> Iterator[Indices]:
    draws = generator(seed, stream)
    rows = max(1, BLOCK // units)
    for start in range(0, count, rows):
        yield draws.integers(0, units, size=(min(rows, count - start), units))


def changes(units: int, count: int, *, seed: int = SEED) -> Iterator[Booleans]:
    """``count`` times for each unit whether two systems change places, in blocks: a row each time.

    Args:
        units: How many units there are, one at least.
        count: How many times.
        seed: Of the stream, which is not that of the resamples.
    """
    if units * count <= BLOCK:
        yield _all_changes(units, count, seed)
    else:
        yield from _change_blocks(units, count, seed)


@lru_cache(maxsize=4)
def _all_changes(units: int, count: int, seed: int) -> Booleans:
    drawn = np.concatenate(list(_change_blocks(units, count, seed)))
    drawn.flags.writeable = False
    return drawn


def _change_blocks(units: int, count: int, seed: int) -> Iterator[Booleans]:
    draws = generator(seed, CHANGES)
    rows = max(1, BLOCK // units)
    for start in range(0, count, rows):
        yield draws.integers(0, 2, size=(min(rows, count - start), units)) == 1


def generator(seed: int, stream: int = 0) -> np.random.Generator:
    """The source of randomness of a stream; stream 0 is the seed's own."""
    return np.random.Generator(np.random.PCG64(seed if stream == 0 else [seed, stream]))
