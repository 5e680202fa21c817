"""Ranked metrics against a slow implementation of their definitions, and worked examples."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isnan, log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.metrics.ranking.batch import Judged, batches, rankings
from stream_metrics.core.metrics.ranking.registry import DEFINITIONS, SUITES, parse, parse_all
from stream_metrics.core.metrics.ranking.relevance import judge_ids
from stream_metrics.core.metrics.ranking.scoring import score
from tests.oracle import ranking as slow

IDS = tuple("abcdefghijkl")
Case = tuple[list[str], dict[str, float]]

# A query: some ranking, with repeats, over documents of which some are judged.
CASES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(IDS), max_size=14),
        st.dictionaries(st.sampled_from(IDS), st.sampled_from([-1, 0, 1, 2, 3, 4]), max_size=12),
    ),
    min_size=1,
    max_size=6,
)


def values(name: str, cases: Sequence[Case], **how: Any) -> list[float | None]:
    """Our scores of some queries; None where undefined."""
    rows = [judge_ids(ranking, truth, **how) for ranking, truth in cases]
    found = score(rows, [parse(name)]).values[:, 0].tolist()
    return [None if isnan(value) else value for value in found]


def one(name: str, ranking: Sequence[str], truth: Any, **how: Any) -> float | None:
    """Our score of one query; the truth is a map of grades or a list of relevant ids."""
    grades = truth if isinstance(truth, dict) else dict.fromkeys(truth, 1.0)
    return values(name, [(list(ranking), grades)], **how)[0]


SLOW: dict[str, Callable[[list[str], dict[str, float]], float | None]] = {
    "hit@3": lambda r, t: slow.hit(r, t, 3),
    "hit(rel=3)@5": lambda r, t: slow.hit(r, t, 5, 3),
    "precision@5": lambda r, t: slow.precision(r, t, 5),
    "precision(rel=2)@20": lambda r, t: slow.precision(r, t, 20, 2),
    "precision(denominator=retrieved)@5": lambda r, t: slow.precision_of_retrieved(r, t, 5),
    "recall@4": lambda r, t: slow.recall(r, t, 4),
    "recall(rel=2)@20": lambda r, t: slow.recall(r, t, 20, 2),
    "mrr": lambda r, t: slow.reciprocal_rank(r, t, 1000),
    "mrr(rel=4)@3": lambda r, t: slow.reciprocal_rank(r, t, 3, 4),
    "map": lambda r, t: slow.average_precision(r, t, 1000),
    "map@5": lambda r, t: slow.average_precision(r, t, 5),
    "map(normalise=min_k)@3": lambda r, t: slow.average_precision(r, t, 3, min_k=True),
    "map(normalise=min_k,rel=2)@30": lambda r, t: slow.average_precision(r, t, 30, 2, min_k=True),
    "ndcg": lambda r, t: slow.ndcg(r, t, 1000),
    "ndcg@3": lambda r, t: slow.ndcg(r, t, 3),
    "ndcg(gains=binary)@5": lambda r, t: slow.ndcg(r, t, 5, "binary"),
    "ndcg(gains=binary,rel=3)@5": lambda r, t: slow.ndcg(r, t, 5, "binary", 3),
    "ndcg(gains=exponential)@20": lambda r, t: slow.ndcg(r, t, 20, "exponential"),
    "aqwv@5": lambda r, t: slow.aqwv(r, t, 5),
    "aqwv(beta=2.5)@20": lambda r, t: slow.aqwv(r, t, 20, 2.5),
    "aqwv(fa=collection(1000))@5": lambda r, t: slow.aqwv(r, t, 5, collection=1000),
    "err@5": lambda r, t: slow.err(r, t, 5),
    "err(max_grade=5)@20": lambda r, t: slow.err(r, t, 20, 5),
    "rbp": lambda r, t: slow.rbp(r, t),
    "rbp(p=0.5,rel=2)@3": lambda r, t: slow.rbp(r, t, 3, 0.5, 2),
    "rbp(p=0.95,gains=linear)@20": lambda r, t: slow.rbp(r, t, 20, 0.95, max_grade=4),
    "rbp_residual": lambda r, t: slow.rbp_residual(r, t),
    "rbp_residual(p=0.5)@3": lambda r, t: slow.rbp_residual(r, t, 3, 0.5),
    "q_measure": lambda r, t: slow.q_measure(r, t),
    "q_measure(beta=10)": lambda r, t: slow.q_measure(r, t, 10),
    "q_measure(beta=0)": lambda r, t: slow.average_precision(r, t, 1000),
    "alpha_ndcg@5": lambda r, t: slow.alpha_ndcg(r, t, 5),
    "alpha_ndcg(alpha=0.9)@20": lambda r, t: slow.alpha_ndcg(r, t, 20, 0.9),
    "alpha_ndcg(alpha=1,rel=2)@20": lambda r, t: slow.alpha_ndcg(r, t, 20, 1, 2),
    "ndcg(judged_only=true)@3": lambda r, t: slow.ndcg(slow.condensed(r, t), t, 3),
    "map(judged_only=true)": lambda r, t: slow.average_precision(slow.condensed(r, t), t, 1000),
    "rbp_residual(judged_only=true)": lambda r, t: slow.rbp_residual(slow.condensed(r, t), t),
    "alpha_ndcg(judged_only=true)@4": lambda r, t: slow.alpha_ndcg(slow.condensed(r, t), t, 4),
}


@lru_cache
def random_cases(count: int) -> list[Case]:
    """Seeded queries, with repeats, unjudged results and negative grades."""
    draw = random.Random(5)
    cases = []
    for _ in range(count):
        ranking = draw.choices(IDS, k=draw.randint(0, 14))
        judged = draw.sample(IDS, draw.randint(0, 12))
        cases.append(
            (ranking, {one: draw.choice([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]) for one in judged})
        )
    return cases


@pytest.mark.parametrize("name", SLOW)
def test_scores_follow_their_definitions(name: str) -> None:
    """Any ranking, with repeats, unjudged results and negative grades, scores as defined."""
    cases = random_cases(3_000)
    for ours, case in zip(values(name, cases), cases, strict=True):
        theirs = SLOW[name](*case)
        assert ours == (None if theirs is None else pytest.approx(theirs, abs=1e-12))


def test_every_formula_is_compared() -> None:
    """Each metric of the registry is in the table above or has tests of its own below."""
    own = {"p_miss", "p_fa", "novelty", "redundancy", "max_ont_sim", "judged"}

    assert {d.name for d in DEFINITIONS} == {parse(name).name for name in SLOW} | own


@given(cases=CASES)
def test_a_score_does_not_depend_on_its_batch(cases: list[Case]) -> None:
    """Alone, together or in pieces, each ranking scores the same to the last bit."""
    rows = [judge_ids(ranking, truth) for ranking, truth in cases]
    metrics = parse_all(["default", "ontology", *SLOW])

    together = score(rows, metrics).values
    pieces = score(rows, metrics, cells=15).values
    alone = np.concatenate([score([row], metrics).values for row in rows])

    assert together.tobytes() == pieces.tobytes() == alone.tobytes()


@given(cases=CASES)
def test_scores_stay_in_their_range(cases: list[Case]) -> None:
    """No score leaves the range that the registry gives."""
    rows = [judge_ids(ranking, truth) for ranking, truth in cases]
    for name in SLOW:
        metric = parse(name)
        low, high = metric.definition.metric.low, metric.definition.metric.high
        for value in score(rows, [metric]).values[:, 0].tolist():
            assert isnan(value) or value >= low - 1e-12
            assert isnan(value) or high is None or value <= high + 1e-12


# -- worked figures ---------------------------------------------------------------------------


def graded(*grades: float) -> Case:
    """A ranking of these grades, and a truth that is no more than they."""
    ids = IDS[: len(grades)]
    return list(ids), dict(zip(ids, grades, strict=True))


FIGURES = [
    ("hit@3", ["doc2", "doc1", "doc4"], ["doc1", "doc3", "doc5"], 1.0),
    ("hit@1", ["doc1", "doc2", "doc3", "doc4"], ["doc1", "doc2"], 1.0),
    ("hit@2", ["doc1", "doc2", "doc3", "doc4"], ["doc1", "doc2"], 1.0),
    ("ndcg@2", ["doc1", "doc2", "doc3", "doc4"], ["doc1", "doc2"], 1.0),
    ("mrr", ["doc1", "doc2", "doc3", "doc4"], ["doc1", "doc2"], 1.0),
    ("hit@10", ["doc3", "doc4", "doc5", "doc6"], ["doc1", "doc2"], 0.0),
    ("ndcg@10", ["doc3", "doc4", "doc5", "doc6"], ["doc1", "doc2"], 0.0),
    ("mrr", ["doc3", "doc4", "doc5", "doc6"], ["doc1", "doc2"], 0.0),
    ("hit@2", ["doc4", "doc1", "doc5", "doc2"], ["doc1", "doc2", "doc3"], 1.0),
    ("hit@1", ["doc4", "doc1", "doc5", "doc2"], ["doc1", "doc2", "doc3"], 0.0),
    ("mrr", ["doc4", "doc1", "doc5", "doc2"], ["doc1", "doc2", "doc3"], 0.5),
    # Often printed as 0.693, which leaves a relevant document out of the ideal.
    ("ndcg@4", ["doc4", "doc1", "doc5", "doc2"], ["doc1", "doc2", "doc3"], 0.49819),
    ("map@5", ["a", "x", "b", "y", "c"], ["a", "b", "c"], 0.75556),
    ("recall@4", ["x", "y"], ["a", "b", "c"], 0.0),
    ("recall@4", ["x", "a"], ["a", "b", "c"], 0.33333),
    ("recall@4", ["b", "a"], ["a", "b", "c"], 0.66667),
    ("recall@4", ["b", "a", "x", "c"], ["a", "b", "c"], 1.0),
    ("hit@4", ["x", "y"], ["a", "b", "c"], 0.0),
    ("hit@4", ["x", "a"], ["a", "b", "c"], 1.0),
    ("hit@4", ["b", "a"], ["a", "b", "c"], 1.0),
    ("hit@4", ["b", "a", "x", "c"], ["a", "b", "c"], 1.0),
]


@pytest.mark.parametrize(("name", "ranking", "truth", "expected"), FIGURES)
def test_worked_figures(name: str, ranking: list[str], truth: list[str], expected: float) -> None:
    """Small rankings score what can be worked out on paper."""
    assert one(name, ranking, truth) == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize(("grades", "expected"), [((3, 0, 2, 1), 0.93045), ((3, 2, 0, 1), 0.98544)])
def test_graded_ndcg_by_hand(grades: tuple[float, ...], expected: float) -> None:
    """Grades 3, 2, 1, 0 in two orders: 4.43068 and 4.69254 of an ideal 4.76186."""
    assert values("ndcg@4", [graded(*grades)]) == [pytest.approx(expected, abs=5e-6)]


def test_reciprocal_ranks_by_hand() -> None:
    """First relevant at 1, at 3, and nowhere: mean 0.444."""
    ranks = [one("mrr", ranking, ["a"]) for ranking in (["a"], ["x", "y", "a"], ["x"])]

    assert ranks == [1.0, pytest.approx(1 / 3), 0.0]
    assert sum(rank or 0.0 for rank in ranks) / 3 == pytest.approx(0.444, abs=5e-4)


def test_the_ideal_has_the_whole_ground_truth() -> None:
    """Three relevant documents and k = 5: the ideal DCG is 2.13, whatever was retrieved."""
    found = one("ndcg(gains=binary)@5", ["a"], ["a", "b", "c"])

    assert found is not None
    assert 1 / found == pytest.approx(2.13, abs=1e-3)


def test_a_short_list_is_not_perfect() -> None:
    """One of ten relevant documents retrieved, alone: 0.22 and not 1."""
    ideal = sum(1 / log2(rank + 1) for rank in range(1, 11))

    assert one("ndcg@10", ["a"], IDS[:10]) == pytest.approx(1 / ideal)


def test_q_measure_by_hand() -> None:
    """Grades 0, 3, 1 in that order: (2 · (1 + 3)/(2 + 4) … )/2 = 0.76190."""
    assert values("q_measure", [graded(0, 3, 1)]) == [pytest.approx(0.76190, abs=5e-6)]


def test_err_by_hand() -> None:
    """Grades 4, 0, 2 of 4: 15/16, then 3/16 of the rest at rank 3."""
    expected = 15 / 16 + (1 / 16) * (3 / 16) / 3

    assert values("err@3", [graded(4, 0, 2)]) == [pytest.approx(expected)]


def test_aqwv_by_hand() -> None:
    """Half is missed, two of four are false: 1 − 0.5 − 40 · 0.5."""
    ranking, truth = ["a", "x", "b", "y"], ["a", "b", "c", "d"]

    assert one("aqwv@4", ranking, truth) == pytest.approx(-19.5)
    assert one("p_miss@4", ranking, truth) == 0.5
    assert one("p_fa@4", ranking, truth) == 0.5
    assert one("aqwv(fa=collection(84))@4", ranking, truth) == pytest.approx(0.5 - 40 * 2 / 80)


def test_precision_has_two_denominators() -> None:
    """Two results, one relevant, k = 5: a fifth of k, half of what came."""
    assert one("precision@5", ["a", "x"], ["a"]) == 0.2
    assert one("precision(denominator=retrieved)@5", ["a", "x"], ["a"]) == 0.5


def test_average_precision_has_two_denominators() -> None:
    """Two of four relevant in the top 2: a half of all, everything that fits."""
    assert one("map@2", ["a", "b"], ["a", "b", "c", "d"]) == 0.5
    assert one("map(normalise=min_k)@2", ["a", "b"], ["a", "b", "c", "d"]) == 1.0


def test_rbp_and_its_residual_fill_the_unit() -> None:
    """Every judged rank relevant: score and residual make 1."""
    found = one("rbp(p=0.5)", ["a", "?", "b"], ["a", "b"])
    rest = one("rbp_residual(p=0.5)", ["a", "?", "b"], ["a", "b"])

    assert (found, rest) == (0.5 + 0.125, 0.25 + 0.125)


def test_repeats_keep_their_rank_and_score_nothing() -> None:
    """A document that comes twice pushes the next one down, and counts once."""
    assert one("recall@2", ["a", "a", "b"], ["a", "b"]) == 0.5
    assert one("precision@3", ["a", "a", "b"], ["a", "b"]) == pytest.approx(2 / 3)
    assert one("redundancy@3", ["a", "a", "b"], ["a", "b"]) == pytest.approx(1 / 3)
    assert one("map", ["a", "a", "b"], ["a", "b"]) == pytest.approx((1 + 2 / 3) / 2)


def test_novelty_counts_what_earlier_searches_did_not_return() -> None:
    """Of four results in the top k one was returned before."""
    row = Judged([1.0, 0.0, 0.0, 1.0, 0.0], [1.0], before=[True, False, False, False, True])

    assert score([row], [parse("novelty@4")]).values.tolist() == [[0.75]]


def test_judged_says_how_much_is_known() -> None:
    """Two of the first three results have a judgement."""
    assert one("judged@3", ["a", "?", "b", "?"], {"a": 0, "b": 1}) == pytest.approx(2 / 3)


# -- nothing relevant, nothing retrieved ------------------------------------------------------

ZERO = ["hit@5", "precision@5", "precision(denominator=retrieved)@5", "recall@5", "mrr", "map",
        "map(normalise=min_k)@5", "ndcg@5", "ndcg(gains=binary)", "err@5", "rbp", "q_measure",
        "alpha_ndcg@5"]  # fmt: skip


@pytest.mark.parametrize("name", ZERO)
@pytest.mark.parametrize(("ranking", "truth"), [([], ["a"]), (["a"], []), ([], [])])
def test_empty_rankings_score_zero(name: str, ranking: list[str], truth: list[str]) -> None:
    """Without relevant or retrieved documents a score is 0.0."""
    assert one(name, ranking, truth) == 0.0


def test_aqwv_without_anything_relevant_is_undefined() -> None:
    """A share of nothing is missed: no value. Nothing retrieved is no false alarm."""
    assert one("aqwv@5", ["a"], []) is None
    assert one("p_miss@5", ["a"], []) is None
    assert one("aqwv@5", [], ["a"]) == 0.0
    assert one("p_fa@5", [], ["a"]) == 0.0


@pytest.mark.parametrize("name", ["novelty@5", "redundancy@5", "judged@5"])
def test_shares_of_no_results_are_undefined(name: str) -> None:
    """A share of the results of an empty list has no value."""
    assert one(name, [], ["a"]) is None


def test_queries_without_relevant_documents_are_known() -> None:
    """Whether a query has something relevant depends on the metric's threshold and gains."""
    names = ["hit@5", "hit(rel=2)@5", "ndcg@5", "ndcg(gains=binary,rel=2)@5", "err@5", "judged@5"]
    scores = score([judge_ids(["a"], {"a": 1})], parse_all(names))

    assert scores.with_relevant.tolist() == [[True, False, True, False, True, True]]
    assert not score([judge_ids(["a"], {"a": 0})], parse_all(names[:5])).with_relevant.any()


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["err@5", "rbp(gains=linear)"])
def test_a_grade_above_the_largest_is_an_error(name: str) -> None:
    """A grade that the formula is not made for is refused, with what to write instead."""
    with pytest.raises(ValueError, match=r"grade of 5 is above max_grade=4.*max_grade=5"):
        one(name, ["a"], {"b": 5})


