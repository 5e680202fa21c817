"""Figures of gate decisions, routing and reranking.

A ratio whose denominator is 0 is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from operator import truediv
from typing import Final, NamedTuple

from stream_metrics.core import compiled
from stream_metrics.core.metrics.registry import metrics_at, quotients
from stream_metrics.core.metrics.scaled_sums import scaled_sum, unscaled
from stream_metrics.core.metrics.turn_totals import discounts

_OF_GATES: Final = metrics_at("gate")
_OF_ROUTING: Final = metrics_at("routing")

NO_RELEASE: Final = "none"
"""The release of searches that do not name one."""
FACTS: Final = ("agent", "release", "route")
"""The dimensions that are fields of searches; others are recorded separately."""


def ratio(numerator: float, denominator: float) -> float | None:
    """The quotient; None if the denominator is 0."""
    return numerator / denominator if denominator else None


class GateCounts(NamedTuple):
    """Gate decisions of a turn or report: all by decision, the labelled ones by outcome."""

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
        """The block ``gate`` of a row.

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
    """The field of ``GateCounts`` in which a labelled decision counts."""
    if decision == "skip":
        return "missed" if needed else "correct_skip"
    return "correct_search" if needed else "wasted"


class RoutingCounts(NamedTuple):
    """Searches by route, searches with a label, and labelled searches that took the best route."""

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
        """The relative change by reranking; None if the baseline scores 0."""
        return (self.shown - self.baseline) / self.baseline if self.baseline else None


def rerank(
    documents: list[int], baseline: list[int | None], credited: list[int | None]
) -> tuple[float, float] | None:
    """NDCG of one search's results in the order shown and in the order before reranking.

    In either order, each document counts once, at its first rank after repeats are removed. Gains
    are linear. None unless at least two results and one label take part.

    >>> rerank([0, 1], [2, 1], [4, 2])
    (1.0, 0.8597186998521972)

    Args:
        documents: The number of each result's document.
        baseline: Each result's rank before reranking; None for results that do not take part.
        credited: The gain of each document; None without a label.
    """
    found = compiled.reranked(documents, baseline, credited)
    return plain_rerank(documents, baseline, credited) if found is None else found


def plain_rerank(
    documents: list[int], baseline: list[int | None], credited: list[int | None]
) -> tuple[float, float] | None:
    """``rerank`` in Python."""
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
    """Join the routes that the searches of a turn took; None if there are none.

    >>> routes_together(["web", "kb"]), routes_together([])
    ('kb+web', None)
    """
    return "+".join(sorted(routes)) or None


class RerankSums(NamedTuple):
    """Sums of comparisons that merge exactly; those of NDCG are from ``scaled_sum``.

    ``improvement`` is summed over the searches for which it is defined.
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
            scaled_sum(value.shown for value in values),
            scaled_sum(value.baseline for value in values),
            scaled_sum(defined),
        )

    def plus(self, other: RerankSums) -> RerankSums:
        """The sums over the searches of both."""
        return RerankSums._make(map(sum, zip(self, other, strict=True)))

    def row(self) -> dict[str, int | float | None]:
        """The block ``reranking``: means over the compared searches.

        ``improvement`` is computed from the means, ``mean_improvement`` is the mean of the
        searches' own improvements where defined.

        >>> RerankSums.of([Rerank(1.0, 0.5), Rerank(0.5, 0.0)]).row()["mean_improvement"]
        1.0
        """
        if not self.searches:
            means: tuple[float | None, ...] = (None,) * 4
        else:
            shown = unscaled(self.shown) / self.searches
            baseline = unscaled(self.baseline) / self.searches
            defined = self.searches - self.undefined
            mean = unscaled(self.improvement) / defined if defined else None
            means = (shown, baseline, ratio(shown - baseline, baseline), mean)
        names = ("ndcg_shown", "ndcg_baseline", "improvement", "mean_improvement")
        return {
            "searches": self.searches,
            "undefined": self.undefined,
            **dict(zip(names, means, strict=True)),
        }
