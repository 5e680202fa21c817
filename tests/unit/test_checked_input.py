"""Ids, grades and scores of the wrong kind are refused with what, where and what to do."""

# Wrong types are what these tests give.
# mypy: disable-error-code="dict-item,list-item,arg-type"

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_metrics.core.metrics.ranking.batch import Judged
from stream_metrics.core.metrics.ranking.names import MetricNameError
from stream_metrics.core.metrics.ranking.registry import parse, parse_all
from stream_metrics.core.metrics.ranking.relevance import (
    Query,
    Relevance,
    Retrieved,
    judge_ids,
    judge_subtopics,
    order_by_score,
)
from stream_metrics.core.metrics.ranking.scoring import score
from stream_metrics.lab.evaluation.collection import Collection, JudgingOptions, join
from stream_metrics.lab.evaluation.compare_runs import Method
from stream_metrics.lab.evaluation.observations import of_scores
from stream_metrics.lab.evaluation.scoring import Ranking, score_rankings
from stream_metrics.lab.metrics.generation import AnsweredTurn, words_of
from stream_metrics.lab.metrics.id_functions import (
    evaluate_retrieval_batch,
    hit_at_k,
    mean_reciprocal_rank,
    ndcg_at_k,
)
from stream_metrics.lab.metrics.run_scores import score_run
from stream_metrics.lab.statistics.by_values import (
    bootstrap_confidence_interval,
    calculate_confidence_interval,
    paired_bootstrap_test,
    statistical_significance_test,
)
from stream_metrics.lab.statistics.units import OutOfRange, Units

NAN, INF = float("nan"), float("inf")

# What is no number, and what an error says of it.
NO_NUMBERS: list[tuple[Any, str]] = [
    ("3", r"is '3' \(str\); give a number"),
    (b"3", r"is b'3' \(bytes\)"),
    (None, "is None; leave out what has none"),
    ([3], r"is \[3\] \(list\)"),
    (3 + 0j, r"is \(3\+0j\) \(complex\)"),
    (np.array([3.0]), r"is array\(\[3\.\]\) \(ndarray\)"),
    (NAN, "is not a number"),
    (np.float32("nan"), "is not a number"),
    (Decimal("nan"), "is not a number"),
]
OUT_OF_RANGE: list[Any] = [INF, -INF, 2**1100, np.float64("inf"), Decimal("inf"), 5e-324]
NUMBERS: list[Any] = [2, 2.0, np.int8(2), np.float32(2), np.float64(2), Fraction(4, 2), Decimal(2)]


# -- grades -----------------------------------------------------------------------------------

WITH_GRADE: dict[str, Callable[[Any], object]] = {
    "judge_ids": lambda grade: judge_ids(["a", "b"], {"a": grade, "b": 1}),
    "judge_subtopics": lambda grade: judge_subtopics(["a"], {"s": {"a": grade}}),
    "join": lambda grade: join(Collection({"q": {"a": grade}}), {"q": ["a"]}),
    "score_run": lambda grade: score_run({"q": {"a": grade}}, {"q": {"a": 1.0}}, ["ndcg@5"]),
    "ndcg_at_k": lambda grade: ndcg_at_k(["a"], ["a"], 5, {"a": grade}),
    "evaluate_retrieval_batch": lambda grade: evaluate_retrieval_batch(
        [{"relevant_docs": ["a"], "relevance_grades": {"a": grade}}], [[{"id": "a"}]]
    ),
}  # fmt: skip


@pytest.mark.parametrize("function", WITH_GRADE)
def test_a_grade_is_a_finite_number(function: str) -> None:
    """Texts, None, NaN and infinities are refused with the document."""
    for grade, message in NO_NUMBERS:
        with pytest.raises(ValueError, match=f"the grade of document 'a' {message}"):
            WITH_GRADE[function](grade)
    for grade in OUT_OF_RANGE:
        with pytest.raises(ValueError, match="the grade of document 'a' is not finite"):
            WITH_GRADE[function](grade)


