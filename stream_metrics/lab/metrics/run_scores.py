"""Score whole runs given as dictionaries, such as a TREC run and qrels in memory.

The compiled kernel orders and judges the rankings if it is installed, Python otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import fsum
from typing import Final

import numpy as np

from stream_metrics.core import compiled
from stream_metrics.core.metrics.ranking.batch import UNJUDGED, Columns, Rankings, rankings_of
from stream_metrics.core.metrics.ranking.checks import check_ids, check_rel, checked_grades
from stream_metrics.core.metrics.ranking.registry import parse_all
from stream_metrics.core.metrics.ranking.relevance import order_by_score
from stream_metrics.core.metrics.ranking.scoring import Scores, score_batches

Qrels = Mapping[str, Mapping[str, float]]
"""The grade of each judged document, by query."""
Run = Mapping[str, Mapping[str, float]]
"""The score of each retrieved document, by query."""

CELLS: Final = 100_000
"""Ranks in one batch, padding included; the arrays of one metric fit the processor's cache."""


@dataclass(frozen=True, slots=True)
class RunScores:
    """The scores of a run: one row of ``scores`` for each of ``queries``."""

    queries: tuple[str, ...]
    scores: Scores

    def by_query(self) -> dict[str, dict[str, float | None]]:
        """Each query's scores by metric; None where undefined."""
        names = [str(metric) for metric in self.scores.metrics]
        values = self.scores.values
        if np.isnan(values).any():
            values = np.where(np.isnan(values), np.array(None), values)
        rows = zip(self.queries, values.tolist(), strict=True)
        return {query: dict(zip(names, row, strict=True)) for query, row in rows}

    def means(self) -> dict[str, float | None]:
        """Each metric's mean over the queries for which it is defined; None if there is none."""
        means: dict[str, float | None] = {}
        for metric, column in zip(self.scores.metrics, self.scores.values.T, strict=True):
            defined = column[~np.isnan(column)]
            means[str(metric)] = fsum(defined) / len(defined) if len(defined) else None
        return means


def score_run(
    qrels: Qrels,
    run: Run,
    metrics: Sequence[str],
    *,
    rel: float = 1.0,
    graded: bool = True,
    float32: bool = False,
) -> RunScores:
    """Score each query of the qrels; a query that the run lacks is scored as an empty ranking.

    Args:
        qrels: The judgements. Queries of the run without qrels are ignored.
        run: The retrieved documents, ordered by ``order_by_score``.
        metrics: Names of metrics or suites.
        rel: The lowest relevant grade, for metrics that do not set their own.
        graded: Whether NDCG uses the grades as gains by default.
        float32: Round scores to single precision first, for the same ties as trec_eval.

    Raises:
        MetricNameError: A name is not a metric.
        ValueError: A score or a grade is not a number, a metric is not defined for a grade, or
            some ids are texts and others are not.

    >>> found = score_run({"1": {"a": 2}, "2": {"a": 1}}, {"1": {"b": 0.5, "a": 0.25}}, ["mrr"])
    >>> found.by_query(), found.means()
    ({'1': {'mrr': 0.5}, '2': {'mrr': 0.0}}, {'mrr': 0.25})
    """
    for name, given in (("qrels", qrels), ("run", run)):
        if not isinstance(given, Mapping):
            raise ValueError(f"{name} is {type(given).__name__}; give a dictionary by query id")
    check_rel(rel)
    check_ids(qrels, run, what="query")
    batches = judged_batches(qrels, run, rel=rel, graded=graded, float32=float32)
    return RunScores(tuple(qrels), score_batches(batches, len(qrels), parse_all(metrics)))


def judged_batches(
    qrels: Qrels,
    run: Run,
    *,
    rel: float = 1.0,
    graded: bool = True,
    float32: bool = False,
    cells: int = CELLS,
) -> Iterator[Rankings]:
    """The queries of the qrels in judged batches of bounded size."""
    queries: list[str] = []
    truths: list[Mapping[str, float]] = []
    rankings: list[Mapping[str, float]] = []
    width = 1
    for query, truth in qrels.items():
        ranking = run.get(query, {})
        for given in (truth, ranking):
            if not isinstance(given, Mapping):
                kind = type(given).__name__
                raise ValueError(f"query {query!r} has a {kind}; give a dictionary by document id")
        width = max(width, len(ranking), len(truth))
        if truths and width * (len(truths) + 1) > cells:
            yield rankings_of(judged(truths, rankings, float32, queries), rel=rel, graded=graded)
            queries, truths, rankings, width = [], [], [], max(len(ranking), len(truth), 1)
        queries.append(query)
        truths.append(truth)
        rankings.append(ranking)
    if truths:
        yield rankings_of(judged(truths, rankings, float32, queries), rel=rel, graded=graded)


def judged(
    truths: Sequence[Mapping[str, float]],
    rankings: Sequence[Mapping[str, float]],
    float32: bool,
    queries: Sequence[str] = (),
) -> Columns:
    """Order each query's results and look up their grades; errors name the query.

    The kernel handles plain dictionaries of strings and numbers; Python handles all others.
    """
    made = compiled.judged_rankings(truths, rankings, float32)
    if made is None:
        return plain_judged(truths, rankings, float32, queries)
    grades, lengths, truth, truth_lengths = map(np.frombuffer, made)
    return Columns(grades, lengths.astype(np.int64), truth, truth_lengths.astype(np.int64))


def plain_judged(
    truths: Sequence[Mapping[str, float]],
    rankings: Sequence[Mapping[str, float]],
    float32: bool,
    queries: Sequence[str] = (),
) -> Columns:
    """``judged`` in Python."""
    grades: list[float] = []
    truth: list[float] = []
    for at, (relevant, scores) in enumerate(zip(truths, rankings, strict=True)):
        try:
            relevant = checked_grades(relevant)
            check_ids(scores, relevant)
            ordered = order_by_score(scores, float32=float32)
        except ValueError as error:
            raise ValueError(f"query {queries[at]!r}: {error}" if queries else error) from error
        grades.extend(map(relevant.get, ordered, repeat(UNJUDGED)))
        truth.extend(relevant.values())
    return Columns(
        np.array(grades, dtype=np.float64),
        np.array([len(scores) for scores in rankings], dtype=np.int64),
        np.array(truth, dtype=np.float64),
        np.array([len(relevant) for relevant in truths], dtype=np.int64),
    )
