"""Ranked metrics against the field's own tools, and where those differ."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from math import log2
from typing import NamedTuple

import ir_measures
import numpy as np
import pyndeval
import pytest
import pytrec_eval
from ir_measures import providers
from sklearn.metrics import ndcg_score

from stream_metrics.core.metrics.ranking.registry import parse
from stream_metrics.core.metrics.ranking.relevance import judge_ids, judge_subtopics, order_by_score
from stream_metrics.core.metrics.ranking.scoring import score

Qrels = dict[str, dict[str, int]]
Run = dict[str, dict[str, float]]
TOLERANCE = 1e-9


class Collection(NamedTuple):
    """Qrels, and a run over the same queries."""

    qrels: Qrels
    run: Run


@lru_cache
def collection(
    queries: int, *, ties: bool = False, grades: tuple[int, ...] = (-1, 0, 0, 0, 1, 1, 2, 3, 4)
) -> Collection:
    """Seeded queries: short and long lists, unjudged results, grades below 0, nothing relevant."""
    draw = random.Random(f"{queries} {ties} {grades}")
    pool = [f"d{number:02}" for number in range(40)]
    qrels: Qrels = {}
    run: Run = {}
    for number in range(queries):
        judged = draw.sample(pool, draw.randint(1, 25))
        qrels[f"{1000 + number}"] = {one: draw.choice(grades) for one in judged}
        found = draw.sample(pool, draw.randint(1, 30))
        marks = [draw.randint(0, 5) if ties else place for place in range(len(found))]
        # Multiples of 1/8 are exact in single precision: without ties all scores are distinct.
        run[f"{1000 + number}"] = {one: mark / 8 for one, mark in zip(found, marks, strict=True)}
    return Collection(qrels, run)


def ours(name: str, data: Collection) -> dict[str, float]:
    """Our scores by query, of the queries of the qrels."""
    rows = [
        judge_ids(order_by_score(data.run.get(q, {})), grades) for q, grades in data.qrels.items()
    ]
    return dict(zip(data.qrels, score(rows, [parse(name)]).values[:, 0].tolist(), strict=True))


def differences(mine: Mapping[str, float], theirs: Mapping[str, float]) -> list[str]:
    """The queries whose scores are not the same."""
    assert mine.keys() == theirs.keys()
    return [
        f"{query}: {mine[query]} and {theirs[query]}"
        for query in mine
        if not (abs(mine[query] - theirs[query]) <= TOLERANCE)
    ]


def trec_eval(measure: str, data: Collection, level: int = 1) -> dict[str, float]:
    """pytrec_eval's scores by query."""
    name = measure.replace(".", "_")
    evaluator = pytrec_eval.RelevanceEvaluator(data.qrels, {measure}, relevance_level=level)
    return {query: found[name] for query, found in evaluator.evaluate(data.run).items()}


def irm(measure: str, data: Collection, provider: str | None = None) -> dict[str, float]:
    """ir-measures' scores by query, by its own choice of tool or by one."""
    wanted = ir_measures.parse_measure(measure)
    with_tool = providers.registry[provider] if provider else ir_measures
    return {
        found.query_id: found.value for found in with_tool.iter_calc([wanted], data.qrels, data.run)
    }


# -- where the definitions are the same -------------------------------------------------------

TREC_EVAL = [
    ("hit@5", "success.5", 1),
    ("hit(rel=3)@10", "success.10", 3),
    ("precision@5", "P.5", 1),
    ("precision(rel=2)@30", "P.30", 2),
    ("recall@10", "recall.10", 1),
    ("recall(rel=2)@5", "recall.5", 2),
    ("mrr", "recip_rank", 1),
    ("mrr(rel=4)", "recip_rank", 4),
    ("map", "map", 1),
    ("map@10", "map_cut.10", 1),
    ("map(rel=3)@3", "map_cut.3", 3),
    ("ndcg", "ndcg", 1),
    ("ndcg@1", "ndcg_cut.1", 1),
    ("ndcg@10", "ndcg_cut.10", 1),
    ("ndcg@50", "ndcg_cut.50", 1),
]


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize(("name", "measure", "level"), TREC_EVAL)
def test_trec_eval_agrees(name: str, measure: str, level: int, ties: bool) -> None:
    """Six hundred random runs score as trec_eval scores them, also where scores are tied."""
    data = collection(600, ties=ties)

    assert differences(ours(name, data), trec_eval(measure, data, level)) == []


