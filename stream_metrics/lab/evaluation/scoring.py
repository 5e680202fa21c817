"""Score rankings into the rows of ``queries.jsonl``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from stream_metrics.core.metrics.ranking.batch import CELLS, Bools, Floats, Ints, Judged, Strategy
from stream_metrics.core.metrics.ranking.checks import NUMBERS, number
from stream_metrics.core.metrics.ranking.names import RankedMetric
from stream_metrics.core.metrics.ranking.registry import companions, parse, parse_all
from stream_metrics.core.metrics.ranking.scoring import score

Unit = Literal["query", "conversation"]
Row = dict[str, Any]

_NO_DIMENSIONS: Final[Mapping[str, str]] = MappingProxyType({})

DEPTH: Final = 10
"""The cut-off of ``judged@k`` for metrics that have no cut-off themselves."""


class Ranking(NamedTuple):
    """One search to score.

    Attributes:
        unit: The id of the query or conversation, which is resampled.
        judged: The results and their judgements; None if nothing judges the search.
        turn, search_id, agent: Its position in a conversation; None for a query from a file.
        dimensions: The values by which figures can be split, such as language or difficulty.
        results: The number of results if ``judged`` is None.
    """

    unit: str
    judged: Judged | None
    turn: int | None = None
    search_id: str | None = None
    agent: str | None = None
    dimensions: Mapping[str, str] = _NO_DIMENSIONS
    results: int = 0


class Place(NamedTuple):
    """The identity of a ranking, without its results, and the strategy that judged it."""

    unit: str
    turn: int | None
    search_id: str | None
    agent: str | None
    dimensions: Mapping[str, str]
    strategy: Strategy | None


@dataclass(frozen=True, slots=True)
class ScoredRankings:
    """Scored rankings, one row per ranking and one column per metric.

    Attributes:
        unit: What is resampled.
        metrics: The metrics of the columns.
        places: The rankings of the rows.
        values: The scores; NaN where undefined.
        with_relevant: Whether the query has a relevant document by each metric's definition.
        retrieved, judged: The number of results, and of those with a judgement.
        relevant: The number of relevant documents in the ground truth; -1 if it is not fully known.
    """

    unit: Unit
    metrics: tuple[RankedMetric, ...]
    places: tuple[Place, ...]
    values: Floats
    with_relevant: Bools
    retrieved: Ints
    judged: Ints
    relevant: Ints

    def rows(self) -> Iterator[Row]:
        """The rows of ``queries.jsonl``, in the order of the rankings."""
        names = [str(metric) for metric in self.metrics]
        key = f"{self.unit}_id"
        undefined = np.isnan(self.values).any(axis=1)
        columns = (self.values, undefined, self.retrieved, self.judged, self.relevant)
        numbers = zip(*(column.tolist() for column in columns), strict=True)
        for place, (values, some, retrieved, judged, relevant) in zip(
            self.places, numbers, strict=True
        ):
            if some:
                values = [None if value != value else value for value in values]
            yield {
                key: place.unit,
                "turn": place.turn,
                "search_id": place.search_id,
                "agent": place.agent,
                "dimensions": {name: place.dimensions[name] for name in sorted(place.dimensions)},
                "strategy": place.strategy,
                "n_retrieved": retrieved,
                "n_judged": judged,
                "n_relevant": None if relevant < 0 else relevant,
                "scores": dict(zip(names, values, strict=True)),
            }

    @property
    def known(self) -> Bools:
        """Which rankings something judges."""
        return np.array([place.strategy is not None for place in self.places], dtype=np.bool_)

    def without_relevant(self) -> list[list[int]]:
        """The indexes of each ranking's metrics for which nothing is relevant.

        They are empty for a ranking that nothing judges.
        """
        found: list[list[int]] = [[] for _ in self.places]
        rows, columns = np.nonzero(self.known[:, None] & ~self.with_relevant)
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            found[row].append(column)
        return found


def metrics_of(names: Iterable[str]) -> list[RankedMetric]:
    """Parse names and suites into metrics, each followed by its companions, and add judged@k.

    Raises:
        MetricNameError: A name is not a metric.

    >>> [str(one) for one in metrics_of(["ndcg@5", "mrr"])]
    ['ndcg@5', 'mrr', 'judged@5', 'judged@10']
    """
    found = [one for metric in parse_all(names) for one in (metric, *companions(metric))]
    depths = sorted({DEPTH if metric.k is None else metric.k for metric in found})
    judged = [parse(f"judged@{k}") for k in depths]
    return list(dict.fromkeys([*(one for one in found if one not in judged), *judged]))


def score_rankings(
    rankings: Sequence[Ranking],
    metrics: Sequence[RankedMetric],
    *,
    unit: Unit = "query",
    cells: int = CELLS,
) -> ScoredRankings:
    """Score rankings. A score does not depend on the other rankings.

    Args:
        rankings: The rankings, in the order of the resulting rows.
        metrics: The metrics to compute.
        unit: What is resampled.
        cells: The most ranks held in arrays at a time.

    Raises:
        ValueError: A metric is not defined for a grade, or a grade is not a number.

    >>> from stream_metrics.core.metrics.ranking.relevance import judge_ids
    >>> found = score_rankings([Ranking("q", judge_ids(["x", "a"], {"a": 1}))], metrics_of(["mrr"]))
    >>> next(found.rows())["scores"]
    {'mrr': 0.5, 'judged@10': 0.5}
    """
    for ranking in rankings:
        if ranking.judged is not None:
            _check_grades(ranking.unit, ranking.judged)
    known = [at for at, ranking in enumerate(rankings) if ranking.judged is not None]
    found = score(
        [ranking.judged for ranking in rankings if ranking.judged is not None],
        metrics,
        cells=cells,
    )
    values = np.full((len(rankings), len(metrics)), np.nan)
    with_relevant = np.zeros((len(rankings), len(metrics)), np.bool_)
    retrieved = np.array([ranking.results for ranking in rankings], dtype=np.int64)
    judged = np.zeros(len(rankings), np.int64)
    relevant = np.full(len(rankings), -1, np.int64)
    values[known], with_relevant[known] = found.values, found.with_relevant
    retrieved[known], judged[known] = found.retrieved, found.judged
    relevant[known] = found.relevant
    places = tuple(
        Place(
            ranking.unit,
            ranking.turn,
            ranking.search_id,
            ranking.agent,
            ranking.dimensions,
            None if ranking.judged is None else ranking.judged.strategy,
        )
        for ranking in rankings
    )
    return ScoredRankings(
        unit, tuple(metrics), places, values, with_relevant, retrieved, judged, relevant
    )


def _check_grades(unit: str, judged: Judged) -> None:
    """Refuse what numpy would take for a number: texts, and None as NaN."""
    every: tuple[Sequence[Any], ...] = (judged.grades, judged.truth or ())
    for grades in every:
        if not set(map(type, grades)) <= NUMBERS:
            for grade in grades:
                if grade is None or grade == grade:  # NaN: nobody judged the result
                    number(grade, f"{unit!r}: a grade")
