"""Data of known means, in the shapes that retrieval metrics have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Generator = np.random.Generator


@dataclass(frozen=True, slots=True)
class Shape:
    """A figure's distribution over units.

    Attributes:
        name: For the tables.
        mean: The true figure, Σ sums ÷ Σ counts of infinitely many units.
        draw: Sums and counts of n units.
        clustered: Whether units have several values each.
        binary: Whether the values are 0 and 1.
    """

    name: str
    mean: float
    draw: Callable[[Generator, int], tuple[Floats, Floats]]
    clustered: bool = False
    binary: bool = False


RANKS = np.array([1 / rank for rank in range(1, 11)] + [0.0])
RANK_SHARES = np.array([0.42, 0.14, 0.09, 0.06, 0.04, 0.03, 0.02, 0.02, 0.01, 0.01, 0.16])


def _hits(generator: Generator, n: int) -> tuple[Floats, Floats]:
    return (generator.random(n) < 0.9).astype(np.float64), np.ones(n)


def _reciprocal_ranks(generator: Generator, n: int) -> tuple[Floats, Floats]:
    return generator.choice(RANKS, size=n, p=RANK_SHARES), np.ones(n)


def _ndcg(generator: Generator, n: int) -> tuple[Floats, Floats]:
    """A tenth at 0, 15% at 1, the others spread between."""
    kind = generator.random(n)
    between = generator.beta(3.0, 2.0, size=n)
    return np.where(kind < 0.1, 0.0, np.where(kind < 0.25, 1.0, between)), np.ones(n)


def _srr(generator: Generator, n: int) -> tuple[Floats, Floats]:
    """60% without any duplicate."""
    values = np.where(generator.random(n) < 0.6, 0.0, generator.beta(2.0, 5.0, size=n))
    return values, np.ones(n)


def _clustered_hits(generator: Generator, n: int) -> tuple[Floats, Floats]:
    """1 to some 10 searches a conversation, with a hit rate of its own, 0.9 on average."""
    counts = 1 + generator.poisson(3.0, size=n)
    levels = generator.beta(0.9, 0.1, size=n)
    return generator.binomial(counts, levels).astype(np.float64), counts.astype(np.float64)


def _long_when_bad(generator: Generator, n: int) -> tuple[Floats, Floats]:
    """The worse a conversation's searches are, the more it makes of them (1 to 8)."""
    levels = generator.beta(2.0, 1.0, size=n)
    counts = 1 + generator.binomial(7, 1 - levels)
    return generator.binomial(counts, levels).astype(np.float64), counts.astype(np.float64)


def _micro_srr(generator: Generator, n: int) -> tuple[Floats, Floats]:
    """Duplicates of 10 to 80 results; 30% of the conversations have none."""
    results = 10 * (1 + generator.binomial(7, 0.3, size=n))
    levels = np.where(generator.random(n) < 0.3, 0.0, generator.beta(2.0, 5.0, size=n))
    return generator.binomial(results, levels).astype(np.float64), results.astype(np.float64)


SHAPES = (
    Shape("hit, p = 0.9", 0.9, _hits, binary=True),
    Shape("reciprocal rank", float(RANKS @ RANK_SHARES), _reciprocal_ranks),
    Shape("NDCG", 0.15 + 0.75 * 0.6, _ndcg),
    Shape("SRR, 60% zeros", 0.4 * 2 / 7, _srr),
)
CLUSTERED = (
    Shape("hits by conversation", 0.9, _clustered_hits, clustered=True),
    # E[count · level] / E[count] = (2/3 + 7/6) / (1 + 7/3)
    Shape("long when bad", 0.55, _long_when_bad, clustered=True),
    Shape("micro SRR", 0.7 * 2 / 7, _micro_srr, clustered=True),
)
