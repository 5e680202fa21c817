"""Relevance of results, and the strategies that decide it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stream_metrics.core.metrics.ranking.batch import UNJUDGED, Judged
from stream_metrics.core.metrics.ranking.registry import parse
from stream_metrics.core.metrics.ranking.relevance import (
    Query,
    Relevance,
    Retrieved,
    judge_ids,
    order_by_score,
    repeats,
)
from stream_metrics.core.metrics.ranking.scoring import score


class Prefix:
    """Results whose id begins with a letter are relevant; the total is given."""

    def __init__(self, letter: str, total: int | None) -> None:
        self.letter, self.count = letter, total

    def total(self, query: Query) -> int | None:
        """The given total."""
        return self.count

    def relevant(self, query: Query, result: Retrieved) -> bool:
        """Whether the id begins with the letter."""
        return (result.doc_id or "").startswith(self.letter)


def results(*ids: str) -> list[Retrieved]:
    """Results whose document is their id."""
    return [Retrieved(one, one) for one in ids]


def judged(query: Query, relevance: Relevance | None = None) -> Judged:
    """The ranking as judged; fails if it is not."""
    row = (relevance or Relevance()).judge(query)
    assert row is not None
    return row


def scored(row: Judged, *names: str) -> list[float | None]:
    """Scores of one ranking; None where undefined."""
    found = score([row], [parse(name) for name in names]).values[0].tolist()
    return [None if value != value else value for value in found]


FULL = Query(
    [Retrieved("d", "a", "the cat sat"), Retrieved("e", "b", "dogs bark")],
    relevant={"b": 1},
    labels={"d": 3, "e": 0, "f": 2},
    references=["A cat sat there"],
)


def test_the_first_available_strategy_judges() -> None:
    """The order is qrels, the user's predicate, labels, overlap with the answer."""
    own = Relevance(predicate=Prefix("a", 1))
    without_qrels = FULL._replace(relevant=None)
    without_labels = without_qrels._replace(labels=None)

    assert judged(FULL, own).strategy == "qrels"
    assert judged(without_qrels, own).strategy == "custom"
    assert judged(without_qrels).strategy == "judged"
    assert judged(without_qrels, Relevance(predicate=Prefix("a", None))).strategy == "judged"
    assert judged(without_labels).strategy == "token_overlap"
    assert judged(without_qrels._replace(labels={})).strategy == "token_overlap"
    assert Relevance().judge(without_labels._replace(references=[])) is None
    assert Relevance().judge(without_labels._replace(results=results("a", "b"))) is None


def test_empty_qrels_say_that_nothing_is_relevant() -> None:
    """Labels do not count then."""
    row = judged(FULL._replace(relevant={}))

    assert row.strategy == "qrels"
    assert scored(row, "hit@5", "ndcg@5", "judged@5") == [0.0, 0.0, 0.0]


def test_qrels_go_by_doc_id() -> None:
    """A result without a ``doc_id`` is unjudged; every document of the qrels is ground truth."""
    row = judged(Query([Retrieved(1), Retrieved(2, "b")], {"b": 1, "c": 1}))

    assert row.grades[0] != row.grades[0]
    assert scored(row, "recall@5", "mrr", "judged@5") == [0.5, 0.5, 0.5]


def test_labels_go_by_document() -> None:
    """The ground truth is every labelled document of the turn, good from the good gain on."""
    row = judged(FULL._replace(relevant=None))

    assert scored(row, "recall@5", "precision@1", "hit(rel=4)@5") == [0.5, 1.0, 0.0]
    assert scored(judged(FULL._replace(relevant=None), Relevance(good_gain=1)), "recall@5") == [0.5]
    assert scored(judged(FULL._replace(relevant=None), Relevance(good_gain=3)), "recall@5") == [1.0]


def test_a_predicate_gives_the_total() -> None:
    """Two of four relevant documents were found."""
    row = judged(Query(results("a1", "b1", "a2")), Relevance(predicate=Prefix("a", 4)))

    assert scored(row, "recall@5", "mrr", "judged@3") == [0.5, 1.0, 1.0]


def test_a_total_below_the_relevant_results_is_an_error() -> None:
    """Otherwise scores could exceed 1."""
    relevance = Relevance(predicate=Prefix("a", 1))

    with pytest.raises(ValueError, match=r"found 2 relevant documents.*but its total is 1"):
        relevance.judge(Query(results("a1", "a2")))
    assert relevance.judge(Query(results("a1", "a1"))) is not None


