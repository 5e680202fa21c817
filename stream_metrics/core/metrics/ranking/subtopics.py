"""α-nDCG for documents that are judged by subtopic (Clarke et al., SIGIR 2008)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2


@dataclass(frozen=True, slots=True)
class Subtopics:
    """The subtopics that the results of a ranking and the judged documents of its query cover.

    ``ranked`` is by rank, with empty sets for results that cover nothing. ``pool`` is in the order
    in which equally good documents are taken into the ideal ranking.
    """

    ranked: tuple[frozenset[str], ...]
    pool: tuple[frozenset[str], ...]

    def only(self, kept: Sequence[bool]) -> Subtopics:
        """A copy with only the kept ranks."""
        left = tuple(one for one, keep in zip(self.ranked, kept, strict=False) if keep)
        return replace(self, ranked=left)

    def alpha_ndcg(self, alpha: float, k: int | None = None) -> float:
        """The discounted gain of the ranking ÷ that of the greedily ordered pool; 0 without a pool.

        A subtopic has the gain (1 − α) ** (number of ranks above that cover it); ranks are
        discounted by log2(rank + 1). The greedy order is not always the best one, so the value may
        exceed 1.

        >>> a, b = frozenset("x"), frozenset("y")
        >>> Subtopics((a, a, b), (a, a, b)).alpha_ndcg(0.5)
        0.9651954696014428
        """
        depth = len(self.pool) if k is None else k
        best = _worth(greedy(self.pool, alpha, depth), alpha)
        shown = self.ranked if k is None else self.ranked[:k]
        return _worth(shown, alpha) / best if best else 0.0


def _worth(ranking: Sequence[frozenset[str]], alpha: float) -> float:
    covered: dict[str, int] = {}
    sum_of = 0.0
    for rank, subtopics in enumerate(ranking, 1):
        worth = 0.0
        for subtopic in sorted(subtopics):
            above = covered.get(subtopic, 0)
            covered[subtopic] = above + 1
            worth += (1.0 - alpha) ** above
        sum_of += worth / log2(rank + 1)
    return sum_of


def greedy(pool: Sequence[frozenset[str]], alpha: float, depth: int) -> list[frozenset[str]]:
    """Take the document with the highest gain at each rank; the first in the pool among equals."""
    left = dict(enumerate(pool))
    covered: dict[str, int] = {}
    chosen: list[frozenset[str]] = []
    while left and len(chosen) < depth:
        at = max(left, key=lambda one: (_gain(left[one], covered, alpha), -one))
        for subtopic in left[at]:
            covered[subtopic] = covered.get(subtopic, 0) + 1
        chosen.append(left.pop(at))
    return chosen


def _gain(subtopics: frozenset[str], covered: Mapping[str, int], alpha: float) -> float:
    return sum((1.0 - alpha) ** covered.get(one, 0) for one in sorted(subtopics))
