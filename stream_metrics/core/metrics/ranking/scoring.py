"""Score many judged rankings by many metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from stream_metrics.core.metrics.ranking.batch import (
    CELLS,
    Bools,
    Floats,
    Ints,
    Judged,
    Rankings,
    batches,
)
from stream_metrics.core.metrics.ranking.names import GradeLimit, RankedMetric
from stream_metrics.core.metrics.ranking.scores import has_relevant
from stream_metrics.core.metrics.registry import NEVER


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores, one row per ranking and one column per metric.

    Attributes:
        metrics: The metrics of the columns.
        values: The scores; NaN where undefined.
        with_relevant: Whether the query has something relevant by the metric's definition: a grade
            at its threshold, or any above 0 for graded gains. Always True for a metric that ignores
            relevance.
        retrieved, judged: The number of results of each ranking, and of those with a judgement.
        relevant: The number of relevant documents in each ground truth, by the ranking's own
            threshold; -1 if it is unknown.
    """

    metrics: tuple[RankedMetric, ...]
    values: Floats
    with_relevant: Bools
    retrieved: Ints
    judged: Ints
    relevant: Ints


def score(
    rows: Sequence[Judged],
    metrics: Sequence[RankedMetric],
    *,
    cells: int = CELLS,
    checked: bool = False,
) -> Scores:
    """Score each ranking by each metric.

    Args:
        rows: The rankings. A score does not depend on the other rankings.
        metrics: The metrics to compute.
        cells: The most ranks held in arrays at a time.
        checked: The grades are known to fit the metrics, as those of events fit live metrics.

    Raises:
        ValueError: As for ``score_batches``.

    >>> from stream_metrics.core.metrics.ranking.registry import parse
    >>> from stream_metrics.core.metrics.ranking.relevance import judge_ids
    >>> ranking = judge_ids(["x", "b"], {"a": 1, "b": 2})
    >>> score([ranking], [parse("mrr"), parse("recall@1"), parse("recall@2")]).values.tolist()
    [[0.5, 0.0, 0.5]]
    """
    return score_batches(batches(rows, cells), len(rows), metrics, checked=checked)


def score_batches(
    parts: Iterable[Rankings],
    count: int,
    metrics: Sequence[RankedMetric],
    *,
    checked: bool = False,
) -> Scores:
    """Score the rankings of several batches, ``count`` in all, by each metric.

    Raises:
        ValueError: A grade is not a finite number, a metric is not defined for a grade, or a score
            is beyond the range of doubles.
    """
    values = np.empty((count, len(metrics)))
    with_relevant = np.empty((count, len(metrics)), np.bool_)
    retrieved, judged, relevant = (np.empty(count, np.int64) for _ in range(3))
    start = 0
    for batch in parts:
        part = slice(start, start + len(batch.lengths))
        retrieved[part] = batch.lengths
        judged[part] = batch.judged.sum(axis=1)
        relevant[part] = np.where(batch.truth_known, batch.relevant_documents(None), -1)
        if not checked:
            _check_grades(batch, metrics)
        for column, metric in enumerate(metrics):
            values[part, column] = metric.scores(batch) if checked else _scores(batch, metric)
            with_relevant[part, column] = has_relevant(batch, metric)
        start = part.stop
    if not checked:
        _check_undefined(values, metrics)
    return Scores(tuple(metrics), values, with_relevant, retrieved, judged, relevant)


def _scores(batch: Rankings, metric: RankedMetric) -> Floats:
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            return metric.scores(batch)
    except FloatingPointError as error:
        raise ValueError(f"{metric}: a score is beyond the range of doubles ({error})") from error


def _check_grades(batch: Rankings, metrics: Sequence[RankedMetric]) -> None:
    """Raise ``ValueError`` if a grade is not finite or too large for a metric."""
    # The first grade of a ground truth is its largest, or NaN if one is. Results may have others.
    largest, shown = batch.truth[:, :1].max(initial=0.0), batch.grades.max(initial=0.0)
    largest = float(shown if shown > largest else largest)
    if not isfinite(largest):
        raise ValueError(f"a grade is {largest:g}; grades are finite numbers")
    for metric in metrics:
        limit = metric.definition.largest_grade
        if limit is not None and largest > limit(metric):
            raise ValueError(GradeLimit(limit(metric), metric).refusal(largest))


def _check_undefined(values: Floats, metrics: Sequence[RankedMetric]) -> None:
    """Refuse scores that are not a number for a reason other than that they are undefined."""
    for column, metric in enumerate(metrics):
        if metric.definition.metric.none_means == NEVER and np.isnan(values[:, column]).any():
            raise ValueError(f"{metric}: a score is not a number")
