"""Bootstrap resamples: one stream of indices, shared by all figures with the same number of units.

The stream comes from a seeded PCG64 generator. It depends only on the seed and the number of units:
not on which figures are computed, in what order, or by how many processes. Blocks bound the memory
and do not change the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_metrics.lab.choices import SEED

BLOCK: Final = 2_000_000
"""Indices held at a time, unless one resample has more."""

SWAP_STREAM: Final = 2
"""The stream that swaps are drawn from; 0 and 1 are those of two samples."""

CELLS: Final = 1 << 15
"""Counts held at a time, unless one resample has more; they fit the processor's cache."""

Indices = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]


def resamples(units: int, count: int, *, seed: int = SEED, stream: int = 0) -> Iterator[Indices]:
    """``count`` resamples of ``units`` units in blocks, one row per resample.

    Args:
        units: The number of units, at least 1.
        count: The number of resamples.
        seed: The seed of the stream.
        stream: Which of the seed's independent streams; a second sample needs another one.
    """
    if units * count <= BLOCK:
        yield _whole(units, count, seed, stream)
    else:
        yield from _blocks(units, count, seed, stream)


def draw_counts(units: int, count: int, *, seed: int = SEED, stream: int = 0) -> Iterator[Floats]:
    """How often each unit is in each resample, in smaller blocks, one row per resample.

    Multiplying by these counts sums a resample faster than looking up each value.

    >>> [times.sum(axis=1).tolist() for times in draw_counts(3, 2)]
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
    """All of a short stream, which every metric of a report reuses."""
    drawn = np.concatenate(list(_blocks(units, count, seed, stream)))
    drawn.flags.writeable = False
    return drawn


def _blocks(units: int, count: int, seed: int, stream: int) -> Iterator[Indices]:
    draws = generator(seed, stream)
    rows = max(1, BLOCK // units)
    for start in range(0, count, rows):
        yield draws.integers(0, units, size=(min(rows, count - start), units))


def swaps(units: int, count: int, *, seed: int = SEED) -> Iterator[Booleans]:
    """For ``count`` permutations whether each unit's two systems are swapped, in blocks of rows.

    Args:
        units: The number of units, at least 1.
        count: The number of permutations.
        seed: The seed of the stream, which differs from that of the resamples.
    """
    if units * count <= BLOCK:
        yield _all_swaps(units, count, seed)
    else:
        yield from _swap_blocks(units, count, seed)


@lru_cache(maxsize=4)
def _all_swaps(units: int, count: int, seed: int) -> Booleans:
    drawn = np.concatenate(list(_swap_blocks(units, count, seed)))
    drawn.flags.writeable = False
    return drawn


def _swap_blocks(units: int, count: int, seed: int) -> Iterator[Booleans]:
    draws = generator(seed, SWAP_STREAM)
    rows = max(1, BLOCK // units)
    for start in range(0, count, rows):
        yield draws.integers(0, 2, size=(min(rows, count - start), units)) == 1


def generator(seed: int, stream: int = 0) -> np.random.Generator:
    """The random generator of a stream; stream 0 uses the seed itself."""
    return np.random.Generator(np.random.PCG64(seed if stream == 0 else [seed, stream]))