@pytest.mark.parametrize("grade", ["3", None])
def test_a_judged_ranking_has_numbers(grade: Any) -> None:
    """Numpy would take a text for its number, and None for a result that nobody judged."""
    for judged in (Judged([grade], [1.0]), Judged([1.0], [grade])):
        with pytest.raises(ValueError, match=r"'q': a grade is "):
            score_rankings([Ranking("q", judged)], parse_all(["mrr"]))
    query = Query([Retrieved(1, "a")], {"a": grade})
    with pytest.raises(ValueError, match=r"'c': a grade is "):
        score_rankings([Ranking("c", Relevance().judge(query), 1)], parse_all(["mrr"]))


def test_every_kind_of_number_is_a_grade() -> None:
    """Fractions and numpy's numbers score like those of Python; True is 1, False is 0."""
    expected = score_run({"q": {"a": 2, "b": 1, "c": 0}}, {"q": {"b": 2.0, "a": 1.0}}, ["ndcg@5"])

    for grade in NUMBERS:
        qrels: Any = {"q": {"a": grade, "b": True, "c": np.False_}}
        found = score_run(qrels, {"q": {"b": 2.0, "a": 1.0}}, ["ndcg@5"])
        assert found.by_query() == expected.by_query()


@pytest.mark.parametrize("rel", [0, -1, NAN, INF, None, "1"])
def test_the_lowest_relevant_grade_is_above_zero(rel: Any) -> None:
    """With 0 everything would be relevant, with NaN nothing."""
    for call in (
        lambda: judge_ids(["a"], {"a": 1}, rel=rel),
        lambda: score_run({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["mrr"], rel=rel),
        lambda: JudgingOptions(rel=rel),
    ):
        with pytest.raises(ValueError, match="the lowest relevant grade is a number above 0"):
            call()


# -- scores -----------------------------------------------------------------------------------

WITH_SCORE: dict[str, Callable[[Any], object]] = {
    "order_by_score": lambda score: order_by_score({"b": 9.0, "a": score}),
    "order_by_score of one": lambda score: order_by_score({"a": score}),
    "score_run": lambda score: score_run({"q": {"a": 1}}, {"q": {"b": 9.0, "a": score}}, ["mrr"]),
}


@pytest.mark.parametrize("function", WITH_SCORE)
def test_a_score_is_a_number(function: str) -> None:
    """Texts would be ordered as texts: "10" below "9"."""
    for given, message in NO_NUMBERS:
        with pytest.raises(ValueError, match=f"the score of document 'a' {message}"):
            WITH_SCORE[function](given)


def test_every_kind_of_number_is_a_score() -> None:
    """Infinities are scores, and whole numbers are compared exactly."""
    for given in (*NUMBERS, INF, 2**1100, np.float64("inf"), True):
        assert order_by_score({"a": 0.5, "b": given}) == ["b", "a"]
        assert order_by_score({"a": 0.5, "b": given}, float32=True) == ["b", "a"]
    assert order_by_score({"a": 2**60, "b": 2**60 + 1}) == ["b", "a"]
    assert order_by_score({"a": -(2**1100), "b": -INF}, float32=True) == ["b", "a"]


def test_an_error_of_a_run_names_the_query() -> None:
    """Among many queries the document alone is hard to find."""
    run: Any = {"1": {"a": 1.0}, "2": {"a": None}}
    with pytest.raises(ValueError, match="query '2': the score of document 'a' is None"):
        score_run({"1": {"a": 1}, "2": {"a": 1}}, run, ["mrr"])
    with pytest.raises(ValueError, match="query '2': the grade of document 'a' is None"):
        join(Collection({"1": {"a": 1}, "2": {"a": None}}), {"1": ["a"]})


# -- ids --------------------------------------------------------------------------------------

DIFFERENT = "the document ids .* are of different types and never match; write all as text"


@pytest.mark.parametrize(
    "call",
    [
        lambda: score_run({"q": {1: 1}}, {"q": {"1": 1.0}}, ["mrr"]),
        lambda: score_run({"q": {"1": 1}}, {"q": {1: 1.0}}, ["mrr"]),
        lambda: score_run({"q": {"1": 1, "2": 1}}, {"q": {"3": 1.0, 2: 0.5}}, ["mrr"]),
        lambda: score_run({"q": {b"1": 1}}, {"q": {"1": 1.0}}, ["mrr"]),
        lambda: join(Collection({"q": {"1": 1}}), {"q": [1]}),
        lambda: join(Collection({"q": {"1": 1}}), {"q": [("1", 0.5)]}),
        lambda: judge_ids(["1", 1], {"1": 1}),
        lambda: order_by_score({"1": 0.5, 1: 0.5}),
        lambda: hit_at_k(["1"], [1]),
        lambda: ndcg_at_k(["1"], ["1"], 5, {1: 2.0}),
        lambda: evaluate_retrieval_batch([{"relevant_docs": [1]}], [[{"id": "1"}]]),
        lambda: Relevance().judge(Query([Retrieved(1, "1")], {1: 2})),
    ],
)
def test_ids_of_different_types_are_refused(call: Callable[[], object]) -> None:
    """1 and "1" never match, which would read as not relevant."""
    with pytest.raises(ValueError, match=DIFFERENT):
        call()


def test_ids_of_queries_are_of_one_type() -> None:
    """Otherwise each query would count as missing in the run."""
    qrels: Any = {1: {"a": 1}}
    with pytest.raises(ValueError, match="the query ids 1 and '1' are of different types"):
        score_run(qrels, {"1": {"a": 1.0}}, ["mrr"])
    with pytest.raises(ValueError, match="the query ids 1 and '1' are of different types"):
        join(Collection(qrels), {"1": ["a"]})


def test_an_id_is_not_missing() -> None:
    """None and NaN stand for no id."""
    for call in (
        lambda: hit_at_k(["a"], [None]),
        lambda: judge_ids([NAN], {NAN: 1}),
        lambda: score_run({"q": {None: 1}}, {"q": {None: 1.0}}, ["mrr"]),
    ):
        with pytest.raises(
            ValueError, match=r"a document id is (None|nan); leave the document out"
        ):
            call()


def test_ids_of_one_type_other_than_text_are_accepted() -> None:
    """Whole numbers match, numpy's those of Python; ties are ordered by number."""
    ids: Any = [3, np.int64(7)]
    assert hit_at_k(ids, ids) == 1.0
    run: Any = {1: {2: 0.5, 10: 0.5}}
    assert score_run({1: {np.int64(10): 1}}, run, ["mrr"]).means() == {"mrr": 1.0}
    assert score_run({"q": {np.str_("a"): 1}}, {"q": {"a": 1.0}}, ["mrr"]).means() == {"mrr": 1.0}


# -- shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: join(Collection({"q": {"a": 1}}), {"q": {"a": 0.5}}), "not a dictionary; order"),
        (lambda: join(Collection({"q": {"a": 1}}), {"q": "abc"}), r"not 'abc' \(str\)"),
        (lambda: join(Collection({"q": {"a": 1}}), {"q": {"a", "b"}}), r"\(set\)"),
        (lambda: join(Collection({"q": {"a": 1}}), {"q": None}), "query 'q': a ranking .* None"),
        (lambda: join(Collection({"q": ["a"]}), {"q": ["a"]}), "a dictionary of grades by doc"),
        (lambda: score_run({"q": ["a"]}, {}, ["mrr"]), "query 'q' has a list; give a dictionary"),
        (lambda: score_run({"q": {}}, {"q": [("a", 1)]}, ["mrr"]), "query 'q' has a list"),
        (lambda: score_run([("q", {})], {}, ["mrr"]), "qrels is list; give a dictionary"),
        (lambda: join(Collection({"q": {"a": 1}}), [["a"]]), "the run is a list; give a dict"),
        (lambda: score_run({"q": {}}, {}, [None]), "None is not a metric: write a name"),
        (lambda: hit_at_k(["a"], {"a": 0.5}), "not a dictionary; order its scores"),
        (lambda: hit_at_k(["a"], {"a"}), r"the best first, not \{'a'\} \(set\)"),
        (lambda: hit_at_k({"a": 0}, ["a"]), "give grades as relevance_grades"),
        (lambda: hit_at_k(1, [1]), "relevant ids are a list, not a int"),
        (lambda: mean_reciprocal_rank("ab", "ab"), "give one list of ids per query"),
        (
            lambda: mean_reciprocal_rank({"q": ["a"]}, {"q": ["b"]}),
            "give one list of ids per query",
        ),
        (lambda: ndcg_at_k(["a"], ["a"], 5, ["a"]), "a dictionary of grades by document id"),
        (lambda: evaluate_retrieval_batch([{"relevant_docs": ["a"]}], [["a"]]), "dictionaries"),
        (lambda: evaluate_retrieval_batch(["a"], [[{"id": "a"}]]), "query 0 .* dictionaries"),
        (lambda: calculate_confidence_interval({1: 0.5, 2: 0.5}), "a list of numbers, not a dict"),
        (lambda: calculate_confidence_interval("12"), "a list of numbers, not a str"),
        (lambda: evaluate_retrieval_batch([{}], [[]]), r"query 0 .* has no 'relevant_docs'"),
        (lambda: evaluate_retrieval_batch([{"relevant_docs": []}], [[{}]]), "has no 'id'"),
        (lambda: words_of(AnsweredTurn("c", answer="a", references="ab")), "give a list of texts"),
        (lambda: words_of(AnsweredTurn("c", answer="a", texts="ab")), "give a list of texts"),
    ],
)
def test_another_shape_is_refused(call: Callable[[], object], message: str) -> None:
    """A dictionary or a set has no order, and the signs of a text are no ids."""
    with pytest.raises(ValueError, match=message):
        call()