def test_overlap_finds_relevant_texts() -> None:
    """Token F1 with the best reference, from the threshold on; an empty text is not relevant."""
    query = Query(
        [Retrieved(1, text="the cat sat"), Retrieved(2, text="cat videos and so on and on"),
         Retrieved(3, text="!"), Retrieved(4)],
        references=["A cat sat there", "..."],
    )  # fmt: skip

    assert judged(query).grades == [1.0, 0.0, 0.0, 0.0]
    assert judged(query, Relevance(overlap=0.2)).grades == [1.0, 1.0, 0.0, 0.0]


def test_overlap_does_not_know_missed_documents() -> None:
    """The ground truth is the relevant results in the top k; metrics that need all documents are
    undefined."""
    row = judged(Query([Retrieved(1, text="x"), Retrieved(2, text="cat")], references=["cat"]))
    names = (
        "recall@5",
        "map",
        "map@5",
        "q_measure",
        "p_miss@5",
        "aqwv@5",
        "p_fa(fa=collection(9))@5",
    )

    assert scored(row, *names) == [None] * 7
    assert scored(row, "hit@5", "precision@2", "mrr", "p_fa@2") == [1.0, 0.5, 0.5, 0.5]
    assert scored(row, "ndcg@1", "ndcg@2", "ndcg", "alpha_ndcg@2") == [
        0.0,
        pytest.approx(0.63093, abs=1e-5),
        pytest.approx(0.63093, abs=1e-5),
        pytest.approx(0.63093, abs=1e-5),
    ]


def test_gains_follow_the_strategy() -> None:
    """They are linear for grades, binary otherwise, and always binary if grades do not count."""
    graded = Query(results("a", "b"), {"a": 1, "b": 3})
    linear, binary = "ndcg(gains=linear)", "ndcg(gains=binary)"
    flat = judged(graded, Relevance(graded=False))

    assert scored(judged(graded), "ndcg") == scored(judged(graded), linear)
    assert scored(flat, "ndcg") == scored(flat, binary) == [1.0]
    assert scored(flat, linear) == scored(judged(graded), linear)
    custom = judged(Query(results("a", "b")), Relevance(predicate=Prefix("b", 1)))
    assert scored(custom, "ndcg") == scored(custom, linear)


def test_a_metrics_threshold_is_for_grades_only() -> None:
    """``rel=2`` applies to grades; results that a predicate finds relevant stay relevant."""
    custom = judged(Query(results("a")), Relevance(predicate=Prefix("a", 1)))

    assert scored(custom, "precision(rel=2)@1") == [1.0]
    assert scored(judged(Query(results("a"), {"a": 1})), "precision(rel=2)@1") == [0.0]


def test_thresholds_are_above_zero() -> None:
    """With 0 every unjudged result would be relevant."""
    with pytest.raises(ValueError, match="above 0"):
        Relevance(rel=0)


REPEATS: list[tuple[Sequence[Retrieved], list[int] | None]] = [
    ([], None),
    (results("a", "b"), None),
    (results("a", "b", "a", "a"), [0, 0, 1, 2]),
    ([Retrieved(1, "a"), Retrieved(1, "b")], [0, 1]),
    ([Retrieved(1, "a"), Retrieved(2, "a")], [0, 1]),
    ([Retrieved(1), Retrieved(2)], None),
]


@pytest.mark.parametrize(("ranking", "expected"), REPEATS)
def test_repeats_share_a_document_or_an_id(
    ranking: Sequence[Retrieved], expected: list[int] | None
) -> None:
    """Either the unique document or the ``doc_id`` is repeated."""
    assert repeats(ranking) == expected


def test_rankings_of_ids_are_judged_alike() -> None:
    """The fast path for ids gives the result of the strategy."""
    truth = {"a": 2, "c": 1, "d": -1}
    ids = ["x", "a", "d", "a"]
    short, long = judge_ids(ids, truth), judged(Query(results(*ids), truth))
    names = ("ndcg", "map", "alpha_ndcg", "rbp_residual", "judged@4", "redundancy@4")

    assert scored(short, *names) == scored(long, *names)
    assert short.earlier == [0, 0, 0, 1]
    assert [grade == grade for grade in short.grades] == [False, True, True, True]
    assert UNJUDGED != UNJUDGED


def test_a_score_must_be_a_number() -> None:
    """NaN has no place in an order."""
    with pytest.raises(ValueError, match="score of document 'b' is not a number"):
        order_by_score({"a": 1.0, "b": float("nan")})
