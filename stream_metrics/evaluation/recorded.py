"""Searches of recorded conversations, judged and scored: how, and as rows with their marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from stream_metrics.evaluation.estimates import Intervals
from stream_metrics.evaluation.scoring import Ranking, Row, metrics_of, score_rankings
from stream_metrics.metrics.ranking.batch import CELLS
from stream_metrics.metrics.ranking.names import MetricNameError, RankedMetric
from stream_metrics.metrics.ranking.relevance import Predicate, RecordedSearch, Relevance

ONTOLOGY = "max_ont_sim"


class UnfitMetric(ValueError):
    """A metric is not defined for a grade that was recorded; the message says which."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How searches of recorded conversations are scored, and their scores summed up.

    Attributes:
        metrics: In the order of a row's scores.
        relevance: What is relevant.
        intervals: Of the means; None: no bounds.
        cells: How many ranks are held as arrays at a time.
        predicate: The name of the predicate, which is not among ``relevance`` until ``judged_by``
            puts it there: a name goes to other processes, what it names may not.
    """

    metrics: tuple[RankedMetric, ...]
    relevance: Relevance
    intervals: Intervals | None
    cells: int = CELLS
    predicate: str | None = None

    @classmethod
    def of(cls, evaluation: Mapping[str, Any], good_gain: float, cells: int = CELLS) -> Self:
        """What the settings ``evaluation`` say, as a report shows them.

        Raises:
            MetricNameError: A metric is none, or cannot be told from events.
            KeyError: A setting is not there.
        """
        metrics = metrics_of(evaluation["metrics"])
        for metric in metrics:
            if metric.name == ONTOLOGY:
                raise MetricNameError(
                    f"{metric} cannot be computed of events: they lack the expected terms; "
                    "export run and qrels, and use evaluate"
                )
        intervals = None
        if evaluation["confidence_intervals"]:
            names = ("interval", "confidence", "resamples", "seed")
            intervals = Intervals(*(evaluation[name] for name in names))
        relevance = Relevance(
            rel=evaluation["rel"],
            good_gain=good_gain,
            graded=evaluation["graded_relevance"],
            overlap=evaluation["token_overlap"],
        )
        return cls(tuple(metrics), relevance, intervals, cells, evaluation.get("predicate"))

    def judged_by(self, predicate: Predicate) -> Self:
        """The same with what ``predicate`` names."""
        relevance = replace(
            self.relevance, predicate=predicate, predicate_name=f"predicate {self.predicate!r}"
        )
        return replace(self, relevance=relevance)


class ScoredSearch(NamedTuple):
    """A row of ``queries.jsonl``, and what it does not tell.

    ``without``: the places of the metrics, in the order of the row's scores, to which nothing is
    relevant; for a search that nothing judges none.
    """

    row: Row
    without: list[int]


def score_searches(searches: Sequence[RecordedSearch], scoring: Scoring) -> Iterator[ScoredSearch]:
    """Judge and score searches; a score does not depend on what else is among them.

    Raises:
        UnfitMetric: A metric is not defined for a grade.
        PredicateError: The predicate cannot judge a search.

    >>> from stream_metrics.metrics.ranking.relevance import Query, Retrieved
    >>> query = Query([Retrieved(0, "x"), Retrieved(1, "a")], {"a": 1})
    >>> scoring = Scoring((*metrics_of(["mrr"]),), Relevance(), None)
    >>> found = next(score_searches([RecordedSearch("c", 1, "s", "bot", {}, query)], scoring))
    >>> found.row["scores"], found.without
    ({'mrr': 0.5, 'judged@10': 0.5}, [])
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
        scored = score_rankings(rankings, scoring.metrics, unit="conversation", cells=scoring.cells)
    except ValueError as error:
        raise UnfitMetric(str(error)) from error
    for row, relevant in zip(scored.rows(), scored.with_relevant.tolist(), strict=True):
        known = row["strategy"] is not None
        yield ScoredSearch(row, [at for at, one in enumerate(relevant) if known and not one])
