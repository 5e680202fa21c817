"""The metrics as functions of ids."""

from __future__ import annotations

from typing import Any

import pytest

from stream_metrics.core.metrics.ranking.names import MetricNameError
from stream_metrics.lab.metrics.id_functions import (
    average_precision_at_k,
    evaluate_retrieval_batch,
    hit_at_k,
    mean_average_precision,
    mean_reciprocal_rank,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
)


def test_one_id_is_a_list_of_one() -> None:
    """A string counts as a list with this id."""
    assert hit_at_k("doc1", ["doc2", "doc1"]) == hit_at_k(["doc1"], ["doc2", "doc1"]) == 1.0
    assert ndcg_at_k("doc1", "doc1") == recall_at_k("doc1", "doc1") == 1.0


@pytest.mark.parametrize("function", [hit_at_k, precision_at_k, recall_at_k, ndcg_at_k,
                                      average_precision_at_k])  # fmt: skip
def test_empty_lists_give_zero(function: object) -> None:
    """Nothing relevant or nothing predicted gives 0.0."""
    assert callable(function)
    assert function([], ["a"]) == function(["a"], []) == function([], []) == 0.0


def test_grades_belong_to_relevant_ids() -> None:
    """An id that is not relevant scores nothing, whatever its grade; one without a grade has 0."""
    grades = {"a": 2.0, "z": 4.0}

    assert ndcg_at_k(["a", "b"], ["z", "a", "b"], 3, grades) == pytest.approx(0.63093, abs=1e-5)


def test_a_mean_is_over_queries() -> None:
    """Reciprocal ranks are 1, 1/3 and 0; average precisions are 1 and 1/2."""
    found = mean_reciprocal_rank([["a"], ["a"], ["a"]], [["a"], ["x", "y", "a"], ["x"]])

    assert found == pytest.approx(4 / 9)
    assert mean_average_precision(["a", "a"], ["a", ["x", "a"]]) == 0.75
    assert mean_reciprocal_rank([], []) == 0.0
    with pytest.raises(ValueError, match="2 lists of relevant ids and 1 of predicted"):
        mean_reciprocal_rank(["a", "b"], ["a"])


def test_a_batch_is_scored_by_names() -> None:
    """By default there are six metrics; any metric can be named, and the result has the given
    names."""
    queries: list[dict[str, Any]] = [
        {"relevant_docs": ["a", "b"]},
        {"relevant_docs": "c", "relevance_grades": {"c": 2}},
    ]
    found = [[{"id": "a"}, {"id": "x"}, {"id": "b"}], [{"id": "x"}, {"id": "c"}]]

    means = evaluate_retrieval_batch(queries, found)

    assert list(means) == ["hit@1", "hit@3", "hit@5", "ndcg@5", "ndcg@10", "mrr"]
    assert (means["hit@1"], means["hit@3"], means["mrr"]) == (0.5, 1.0, 0.75)
    assert list(evaluate_retrieval_batch(queries, found, ["NDCG_at_5", "AP"])) == [
        "NDCG_at_5",
        "AP",
    ]


def test_a_mean_of_nothing_is_none() -> None:
    """A metric that is undefined for every query has no mean."""
    assert evaluate_retrieval_batch([{"relevant_docs": []}], [[{"id": "a"}]], ["aqwv@5"]) == {
        "aqwv@5": None
    }


def test_a_batch_must_be_complete() -> None:
    """An empty batch, lists of different lengths, and unknown metrics are errors."""
    with pytest.raises(ValueError, match="1 queries and 0 lists"):
        evaluate_retrieval_batch([{"relevant_docs": ["a"]}], [])
    with pytest.raises(ValueError, match="0 queries"):
        evaluate_retrieval_batch([], [])
    with pytest.raises(MetricNameError):
        evaluate_retrieval_batch([{"relevant_docs": ["a"]}], [[]], ["ndgc@5"])