def test_a_ranking_may_be_any_ordered_collection() -> None:
    """Tuples, arrays and iterators have an order."""
    for ranking in (("x", "a"), np.array(["x", "a"]), iter(["x", "a"])):
        found = join(Collection({"q": {"a": 1}}), {"q": ranking}).rankings[0].judged
        assert found is not None
        assert found.truth == [1]
        assert found.grades[1] == 1
        assert hit_at_k("a", np.array(["x", "a"]), 2) == 1.0


def test_one_name_of_a_metric_is_a_list_of_one() -> None:
    """A text is not read sign by sign."""
    assert score_run({"q": {"a": 1}}, {"q": {"a": 1.0}}, "mrr").means() == {"mrr": 1.0}


# -- overflow ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "grade", "message"),
    [
        ("ndcg(gains=exponential)@5", 1024.0, "is above 1,000, the largest whose gains add up"),
        ("ndcg@5", 1.7e308, "is above 9,007,199,254,740,992, the largest whose gains add up"),
        ("q_measure", 1.7e308, "is above 9,007,199,254,740,992"),
        ("q_measure(beta=1000000)", 1e305, "is above 9,007,199,254,740,992"),
        ("err@5", 4.5, r"a grade of 4\.5 is above max_grade=4; give the largest possible grade"),
        ("rbp(gains=linear)", 8.0, "a grade of 8 is above max_grade=4"),
    ],
)
def test_a_grade_too_large_for_a_gain_is_refused(metric: str, grade: float, message: str) -> None:
    """Its gain would be infinite, and infinite ÷ infinite no number, which leaves every mean."""
    with pytest.raises(ValueError, match=message):
        score([judge_ids(["b", "a"], {"a": grade, "b": 1.0})], [parse(metric)])