IR_MEASURES = [
    ("hit@5", "Success@5"),
    ("precision(rel=2)@5", "P(rel=2)@5"),
    ("precision(rel=2,judged_only=true)@5", "P(rel=2,judged_only=True)@5"),
    ("recall(judged_only=true)@5", "R(judged_only=True)@5"),
    ("mrr", "RR"),
    ("mrr(rel=2)@10", "RR(rel=2)@10"),
    ("mrr(judged_only=true)", "RR(judged_only=True)"),
    ("map@100", "AP@100"),
    ("map(rel=2,judged_only=true)", "AP(rel=2,judged_only=True)"),
    ("ndcg@10", "nDCG@10"),
    ("ndcg(judged_only=true)@10", "nDCG(judged_only=True)@10"),
    ("judged@10", "Judged@10"),
    ("rbp", "RBP(rel=1)"),
    ("rbp(p=0.5,rel=2)", "RBP(rel=2,p=0.5)"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "measure"), IR_MEASURES)
def test_ir_measures_agrees(name: str, measure: str) -> None:
    """Six hundred random runs score as ir-measures scores them."""
    data = collection(600, grades=(0, 0, 0, 1, 1, 2, 3, 4))

    assert differences(ours(name, data), irm(measure, data)) == []


@pytest.mark.parametrize("k", [1, 5, 10, 20])
def test_gdeval_agrees(k: int) -> None:
    """ERR and NDCG with exponential gains are gdeval's, to the five decimals that it prints."""
    data = collection(500, grades=(0, 1, 2, 3, 4))
    for name, measure in (
        (f"err@{k}", f"ERR@{k}"),
        (f"ndcg(gains=exponential)@{k}", f"nDCG(dcg='exp-log2')@{k}"),
    ):
        mine, theirs = ours(name, data), irm(measure, data, "gdeval")
        assert theirs
        assert {query: mine[query] for query in theirs} == pytest.approx(theirs, abs=5.001e-6)


@pytest.mark.slow
def test_sklearn_agrees() -> None:
    """NDCG over fully judged lists of one length without ties is scikit-learn's."""
    draw = np.random.default_rng(7)
    for k in (None, 1, 3, 10):
        grades = draw.integers(0, 5, size=(200, 12)).astype(float)
        places = np.tile(-np.arange(12.0), (200, 1))
        ids = [str(number) for number in range(12)]
        rows = [judge_ids(ids, dict(zip(ids, row, strict=True))) for row in grades.tolist()]
        mine = score(rows, [parse("ndcg" if k is None else f"ndcg@{k}")]).values[:, 0]
        for row in range(200):
            theirs = ndcg_score(grades[row : row + 1], places[row : row + 1], k=k)
            assert abs(mine[row] - theirs) <= TOLERANCE


def subtopic_qrels(draw: random.Random, pool: list[str]) -> dict[str, dict[str, float]]:
    """Some subtopics, each with judged documents."""
    return {
        f"s{number}": {one: draw.choice([0, 1, 1, 2]) for one in draw.sample(pool, 5)}
        for number in range(draw.randint(2, 5))
    }


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("k", [1, 3, 10, 20])
def test_ndeval_agrees(alpha: float, k: int) -> None:
    """α-nDCG with subtopic qrels is ndeval's."""
    draw = random.Random(11)
    pool = [f"d{number:02}" for number in range(12)]
    metric = parse(f"alpha_ndcg(alpha={alpha})@{k}")
    for _ in range(250):
        qrels = subtopic_qrels(draw, pool)
        ranking = draw.sample(pool, draw.randint(1, 12))
        run = [("q", one, float(-place)) for place, one in enumerate(ranking)]
        lines = [("q", s, one, int(g)) for s, found in qrels.items() for one, g in found.items()]
        theirs = pyndeval.ndeval(lines, run, measures=[f"alpha-nDCG@{k}"], alpha=alpha)
        mine = score([judge_subtopics(ranking, qrels)], [metric]).values[0, 0]
        assert mine == pytest.approx(theirs["q"][f"alpha-nDCG@{k}"], abs=TOLERANCE)