def test_a_collection_that_is_too_small_is_an_error() -> None:
    """More non-relevant results than the collection has documents cannot be."""
    with pytest.raises(ValueError, match="collection of 3 documents is too small"):
        one("p_fa(fa=collection(3))@5", ["x", "y", "z"], ["a"])


# -- batches ----------------------------------------------------------------------------------


@given(CASES, st.integers(1, 60))
def test_batches_are_bounded_and_complete(cases: list[Case], cells: int) -> None:
    """All rows come once, in order, and a batch of several rows has no more cells than asked."""
    rows = [judge_ids(ranking, truth) for ranking, truth in cases]
    lengths = []
    for batch in batches(rows, cells):
        lengths += batch.lengths.tolist()
        width = max(batch.grades.shape[1], batch.truth.shape[1], 1)
        assert len(batch.lengths) == 1 or width * len(batch.lengths) <= cells

    assert lengths == [len(ranking) for ranking, _ in cases]


def test_an_empty_batch_gives_empty_arrays() -> None:
    """Every metric accepts it."""
    assert rankings([]).grades.shape == (0, 0)
    assert score([], parse_all(["default"])).values.shape == (0, 22)


@pytest.mark.parametrize("suite", SUITES)
def test_suites_consist_of_metrics(suite: str) -> None:
    """Each suite's names are metrics, written as they print."""
    assert [str(metric) for metric in parse_all([suite])] == list(SUITES[suite])