@pytest.mark.parametrize(
    ("metric", "grade", "expected"),
    [
        ("ndcg(gains=exponential)", 1000.0, 0.6309297535714574),
        ("ndcg", 2.0**53, 0.6309297535714575),
        ("ndcg(judged_only=true)", 2.0**53, 0.6309297535714575),
        ("q_measure", 2.0**53, 0.5),
        ("q_measure(beta=1e15)", 2.0**53, 0.5),
        ("err(max_grade=1000)", 1000.0, 0.5),
        ("rbp(gains=linear,max_grade=1e300,p=0.5)", 1e300, 0.25),
        ("mrr", 1e308, 1.0),
        ("ndcg(gains=binary)", 1e308, 1.0),
    ],
)
def test_the_largest_grades_score_as_defined(metric: str, grade: float, expected: float) -> None:
    """A document with the largest grade is second, below one with a grade of 1."""
    found = score([judge_ids(["b", "a"], {"a": grade, "b": 1.0})], [parse(metric)])

    assert found.values[0, 0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("grade", [1e-290, 1e-200, 1e-17, 1e-9, 1e-4, 0.01])
@pytest.mark.parametrize("metric", ["ndcg(gains=exponential)", "ndcg", "q_measure"])
def test_small_grades_score_as_defined(metric: str, grade: float) -> None:
    """The second of two documents is the only relevant one, however small its grade is."""
    found = score([judge_ids(["x", "a"], {"a": grade})], [parse(metric)]).values[0, 0]

    expected = (1 + grade) / (2 + grade) if metric == "q_measure" else 0.6309297535714575
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("grade", [NAN, INF])
def test_a_ground_truth_is_finite(grade: float) -> None:
    """Of results NaN means that nobody judged them, of the ground truth it means nothing."""
    with pytest.raises(ValueError, match=f"a grade is {grade:g}; grades are finite numbers"):
        score([Judged([1.0], [1.0, grade])], [parse("ndcg")])


@pytest.mark.parametrize(
    "name", ["q_measure(beta=1e300)", "aqwv(beta=1e300)@5", "err(max_grade=2000)",
             "p_fa(fa=collection(1" + "0" * 40 + "))@5", "mrr@" + "9" * 5000],
)  # fmt: skip
def test_an_option_too_large_for_the_formula_is_refused(name: str) -> None:
    """The name is, before anything is computed."""
    with pytest.raises(MetricNameError):
        parse_all([name])


def test_statistics_take_numbers_that_they_can_square() -> None:
    """A NaN or an overflow would spread to the mean, the interval and the p-value."""
    for value in (NAN, INF, 1e200):
        with pytest.raises(OutOfRange, match="statistics take numbers up to 1e"):
            Units.of_values([("a", 1.0), ("b", value)])
        with pytest.raises(OutOfRange, match="statistics take numbers up to 1e"):
            Units.of_sums([("a", 1.0, 1.0), ("b", value, 1.0)])
    with pytest.raises(OutOfRange, match="statistics take numbers up to 1e"):
        Units.of_columns(np.array([0, 1]), np.array([1.0, INF]))
    for score_of in (INF, 10**400, NAN, "1"):
        with pytest.raises(TypeError, match="mrr is not a finite number"):
            of_scores({"query_id": "q", "dimensions": {}, "scores": {"mrr": score_of}})
    assert Method().tested


@pytest.mark.parametrize("value", [NAN, 0, 1, 95, "0.95", None])
def test_a_probability_is_between_0_and_1(value: Any) -> None:
    """With a NaN nothing would be significant, with 95 everything."""
    for call in (
        lambda: statistical_significance_test([0.1] * 6, [0.2] * 6, value),
        lambda: calculate_confidence_interval([0.1, 0.2], value),
        lambda: bootstrap_confidence_interval([0.1, 0.2], 10, value),
    ):
        with pytest.raises(ValueError, match=r"(alpha|confidence_level) is"):
            call()


@pytest.mark.parametrize("value", [0, -1, 2.5, "10", None])
def test_at_least_one_resample_is_drawn(value: Any) -> None:
    """Otherwise there would be no quantiles."""
    for call in (
        lambda: bootstrap_confidence_interval([0.1, 0.2], value),
        lambda: paired_bootstrap_test([0.1] * 6, [0.2] * 6, value),
    ):
        with pytest.raises(ValueError, match=r"n_bootstrap is .*; draw at least one resample"):
            call()


@pytest.mark.parametrize("value", [None, "1", NAN, INF])
def test_plain_statistics_take_finite_numbers(value: Any) -> None:
    """An undefined score is to be left out by the caller, in both lists of a pair."""
    values = [0.5, value, 0.25]
    for call in (
        lambda: calculate_confidence_interval(values),
        lambda: bootstrap_confidence_interval(values),
        lambda: statistical_significance_test(values, [0.5] * 3),
        lambda: paired_bootstrap_test([0.5] * 3, values),
    ):
        with pytest.raises(ValueError, match=r"score 1 \(from 0\) is "):
            call()
