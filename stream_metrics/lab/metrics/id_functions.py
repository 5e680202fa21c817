"""The metrics as plain functions of document ids, for notebooks and tests.

An argument of relevant or predicted ids is a list, the best first, or a single id. An id that is
predicted twice counts at its first rank. The result is 0.0 if nothing is relevant or predicted. Ids
may be of any type, but of one only. Everything else is a ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any, Final, Literal

from stream_metrics.core.metrics.ranking.batch import Judged
from stream_metrics.core.metrics.ranking.checks import (
    check_ids,
    check_ranking,
    checked_grades,
)
from stream_metrics.core.metrics.ranking.registry import parse
from stream_metrics.core.metrics.ranking.relevance import judge_ids
from stream_metrics.core.metrics.ranking.scoring import score

Ids = str | Sequence[str]

BATCH_METRICS: Final = ("hit@1", "hit@3", "hit@5", "ndcg@5", "ndcg@10", "mrr")


def _ranking(ids: Ids) -> list[str]:
    if isinstance(ids, str):
        return [ids]
    check_ranking(ids)
    return list(ids)


def _judged(relevant: Ids, predicted: Ids, grades: Mapping[str, float] | None = None) -> Judged:
    ids = [relevant] if isinstance(relevant, str) else relevant
    if isinstance(ids, Mapping) or not isinstance(ids, Iterable):
        raise ValueError(
            f"relevant ids are a list, not a {type(ids).__name__}; give grades as relevance_grades"
        )
    if grades is None:
        return judge_ids(_ranking(predicted), dict.fromkeys(ids, 1.0))
    ids, grades = list(ids), checked_grades(grades)
    check_ids(ids, grades)
    return judge_ids(_ranking(predicted), {one: grades.get(one, 0.0) for one in ids})


def _one(name: str, row: Judged) -> float:
    return float(score([row], [parse(name)]).values[0, 0])


def hit_at_k(relevant_ids: Ids, predicted_ids: Ids, k: int = 10) -> float:
    """1.0 if a relevant id is among the first k, else 0.0.

    >>> hit_at_k(["doc1", "doc3"], ["doc2", "doc1"], 1), hit_at_k("doc1", ["doc2", "doc1"], 2)
    (0.0, 1.0)
    """
    return _one(f"hit@{k}", _judged(relevant_ids, predicted_ids))


def precision_at_k(
    relevant_ids: Ids,
    predicted_ids: Ids,
    k: int = 10,
    *,
    denominator: Literal["k", "retrieved"] = "k",
) -> float:
    """Share of relevant ids among the first k, divided by k or by the number predicted up to k.

    >>> precision_at_k("a", ["a", "b"], 5), precision_at_k("a", "a", 5, denominator="retrieved")
    (0.2, 1.0)
    """
    return _one(f"precision(denominator={denominator})@{k}", _judged(relevant_ids, predicted_ids))


def recall_at_k(relevant_ids: Ids, predicted_ids: Ids, k: int = 10) -> float:
    """Share of the relevant ids that are among the first k.

    >>> recall_at_k(["a", "b", "c", "d"], ["a", "x", "b"], 3)
    0.5
    """
    return _one(f"recall@{k}", _judged(relevant_ids, predicted_ids))


def average_precision_at_k(
    relevant_ids: Ids,
    predicted_ids: Ids,
    k: int = 10,
    *,
    normalise: Literal["relevant", "min_k"] = "relevant",
) -> float:
    """Sum of precision at each relevant rank up to k ÷ all relevant (or the smaller of that and k).

    >>> round(average_precision_at_k(["a", "b", "c"], ["a", "x", "b", "y", "c"], 5), 3)
    0.756
    """
    return _one(f"map(normalise={normalise})@{k}", _judged(relevant_ids, predicted_ids))


def ndcg_at_k(
    relevant_ids: Ids,
    predicted_ids: Ids,
    k: int = 10,
    relevance_grades: Mapping[str, float] | None = None,
) -> float:
    """NDCG over the first k, with linear gains.

    Args:
        relevant_ids: The whole ground truth.
        predicted_ids: The ranking.
        k: The cut-off.
        relevance_grades: Grade by id. A relevant id without a grade has 0, and ids that are not
            relevant have no gain. None: every relevant id has 1.

    >>> ndcg_at_k(["a", "b"], ["a", "b", "c"], 2)
    1.0
    >>> grades = {"a": 3, "b": 2, "c": 1}
    >>> round(ndcg_at_k(["a", "b", "c"], ["a", "x", "b", "c"], 4, grades), 5)
    0.93045
    """
    return _one(f"ndcg@{k}", _judged(relevant_ids, predicted_ids, relevance_grades))


def mean_reciprocal_rank(
    relevant_ids_list: Sequence[Ids], predicted_ids_list: Sequence[Ids]
) -> float:
    """The mean over queries of 1 ÷ rank of the first relevant id; 0.0 without queries.

    Raises:
        ValueError: The lists differ in length.

    >>> round(mean_reciprocal_rank(["a", "a", "a"], ["a", ["x", "y", "a"], ["x"]]), 3)
    0.444
    """
    return _mean("mrr", relevant_ids_list, predicted_ids_list)


def mean_average_precision(
    relevant_ids_list: Sequence[Ids], predicted_ids_list: Sequence[Ids], k: int = 10
) -> float:
    """The mean over queries of ``average_precision_at_k``; 0.0 without queries.

    Raises:
        ValueError: The lists differ in length.
    """
    return _mean(f"map@{k}", relevant_ids_list, predicted_ids_list)


def _mean(name: str, relevant: Sequence[Ids], predicted: Sequence[Ids]) -> float:
    if len(relevant) != len(predicted):
        raise ValueError(
            f"{len(relevant)} lists of relevant ids and {len(predicted)} of predicted ids: "
            "give one of each per query"
        )
    for given in (relevant, predicted):
        if isinstance(given, str | Mapping):
            raise ValueError(f"{given!r} is no list; give one list of ids per query, in order")
    rows = [_judged(*pair) for pair in zip(relevant, predicted, strict=True)]
    return fsum(score(rows, [parse(name)]).values[:, 0]) / len(rows) if rows else 0.0


def evaluate_retrieval_batch(
    queries: Sequence[Mapping[str, Any]],
    retrieval_results: Sequence[Sequence[Mapping[str, Any]]],
    metrics: Sequence[str] | None = None,
) -> dict[str, float | None]:
    """The mean of each metric over queries.

    Args:
        queries: Each has ``relevant_docs`` (ids) and optionally ``relevance_grades`` (grade by id).
        retrieval_results: The results of each query, the best first, each with an ``id``.
        metrics: Names of metrics; default ``BATCH_METRICS``.

    Returns:
        The means under the names as given; None if a metric is undefined for every query.

    Raises:
        ValueError: There is no query, the lists differ in length, a name is not a metric, or a
            query or a result has no ids, or others than the functions above take.

    >>> evaluate_retrieval_batch([{"relevant_docs": ["a"]}], [[{"id": "b"}, {"id": "a"}]], ["mrr"])
    {'mrr': 0.5}
    """
    if not queries or len(queries) != len(retrieval_results):
        raise ValueError(
            f"{len(queries)} queries and {len(retrieval_results)} lists of results: "
            "give at least one query, and one list of results per query"
        )
    rows = []
    for at, (query, found) in enumerate(zip(queries, retrieval_results, strict=True)):
        try:
            ids = [one["id"] for one in found]
            rows.append(_judged(query["relevant_docs"], ids, query.get("relevance_grades")))
        except KeyError as error:
            raise ValueError(f"query {at} (from 0): it or a result has no {error}") from error
        except (AttributeError, TypeError) as error:
            raise ValueError(
                f"query {at} (from 0): the query and each of its results are dictionaries ({error})"
            ) from error
        except ValueError as error:
            raise ValueError(f"query {at} (from 0): {error}") from error
    names = (
        [metrics]
        if isinstance(metrics, str)
        else list(BATCH_METRICS if metrics is None else metrics)
    )
    values = score(rows, [parse(name) for name in names]).values
    means: dict[str, float | None] = {}
    for column, name in enumerate(names):
        defined = [value for value in values[:, column].tolist() if value == value]
        means[name] = fsum(defined) / len(defined) if defined else None
    return means
