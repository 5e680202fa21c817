"""Judge and score the searches of recorded conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from stream_metrics.core.metrics.ranking.batch import CELLS
from stream_metrics.core.metrics.ranking.names import MetricNameError, RankedMetric
from stream_metrics.core.metrics.ranking.relevance import Predicate, RecordedSearch, Relevance
from stream_metrics.lab.evaluation.estimates import Intervals
from stream_metrics.lab.evaluation.scoring import (
    Ranking,
    ScoredRankings,
    metrics_of,
    score_rankings,
)

ONTOLOGY = "max_ont_sim"


class UndefinedMetric(ValueError):
    """A metric is not defined for a recorded grade."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How searches of recorded conversations are scored and summarised.

    Attributes:
        metrics: The metrics, in the order of a row's scores.
        relevance: How relevance is judged.
        intervals: How to compute the intervals of means. None: no bounds.
        cells: The most ranks held in arrays at a time.
        predicate: The name of the predicate. ``with_predicate`` adds the loaded predicate to
            ``relevance``: a name can be sent to other processes, a loaded predicate may not.
    """

    metrics: tuple[RankedMetric, ...]
    relevance: Relevance
    intervals: Intervals | None
    cells: int = CELLS
    predicate: str | None = None

    @classmethod
    def of(cls, evaluation: Mapping[str, Any], good_gain: float, cells: int = CELLS) -> Self:
        """From the settings ``evaluation``, in the form that a report shows them.

        Raises:
            MetricNameError: A name is not a metric, or the metric cannot be computed from events.
            KeyError: A setting is missing.
        """
        metrics = metrics_of(evaluation["metrics"])
        for metric in metrics:
            if metric.name == ONTOLOGY:
                raise MetricNameError(
                    f"{metric} cannot be computed from events: they lack the expected terms; "
                    "export run and qrels, and use evaluate"
                )
        intervals = Intervals.of(evaluation)
        relevance = Relevance(
            rel=evaluation["rel"],
            good_gain=good_gain,
            graded=evaluation["graded_relevance"],
            overlap=evaluation["token_overlap"],
        )
        return cls(tuple(metrics), relevance, intervals, cells, evaluation.get("predicate"))

    def with_predicate(self, predicate: Predicate) -> Self:
        """A copy that judges by the loaded predicate."""
        relevance = replace(
            self.relevance, predicate=predicate, predicate_name=f"predicate {self.predicate!r}"
        )
        return replace(self, relevance=relevance)


def score_searches(searches: Sequence[RecordedSearch], scoring: Scoring) -> ScoredRankings:
    """Judge and score searches. A score does not depend on the other searches.

    Raises:
        UnfitMetric: A metric is not defined for a grade.
        PredicateError: The predicate cannot judge a search.

    >>> from stream_metrics.core.metrics.ranking.relevance import Query, Retrieved
    >>> query = Query([Retrieved(0, "x"), Retrieved(1, "a")], {"a": 1})
    >>> scoring = Scoring((*metrics_of(["mrr"]),), Relevance(), None)
    >>> found = score_searches([RecordedSearch("c", 1, "s", "bot", {}, query)], scoring)
    >>> next(found.rows())["scores"], found.without_relevant()
    ({'mrr': 0.5, 'judged@10': 0.5}, [[]])
    """
    rankings = [
        Ranking(
            one.conversation_id,
            scoring.relevance.judge(one.query),
            one.turn,
            one.search_id,
            one.agent,
            one.dimensions,
            len(one.query.results),
        )
        for one in searches
    ]
    try:
        return score_rankings(rankings, scoring.metrics, unit="conversation", cells=scoring.cells)
    except ValueError as error:
        raise UndefinedMetric(str(error)) from error