@pytest.mark.parametrize("k", [1, 3, 10, 20])
def test_ndeval_agrees_on_repeats(k: int) -> None:
    """α-nDCG over repeats is ndeval's, if each document is a subtopic that its repeats cover."""
    draw = random.Random(13)
    pool = [f"d{number}" for number in range(8)]
    metric = parse(f"alpha_ndcg@{k}")
    for _ in range(500):
        ranking = draw.choices(pool, k=draw.randint(1, 12))
        truth = dict.fromkeys(draw.sample(pool, draw.randint(2, 8)), 1)
        names = [f"{one}#{ranking[:at].count(one)}" for at, one in enumerate(ranking)]
        covering = {*names, *(f"{one}#0" for one in truth)}
        lines = [("q", one, name, 1) for one in truth for name in covering if name[:2] == one]
        run = [("q", name, float(-place)) for place, name in enumerate(names)]
        theirs = pyndeval.ndeval(lines, run, measures=[f"alpha-nDCG@{k}"], alpha=0.5)
        mine = score([judge_ids(ranking, truth)], [metric]).values[0, 0]
        assert mine == pytest.approx(theirs["q"][f"alpha-nDCG@{k}"], abs=TOLERANCE)


# -- where they are not -----------------------------------------------------------------------

TIED = Collection({"1": {"a": 1, "b": 0, "c": 0}}, {"1": {"a": 1.0, "b": 1.0, "c": 0.0}})
MISSING = Collection({"1": {"a": 1}, "2": {"a": 1}}, {"1": {"a": 1.0}})


def test_pytrec_eval_rounds_scores() -> None:
    """Scores that differ in double precision only are tied there; an option does the same here."""
    data = Collection({"1": {"a": 1}}, {"1": {"a": 1.0 + 1e-12, "b": 1.0}})

    assert trec_eval("recip_rank", data) == {"1": 0.5}
    assert ours("mrr", data) == {"1": 1.0}
    assert order_by_score(data.run["1"], float32=True) == ["b", "a"]


def test_pytrec_eval_breaks_ties_from_the_last_id() -> None:
    """Of tied documents that with the last id comes first, as here."""
    assert trec_eval("recip_rank", TIED) == ours("mrr", TIED) == {"1": 0.5}


def test_pytrec_eval_omits_missing_queries() -> None:
    """A query that the run lacks has no score there, and 0 here."""
    assert trec_eval("recip_rank", MISSING) == {"1": 1.0}
    assert ours("mrr", MISSING) == {"1": 1.0, "2": 0.0}


def test_pytrec_eval_has_no_judgement_in_a_grade_below_zero() -> None:
    """A grade below 0 is unjudged there when only judged results count; here it is a grade of 0."""
    data = Collection({"1": {"x": -1, "a": 1}}, {"1": {"x": 2.0, "a": 1.0}})

    assert irm("RR(judged_only=True)", data) == {"1": 1.0}
    assert ours("mrr(judged_only=true)", data) == {"1": 0.5}


def test_ir_measures_scores_missing_queries_zero() -> None:
    """A query that the run lacks has 0, as here."""
    assert irm("RR", MISSING) == ours("mrr", MISSING) == {"1": 1.0, "2": 0.0}


@pytest.mark.parametrize(
    ("measure", "name", "theirs", "mine"),
    [
        ("RR@10", "mrr@10", 1.0, 0.5),
        ("RBP(rel=1,p=0.5)", "rbp(p=0.5)", 0.5, 0.25),
        ("Judged@1", "judged@1", 1.0, 0.0),
    ],
)
def test_ir_measures_breaks_some_ties_from_the_first_id(
    measure: str, name: str, theirs: float, mine: float
) -> None:
    """RR@k, RBP and Judged@k put the first id of tied ones first, unlike its other measures."""
    data = Collection({"1": {"a": 1}}, TIED.run)

    assert irm(measure, data) == {"1": theirs}
    assert ours(name, data) == {"1": mine}


def test_ir_measures_has_one_rbp() -> None:
    """Without ``rel``, or with a cut-off, no tool behind it computes RBP."""
    for measure in ("RBP(p=0.8)", "RBP(rel=1)@10"):
        with pytest.raises(ValueError, match=r"(?i)unsupported measures"):
            irm(measure, TIED)


