"""Good gain and redundancy of a turn, from five integers an iteration.

An iteration counts if search was invoked in it; the counted ones are numbered 1..N. ``G_i`` is the
summed gain of the good documents that iteration i was the first to return, ``R_i`` all its results.

Discount of iteration k: 1 / log2(k + 1).
"""

from __future__ import annotations

from math import log2
from typing import Final

ITERATIONS_CAP: Final = 100

_LOG2: Final[list[float]] = [log2(k + 1) for k in range(1, 513)]


def discounts(count: int) -> list[float]:
    """log2(k + 1) from k = 1 on, ``count`` of them and perhaps more."""
    while len(_LOG2) < count:
        _LOG2.append(log2(len(_LOG2) + 2))
    return _LOG2


class Through:
    """What a turn holds from its first counted iteration through the last one that was added.

    The metrics of a turn (``registry``) are computed from it. ``n`` iterations were added;
    ``results``, ``unique``, ``good``, ``labelled`` and ``gain`` are sums over them, ``averages``
    the gain per result of each. What ends in ``discounted`` counts later iterations less.
    ``last_good`` is the last one with a good document, 0 without one.

    ``ground_truth`` says that somebody told which documents are relevant; ``qrels`` is then the
    number of iterations until all of them had been retrieved, None where that is not defined.

    >>> turn = Through()
    >>> for counts in [(2, 2, 2, 2, 5), (3, 2, 1, 2, 4), (3, 1, 1, 1, 2)]:
    ...     turn.add(*counts)
    >>> turn.n, turn.results, turn.unique, turn.good, turn.gain, turn.last_good
    (3, 8, 5, 4, 11, 3)
    """

    __slots__ = (
        "averages", "averages_discounted", "gain", "gains_discounted", "good", "ground_truth",
        "labelled", "last_good", "n", "qrels", "results", "unique",
    )  # fmt: skip

    def __init__(self, *, ground_truth: bool = False, qrels: int | None = None) -> None:
        self.ground_truth = ground_truth
        self.qrels = qrels
        self.n = self.results = self.unique = self.good = self.labelled = self.gain = 0
        self.last_good = 0
        self.averages: list[float] = []
        self.gains_discounted: list[float] = []
        self.averages_discounted: list[float] = []

    def add(self, results: int, unique: int, good: int, labelled: int, gain: int) -> None:
        """Add the integers of the next iteration.

        Args:
            results: All results that it returned.
            unique: Documents that it was the first to return.
            good: Those of them that are good.
            labelled: Those of them that have a label.
            gain: Summed over the good ones.
        """
        n = self.n = self.n + 1
        self.results += results
        self.unique += unique
        self.good += good
        self.labelled += labelled
        self.gain += gain
        if good:
            self.last_good = n
        log = discounts(n)[n - 1]
        average = gain / results if results else 0.0
        self.averages.append(average)
        self.gains_discounted.append(gain / log)
        self.averages_discounted.append(average / log)

    @property
    def duplicates(self) -> int:
        """Results whose document the turn had returned before."""
        return self.results - self.unique

    @property
    def unlabelled(self) -> int:
        """Unique documents without a label."""
        return self.unique - self.labelled

    @property
    def basis(self) -> str:
        """What "all good documents" are counted against: ``qrels`` or ``retrieved``."""
        return "qrels" if self.ground_truth else "retrieved"

    @property
    def until_all_good(self) -> int | None:
        """Iterations until all good documents were retrieved, None where that is not defined."""
        if self.ground_truth:
            return self.qrels
        return min(self.last_good, ITERATIONS_CAP) if self.last_good else None


def settled(unique: int, labelled: int, percent: int = 90) -> bool:
    """Whether enough of an iteration's unique documents are labelled to judge it."""
    return labelled * 100 >= unique * percent
