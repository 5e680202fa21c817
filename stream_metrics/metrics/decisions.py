"""Gate, routing and reranking figures.

A ratio without a denominator is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from operator import truediv
from typing import Final, NamedTuple

from stream_metrics import compiled
from stream_metrics.metrics.exact import exact_sum, rounded
from stream_metrics.metrics.gain import discounts
from stream_metrics.metrics.registry import placed, quotients

_OF_GATES: Final = placed("gate")
_OF_ROUTING: Final = placed("routing")

NO_RELEASE: Final = "none"
"""What stands for the release of a search that names none."""
FACTS: Final = ("agent", "release", "route")
"""The dimensions that searches themselves tell; others are recorded beside them."""


def ratio(numerator: float, denominator: float) -> float | None:
    """The quotient, or None if there is nothing to divide by."""
    return numerator / denominator if denominator else None


class GateCounts(NamedTuple):
    """Gate decisions of a turn (or a report): all of them, and the four cells of labelled ones."""

    search: int = 0
    skip: int = 0
    correct_skip: int = 0
    missed: int = 0
    correct_search: int = 0
    wasted: int = 0

    @property
    def labelled(self) -> int:
        """Decisions with a label."""
        return self.correct_skip + self.missed + self.correct_search + self.wasted

    def row(self) -> dict[str, int | float | None]:
        """The block ``gate`` of a row, in its order.

        >>> GateCounts(2, 2, 1, 1, 1, 1).row()["efficiency"]
        0.25
        """
        return {
            "search": self.search,
            "skip": self.skip,
            "labelled": self.labelled,
            "correct_skip": self.correct_skip,
            "missed": self.missed,
            "correct_search": self.correct_search,
            "wasted": self.wasted,
            **quotients(_OF_GATES, self),
        }


def gate_cell(decision: str, needed: bool) -> str:
    """The cell of a labelled decision."""
    if decision == "skip":
        return "missed" if needed else "correct_skip"
    return "correct_search" if needed else "wasted"


class RoutingCounts(NamedTuple):
    """Searches by route; those with a label, and those of them that took the best route."""

    routes: Mapping[str, int]
    labelled: int
    correct: int

    def row(self) -> dict[str, object]:
        """The block ``routing`` of a row."""
        return {
            "routed": sum(self.routes.values()),
            "routes": dict(sorted(self.routes.items())),
            "labelled": self.labelled,
            "correct": self.correct,
            **quotients(_OF_ROUTING, self),
        }


class Rerank(NamedTuple):
    """NDCG of one search's results in the order shown, and in the order before reranking."""

    shown: float
    baseline: float

    @property
    def improvement(self) -> float | None:
        """Relative gain of the order shown; None if the baseline scores 0."""
        return (self.shown - self.baseline) / self.baseline if self.baseline else None


def rerank(
    documents: list[int], baseline: list[int | None], credited: list[int | None]
) -> tuple[float, float] | None:
    """NDCG of the results of one search in the order shown, and in the one before reranking.

    Each document counts at its first place in either order, places are counted among the documents
    that are left, gains are linear. None unless two results and one label at least take part.

    >>> rerank([0, 1], [2, 1], [4, 2])
    (1.0, 0.8597186998521972)

    Args:
        documents: The document of each result, as a number.
        baseline: The rank of each result before reranking; None for one that does not take part.
        credited: The gain of each document; None for one without a label.
    """
    found = compiled.reranked(documents, baseline, credited)
    return plain_rerank(documents, baseline, credited) if found is None else found


def plain_rerank(
    documents: list[int], baseline: list[int | None], credited: list[int | None]
) -> tuple[float, float] | None:
    """What ``rerank`` does, in Python."""
    ranks = [rank for rank in baseline if rank is not None]
    if len(ranks) < len(baseline):
        ranked = zip(documents, baseline, strict=True)
        documents = [document for document, rank in ranked if rank is not None]
    gains = [credited[document] for document in documents]
    places = range(len(ranks))
    if len(places) < 2 or gains.count(None) == len(gains):
        return None
    gains_shown = _first_places(documents, gains, places)
    ideal = _dcg(sorted(gains_shown, reverse=True))
    if not ideal:
        return 0.0, 0.0
    by_rank = sorted(places, key=ranks.__getitem__)  # stable: ties stay as shown
    return _dcg(gains_shown) / ideal, _dcg(_first_places(documents, gains, by_rank)) / ideal


def _first_places(
    documents: Sequence[int], gains: Sequence[int | None], places: Sequence[int]
) -> list[int]:
    seen: set[int] = set()
    found: list[int] = []
    for at in places:
        document = documents[at]
        if document not in seen:
            seen.add(document)
            found.append(gains[at] or 0)
    return found


def _dcg(gains: list[int]) -> float:
    return fsum(map(truediv, gains, discounts(len(gains))))


def routes_together(routes: Iterable[str]) -> str | None:
    """One name for the routes that the searches of a turn took; None if they took none.

    >>> routes_together(["web", "kb"]), routes_together([])
    ('kb+web', None)
    """
    return "+".join(sorted(routes)) or None


class RerankSums(NamedTuple):
    """Comparisons of searches as sums that merge exactly; those of NDCG are from ``exact``.

    ``improvement`` is summed over the searches where it is defined.
    """

    searches: int = 0
    undefined: int = 0
    shown: int = 0
    baseline: int = 0
    improvement: int = 0

    @classmethod
    def of(cls, values: Sequence[Rerank]) -> RerankSums:
        """The sums over ``values``."""
        defined = [value.improvement for value in values if value.improvement is not None]
        return cls(
            len(values),
            len(values) - len(defined),
            exact_sum(value.shown for value in values),
            exact_sum(value.baseline for value in values),
            exact_sum(defined),
        )

    def plus(self, other: RerankSums) -> RerankSums:
        """The sums over the searches of both."""
        return RerankSums._make(map(sum, zip(self, other, strict=True)))

    def row(self) -> dict[str, int | float | None]:
        """The block ``reranking``: means over the searches that take part.

        ``improvement`` is the ratio of the means, ``mean_improvement`` the mean of those defined.

        >>> RerankSums.of([Rerank(1.0, 0.5), Rerank(0.5, 0.0)]).row()["mean_improvement"]
        1.0
        """
        if not self.searches:
            means: tuple[float | None, ...] = (None,) * 4
        else:
            shown = rounded(self.shown) / self.searches
            baseline = rounded(self.baseline) / self.searches
            defined = self.searches - self.undefined
            mean = rounded(self.improvement) / defined if defined else None
            means = (shown, baseline, ratio(shown - baseline, baseline), mean)
        names = ("ndcg_shown", "ndcg_baseline", "improvement", "mean_improvement")
        return {
            "searches": self.searches,
            "undefined": self.undefined,
            **dict(zip(names, means, strict=True)),
        }