def test_pyndeval_breaks_ties_from_the_first_id() -> None:
    """Of tied results that with the first id comes first, the other way round than here."""
    lines = [("1", "s", "a", 1), ("1", "t", "c", 1)]
    run = [("1", "a", 1.0), ("1", "b", 1.0)]
    theirs = pyndeval.ndeval(lines, run, measures=["alpha-nDCG@1"])["1"]["alpha-nDCG@1"]
    ranking = order_by_score({"a": 1.0, "b": 1.0})
    row = judge_subtopics(ranking, {"s": {"a": 1}, "t": {"c": 1}})

    assert (theirs, score([row], [parse("alpha_ndcg@1")]).values[0, 0]) == (1.0, 0.0)


def test_pyndeval_has_no_grades() -> None:
    """A document covers a subtopic or not: a grade of 3 is worth what 1 is, as here."""
    run = [("1", "a", 2.0), ("1", "b", 1.0)]
    for grade in (1, 3):
        lines = [("1", "s", "a", grade), ("1", "s", "b", 1), ("1", "t", "c", 1)]
        theirs = pyndeval.ndeval(lines, run, measures=["alpha-nDCG@2"])["1"]["alpha-nDCG@2"]
        row = judge_subtopics(["a", "b"], {"s": {"a": grade, "b": 1}, "t": {"c": 1}})
        mine = score([row], [parse("alpha_ndcg@2")]).values[0, 0]
        best = 1 + 1 / log2(3)

        assert mine == pytest.approx((1 + 0.5 / log2(3)) / best, abs=TOLERANCE)
        assert mine == pytest.approx(theirs, abs=TOLERANCE)


def test_pyndeval_may_exceed_one() -> None:
    """The greedy ideal is not always the best order, there and here."""
    qrels = {"s": {"b": 1.0, "d": 1.0}, "t": {"c": 1.0, "d": 1.0}, "u": {"b": 1.0}, "v": {"c": 1.0}}
    ranking = ["b", "c", "d"]
    lines = [("1", s, one, 1) for s, found in qrels.items() for one in found]
    run = [("1", one, float(-place)) for place, one in enumerate(ranking)]
    theirs = pyndeval.ndeval(lines, run, measures=["alpha-nDCG@2"])["1"]["alpha-nDCG@2"]
    mine = score([judge_subtopics(ranking, qrels)], [parse("alpha_ndcg@2")]).values[0, 0]

    assert 1.0 < theirs == pytest.approx(mine, abs=TOLERANCE)


def test_gdeval_wants_numbers_up_to_four() -> None:
    """Queries are numbers there, grades at most 4, and it prints five decimals."""
    for data in (
        Collection({"q": {"a": 1}}, {"q": {"a": 1.0}}),
        Collection({"1": {"a": 5}}, {"1": {"a": 1.0}}),
    ):
        with pytest.raises(subprocess.CalledProcessError):
            irm("ERR@5", data, "gdeval")
    data = Collection({"1": {"a": 1}}, {"1": {"x": 2.0, "y": 1.0, "a": 0.0}})
    assert irm("ERR@5", data, "gdeval") == {"1": round(1 / 16 / 3, 5)}


def test_sklearn_averages_over_ties() -> None:
    """Tied results share the mean of their gains there; here the last id comes first."""
    theirs = ndcg_score([[1.0, 0.0]], [[1.0, 1.0]], k=1)

    assert theirs == 0.5
    assert ours("ndcg@1", Collection({"1": {"a": 1, "b": 0}}, {"1": {"a": 1.0, "b": 1.0}})) == {
        "1": 0.0
    }


def test_sklearn_knows_only_what_is_in_the_list() -> None:
    """The ideal there is made of the list's own grades: what was not retrieved is not missed."""
    theirs = ndcg_score([[1.0, 0.0]], [[2.0, 1.0]])
    data = Collection({"1": {"a": 1, "b": 0, "c": 1}}, {"1": {"a": 2.0, "b": 1.0}})

    assert theirs == 1.0
    assert ours("ndcg", data)["1"] == pytest.approx(1 / (1 + 1 / log2(3)))
