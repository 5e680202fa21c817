"""Good gain and redundancy of a turn, from five integers an iteration.

An iteration counts if search was invoked in it; the counted ones are numbered 1..N. ``G_i`` is the
summed gain of the good documents that iteration i was the first to return, ``R_i`` all its results.

Discount of iteration k: 1 / log2(k + 1). Sums of quotients are taken with ``math.fsum``, so that
the value does not depend on the order of summation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, log2
from typing import Final, NamedTuple

ITERATIONS_CAP: Final = 100

_LOG2: Final[list[float]] = [log2(k + 1) for k in range(1, 513)]


class Counts(NamedTuple):
    """The integers of one counted iteration.

    ``unique``: documents seen for the first time; ``good`` and ``labelled``: those of them that
    are good, or labelled at all; ``gain``: summed over the good ones.
    """

    results: int
    unique: int
    good: int
    labelled: int
    gain: int

    @property
    def duplicates(self) -> int:
        """Results whose document the turn had returned before."""
        return self.results - self.unique

    @property
    def avg_gain(self) -> float:
        """Good gain per result, in [0, 4]; 0.0 for an iteration without results."""
        return self.gain / self.results if self.results else 0.0


class Cumulative(NamedTuple):
    """The values through iteration i; ratios with R@i = 0 are 0.0."""

    r_at: int
    ur_at: int
    gr_at: int
    dup_at: int
    cg: int
    rg: float
    dcg: float
    drg: float
    rag: float
    drag: float
    sre: float
    srr: float


def discounts(count: int) -> list[float]:
    """log2(k + 1) from k = 1 on, ``count`` of them and perhaps more."""
    while len(_LOG2) < count:
        _LOG2.append(log2(len(_LOG2) + 2))
    return _LOG2


def through(iterations: Sequence[Counts]) -> Cumulative:
    """The cumulative values at the last of ``iterations`` (one at least).

    >>> turn = [Counts(2, 2, 2, 2, 5), Counts(3, 2, 1, 2, 4), Counts(3, 1, 1, 1, 2)]
    >>> value = through(turn)
    >>> value.cg, round(value.rg, 4), round(value.dcg, 4), round(value.drag, 4)
    (11, 3.6667, 8.5237, 1.2249)
    >>> value.sre, value.srr
    (0.5, 0.375)
    """
    results, unique, good, _, gain = map(list, zip(*iterations, strict=True))
    r_at, ur_at = sum(results), sum(unique)
    ratios = ratios_through(results, unique, good, gain)
    return Cumulative(r_at, ur_at, sum(good), r_at - ur_at, sum(gain), *ratios)


def ratios_through(
    results: list[int], unique: list[int], good: list[int], gain: list[int]
) -> tuple[float, float, float, float, float, float, float]:
    """``Cumulative`` from ``rg`` on, of iterations as parallel lists, which cost less than objects.

    >>> ratios_through([2, 3, 3], [2, 2, 1], [2, 1, 1], [5, 4, 2])[-2:]
    (0.5, 0.375)
    """
    n = len(results)
    logs = discounts(n)
    r_at = ur_at = gr_at = cg = 0
    averages: list[float] = []
    discounted: list[float] = []
    discounted_averages: list[float] = []
    for k in range(n):
        r, gain_k, log = results[k], gain[k], logs[k]
        r_at += r
        ur_at += unique[k]
        gr_at += good[k]
        cg += gain_k
        average = gain_k / r if r else 0.0
        averages.append(average)
        discounted.append(gain_k / log)
        discounted_averages.append(average / log)
    dcg = fsum(discounted)
    return (
        cg / n,
        dcg,
        dcg / n,
        fsum(averages) / n,
        fsum(discounted_averages) / n,
        gr_at / r_at if r_at else 0.0,
        (r_at - ur_at) / r_at if r_at else 0.0,
    )


def last_good_iteration(good: Sequence[int]) -> int | None:
    """Iterations until all good documents that the turn retrieved were there; None without one.

    >>> last_good_iteration([2, 0, 1, 0])
    3
    """
    for i in range(len(good), 0, -1):
        if good[i - 1]:
            return min(i, ITERATIONS_CAP)
    return None


def sre_upper(results: int, good: int, unlabelled: int) -> float:
    """Where SRE can still rise to: every unlabelled document could prove good."""
    return (good + unlabelled) / results if results else 0.0


def settled(unique: int, labelled: int, percent: int = 90) -> bool:
    """Whether enough of an iteration's unique documents are labelled to judge it."""
    return labelled * 100 >= unique * percent
