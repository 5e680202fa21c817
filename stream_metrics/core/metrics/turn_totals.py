"""Good gain and redundancy of a turn, from five integers per iteration.

An iteration counts if it has a search; the counted iterations are numbered 1..N. ``G_i`` is the
total gain of the good documents that iteration i was the first to return, ``R_i`` the number of its
results.

Discount of iteration k: 1 / log2(k + 1).
"""

from __future__ import annotations

from math import log2
from typing import Final

ITERATIONS_CAP: Final = 100

_LOG2: Final[list[float]] = [log2(k + 1) for k in range(1, 513)]


def discounts(count: int) -> list[float]:
    """log2(k + 1) for k = 1, 2, ...; at least ``count`` values."""
    while len(_LOG2) < count:
        _LOG2.append(log2(len(_LOG2) + 2))
    return _LOG2


class TurnTotals:
    """Running totals of a turn over the counted iterations added so far.

    The metrics of a turn (``registry``) are computed from them. ``n`` is the number of iterations;
    ``results``, ``unique``, ``good``, ``labelled`` and ``gain`` are sums over them; ``averages``
    has the gain per result of each. ``by_model`` counts the labelled documents whose label is a
    model's. Lists that end in ``discounted`` discount later iterations.
    ``last_good`` is the last iteration with a good document, 0 if there is none.

    ``ground_truth`` says whether the relevant documents of the turn are known; ``qrels`` is then
    the number of iterations until all of them were retrieved, None if that is undefined.

    Of the ``searches``, ``queried`` have a query, ``repeated`` repeat an earlier one, and ``empty``
    have no result; ``queries_known`` is False where state was built without digests of queries.
    ``without_new`` iterations found no new document, the last ``trailing`` of them in a row.

    >>> turn = TurnTotals()
    >>> for counts in [(2, 2, 2, 2, 5), (3, 2, 1, 2, 4), (3, 1, 1, 1, 2)]:
    ...     turn.add(*counts)
    >>> turn.n, turn.results, turn.unique, turn.good, turn.gain, turn.last_good
    (3, 8, 5, 4, 11, 3)
    """

    __slots__ = (
        "averages", "averages_discounted", "by_model", "empty", "gain", "gains_discounted", "good",
        "ground_truth", "labelled", "last_good", "n", "qrels", "queried", "queries_known",
        "repeated", "results", "searches", "trailing", "unique", "without_new",
    )  # fmt: skip

    def __init__(
        self, *, ground_truth: bool = False, qrels: int | None = None, queries_known: bool = True
    ) -> None:
        self.ground_truth = ground_truth
        self.qrels = qrels
        self.queries_known = queries_known
        self.searches = self.queried = self.repeated = self.empty = 0
        self.without_new = self.trailing = 0
        self.n = self.results = self.unique = self.good = self.labelled = self.gain = 0
        self.last_good = self.by_model = 0
        self.averages: list[float] = []
        self.gains_discounted: list[float] = []
        self.averages_discounted: list[float] = []

    def add(self, results: int, unique: int, good: int, labelled: int, gain: int) -> None:
        """Add the integers of the next iteration.

        Args:
            results: The results that the iteration returned.
            unique: The documents that it was the first to return.
            good: The good documents among these.
            labelled: The labelled documents among these.
            gain: The total gain of the good documents.
        """
        n = self.n = self.n + 1
        self.results += results
        self.unique += unique
        self.good += good
        self.labelled += labelled
        self.gain += gain
        if good:
            self.last_good = n
        if unique:
            self.trailing = 0
        else:
            self.without_new += 1
            self.trailing += 1
        log = discounts(n)[n - 1]
        average = gain / results if results else 0.0
        self.averages.append(average)
        self.gains_discounted.append(gain / log)
        self.averages_discounted.append(average / log)

    def add_searches(self, searches: int, queried: int, repeated: int, empty: int) -> None:
        """Add the searches of an iteration; see the attributes."""
        self.searches += searches
        self.queried += queried
        self.repeated += repeated
        self.empty += empty

    @property
    def duplicates(self) -> int:
        """Results whose document the turn had already returned."""
        return self.results - self.unique

    @property
    def unlabelled(self) -> int:
        """Unique documents without a label."""
        return self.unique - self.labelled

    @property
    def basis(self) -> str:
        """What defines "all good documents": ``qrels`` or ``retrieved``."""
        return "qrels" if self.ground_truth else "retrieved"

    @property
    def until_all_good(self) -> int | None:
        """Iterations until all good documents were retrieved; None if undefined."""
        if self.ground_truth:
            return self.qrels
        return min(self.last_good, ITERATIONS_CAP) if self.last_good else None


def settled(unique: int, labelled: int, percent: int = 90) -> bool:
    """Whether enough of an iteration's unique documents are labelled to judge it."""
    return labelled * 100 >= unique * percent
