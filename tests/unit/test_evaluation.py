"""Summaries of rankings of queries and conversations: means, intervals, strata, strategies."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from math import fsum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.engine.ranked import queries_of
from stream_metrics.core.metrics.ranking.batch import Judged
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.core.metrics.ranking.relevance import Query, Relevance, Retrieved, judge_ids
from stream_metrics.lab.evaluation.collection import (
    Collection,
    JudgingOptions,
    Run,
    Similarities,
    join,
    similarity_formulas,
)
from stream_metrics.lab.evaluation.estimates import Block, Intervals, UnknownDimension
from stream_metrics.lab.evaluation.retrieval import retrieval_block
from stream_metrics.lab.evaluation.scoring import (
    Ranking,
    ScoredRankings,
    metrics_of,
    score_rankings,
)
from stream_metrics.lab.statistics.intervals import estimate
from stream_metrics.lab.statistics.units import Units
from tests.unit.test_fast_paths import Fed
from tests.unit.test_ontology import Letters

QRELS = {"q1": {"a": 1.0, "b": 2.0}, "q2": {"c": 1.0}, "q3": {"d": 0.0}, "q4": {"e": 1.0}}
PLAIN = JudgingOptions()
RUN: Run = {"q1": ["b", "x"], "q2": ["y", "c"], "q3": ["d"], "unknown": ["a"]}


def scored(*names: str, judging: JudgingOptions = PLAIN, run: Run = RUN) -> ScoredRankings:
    """The small run, scored on the small collection."""
    joined = join(Collection(QRELS), run, judging)
    return score_rankings(joined.rankings, metrics_of(names))


def block_of(*names: str, **options: Any) -> Block:
    """The summary of the small run."""
    return retrieval_block([scored(*names)], **options)


def text(block: Block) -> str:
    """The summary as a file would hold it."""
    return json.dumps(block)


# -- the run over the collection --------------------------------------------------------------


def test_a_query_that_the_run_lacks_scores_zero() -> None:
    """The qrels define the query set: of four queries, one has no ranking."""
    joined = join(Collection(QRELS), RUN)
    means = retrieval_block([scored("mrr")])["metrics"]["mrr"]

    assert (joined.missing, joined.dropped) == (1, 1)
    assert [one.unit for one in joined.rankings] == ["q1", "q2", "q3", "q4"]
    assert (means["mean"], means["n"]) == ((1 + 0.5 + 0 + 0) / 4, 4)


def test_the_ranking_of_a_missing_query_is_empty() -> None:
    """Its row has no results, so it has no share of judged ones."""
    row = list(scored("mrr").rows())[-1]

    assert (row["query_id"], row["n_retrieved"], row["n_judged"], row["n_relevant"]) == (
        "q4", 0, 0, 1,
    )  # fmt: skip
    assert row["scores"] == {"mrr": 0.0, "judged@10": None}


def test_terms_below_the_threshold_are_not_expected() -> None:
    """The ontology compares with relevant terms only; "ab" is judged as not relevant."""
    collection = Collection({"1": {"ab": 0.0, "cd": 1.0}, "2": {"ab": 0.0}})
    metrics = metrics_of(["max_ont_sim@1"])
    similarities = Similarities(Letters(), similarity_formulas(metrics))

    joined = join(collection, {"1": ["ab"], "2": ["ab"]}, PLAIN, similarities)

    rows = score_rankings(joined.rankings, metrics).rows()
    assert [row["scores"]["max_ont_sim@1"] for row in rows] == [0.0, None]


def test_subtopics_have_binary_gains_without_graded_relevance() -> None:
    """The setting applies to qrels by subtopic as well."""
    collection = Collection(subtopics={"q": {"s": {"a": 1.0}, "t": {"b": 2.0}}})
    values = []
    for graded in (True, False):
        rankings = join(collection, {"q": ["a"]}, JudgingOptions(graded=graded)).rankings
        row = next(score_rankings(rankings, metrics_of(["ndcg@1"])).rows())
        values.append(row["scores"]["ndcg@1"])

    assert values == [0.5, 1.0]


def test_an_intersection_leaves_missing_queries_out() -> None:
    """Only queries on both sides are scored; the others are counted."""
    judging = JudgingOptions(queries="intersection")

    joined = join(Collection(QRELS), RUN, judging)

    assert [one.unit for one in joined.rankings] == ["q1", "q2", "q3"]
    assert (joined.missing, joined.dropped) == (1, 1)
    mrr = retrieval_block([scored("mrr", judging=judging)])["metrics"]["mrr"]
    assert mrr["mean"] == 0.5


@pytest.mark.parametrize(
    ("queries", "expected", "missing"),
    [("qrels", ["q1", "q2"], 1), ("intersection", ["q1", "q3"], 2)],
)
def test_a_limit_takes_the_first_queries_that_are_scored(
    queries: Any, expected: list[str], missing: int
) -> None:
    """With an intersection, a query that the run lacks does not count towards the limit."""
    run = {"q1": ["a"], "q3": ["d"]}

    joined = join(Collection(QRELS), run, JudgingOptions(queries=queries, limit=2))

    assert [one.unit for one in joined.rankings] == expected
    assert joined.missing == missing


def test_a_document_that_is_the_query_can_be_ignored() -> None:
    """If queries are documents, the query's own document takes no rank."""
    collection, run = Collection({"a": {"b": 1.0}}), {"a": ["a", "b"]}

    kept, taken = (
        join(collection, run, JudgingOptions(ignore_identical_ids=ignore)).rankings[0].judged
        for ignore in (False, True)
    )

    assert kept is not None
    assert taken is not None
    assert (len(kept.grades), list(taken.grades)) == (2, [1.0])


def test_without_graded_relevance_all_relevant_grades_gain_1() -> None:
    """A document of grade 2 then gains as much as one of grade 1."""
    run = {"q1": ["a"]}
    names = ("ndcg@1",)

    graded, binary = (
        next(scored(*names, judging=JudgingOptions(graded=graded), run=run).rows())["scores"][
            "ndcg@1"
        ]
        for graded in (True, False)
    )

    assert (graded, binary) == (0.5, 1.0)


def test_a_row_has_its_keys_in_order() -> None:
    """Readers may rely on the order; fields that queries of files lack are null."""
    row = next(scored("mrr").rows())

    assert list(row) == [
        "query_id", "turn", "search_id", "agent", "dimensions", "strategy", "n_retrieved",
        "n_judged", "n_relevant", "scores",
    ]  # fmt: skip
    assert row | {"scores": {}} == {
        "query_id": "q1", "turn": None, "search_id": None, "agent": None, "dimensions": {},
        "strategy": "qrels", "n_retrieved": 2, "n_judged": 1, "n_relevant": 2, "scores": {},
    }  # fmt: skip
    assert row["scores"] == {"mrr": 1.0, "judged@10": 0.5}


def test_every_metric_has_the_share_of_judged_results() -> None:
    """There is one share per cut-off; a metric that is a ratio also has its sums."""
    assert [str(one) for one in metrics_of(["aqwv@5", "ndcg@3", "map"])] == [
        "aqwv@5", "p_miss@5", "p_fa@5", "ndcg@3", "map", "judged@3", "judged@5",
        "judged@10",
    ]  # fmt: skip


# -- figures ----------------------------------------------------------------------------------


def test_queries_without_relevant_documents_are_counted() -> None:
    """They score 0; a second mean leaves them out."""
    mrr = block_of("mrr")["metrics"]["mrr"]

    assert (mrr["queries_with_relevant"], mrr["queries_without_relevant"]) == (3, 1)
    beside = mrr["over_queries_with_relevant"]
    assert (beside["mean"], beside["n"]) == (0.5, 3)


def test_an_interval_is_that_of_the_statistics() -> None:
    """Mean, spread and bounds are those of the queries' values, by the chosen method."""
    values = [("q1", 1.0), ("q2", 0.5), ("q3", 0.0), ("q4", 0.0)]
    for method in ("percentile", "bca", "t"):
        found = block_of("mrr", intervals=Intervals(method))["metrics"]["mrr"]
        expected = estimate(Units.of_values(values), method)
        for name in ("mean", "n", "sd", "ci_low", "ci_high", "method", "note"):
            assert found[name] == getattr(expected, name)


@pytest.mark.parametrize(
    "options", [{"confidence": 0.5}, {"resample_count": 7}, {"seed": 3}], ids=str
)
def test_intervals_can_be_chosen(options: dict[str, Any]) -> None:
    """Confidence, resamples and seed reach the statistics."""
    draw = random.Random(1)
    values = [(f"q{at:02}", draw.random()) for at in range(20)]
    judged = [judge_ids(["x"] * int(10 * value) + ["a"], {"a": 1.0}) for _, value in values]
    rankings = [Ranking(unit, one) for (unit, _), one in zip(values, judged, strict=True)]
    part = score_rankings(rankings, metrics_of(["mrr"]))
    scores = [(row["query_id"], row["scores"]["mrr"]) for row in part.rows()]

    found = retrieval_block([part], intervals=Intervals(**options))["metrics"]["mrr"]

    expected = estimate(Units.of_values(scores), **options)
    assert (found["ci_low"], found["ci_high"]) == (expected.ci_low, expected.ci_high)
    usual = estimate(Units.of_values(scores))
    assert (usual.ci_low, usual.ci_high) != (expected.ci_low, expected.ci_high)


def test_wilson_is_for_shares() -> None:
    """A 0/1 metric gets Wilson's interval; others keep the percentile interval."""
    metrics = block_of("hit@1", "mrr", intervals=Intervals("wilson"))["metrics"]

    assert (metrics["hit@1"]["method"], metrics["mrr"]["method"]) == ("wilson", "percentile")


def test_intervals_can_be_disabled() -> None:
    """Means and spreads are the same, and bounds are null."""
    metrics = block_of("mrr", intervals=None)["metrics"]["mrr"]

    assert (metrics["mean"], metrics["ci_low"], metrics["method"]) == (0.375, None, None)


@pytest.mark.parametrize("size", [0, 1])
def test_few_queries_have_no_bounds(size: int) -> None:
    """One query gives a mean without bounds and spread; none gives nothing."""
    rankings = join(Collection(QRELS), RUN).rankings[:size]
    metrics = metrics_of(["default", "aqwv@5", "rbp", "novelty@5", "max_ont_sim@3"])

    block = retrieval_block([score_rankings(rankings, metrics)])

    assert block["queries"] == size
    for figures in block["metrics"].values():
        assert (figures["mean"] is None) == (figures["n"] == 0)
        assert figures["n"] <= size
        assert figures["sd"] is figures["ci_low"] is figures["ci_high"] is None


def random_parts(seed: int) -> tuple[list[Ranking], random.Random]:
    """Rankings of some conversations with turns, dimensions and several strategies."""
    draw = random.Random(seed)
    rankings = []
    for number in range(draw.randint(1, 40)):
        found = draw.sample("abcdefgh", draw.randint(0, 6))
        truth = {one: float(draw.randint(0, 3)) for one in draw.sample("abcdefgh", 3)}
        judged: Judged | None = judge_ids(found, truth)
        if draw.random() < 0.2:
            judged = None
        elif draw.random() < 0.3:
            judged = Judged([1.0, 0.0][: len(found)], None, "token_overlap", boolean=True)
        rankings.append(
            Ranking(
                f"c{draw.randint(0, 9)}",
                judged,
                turn=draw.randint(1, 2),
                search_id=f"s{number}",
                agent="bot",
                dimensions={"language": draw.choice(["de", "en"])} if draw.random() < 0.8 else {},
            )
        )
    return rankings, draw


@given(st.integers(0, 10_000))
def test_neither_order_nor_partition_of_rankings_matters(seed: int) -> None:
    """Shuffled and divided in any way, they give the same text."""
    rankings, draw = random_parts(seed)
    metrics = metrics_of(["ndcg@3", "recall@2", "mrr", "hit@1"])

    def parts(cuts: list[int]) -> list[ScoredRankings]:
        return [
            score_rankings(rankings[low:high], metrics, unit="conversation")
            for low, high in pairwise([0, *cuts, len(rankings)])
        ]

    whole = retrieval_block(parts([]), intervals=Intervals(resample_count=20))
    draw.shuffle(rankings)
    cuts = sorted(draw.randint(0, len(rankings)) for _ in range(3))

    assert text(retrieval_block(parts(cuts), intervals=Intervals(resample_count=20))) == text(whole)


def test_parts_with_different_metrics_are_refused() -> None:
    """An empty list of parts is refused too."""
    for parts in ([], [scored("mrr"), scored("ndcg@3")]):
        with pytest.raises(ValueError, match="one part or more"):
            retrieval_block(parts)


# -- strata -----------------------------------------------------------------------------------


def by_language(*languages: str) -> list[Ranking]:
    """One query per language; the first has rank 1, the next rank 2 and so on."""
    return [
        Ranking(
            f"q{at}",
            judge_ids([*"xyz"[:at], "a"], {"a": 1.0}),
            dimensions={"language": language},
        )
        for at, language in enumerate(languages)
    ]


def test_strata_have_an_average_and_a_variance() -> None:
    """Each stratum has the same weight in the average; the variance divides by n."""
    part = score_rankings(by_language("de", "de", "en"), metrics_of(["mrr"]))

    strata = retrieval_block([part])["strata"]["language"]

    assert strata["units"] == {"de": 2, "en": 1}
    mrr = strata["metrics"]["mrr"]
    assert {name: one["mean"] for name, one in mrr["strata"].items()} == {"de": 0.75, "en": 1 / 3}
    average = (0.75 + 1 / 3) / 2
    assert mrr["stratum_average"] == pytest.approx(average, abs=1e-12)
    variance = fsum((one - average) ** 2 for one in (0.75, 1 / 3)) / 2
    assert mrr["cross_stratum_variance"] == pytest.approx(variance, abs=1e-12)


def test_small_strata_have_a_warning() -> None:
    """Below 50 units there is a warning, below 200 a note, and otherwise nothing."""
    names = ["a"] * 49 + ["b"] * 199 + ["c"] * 200
    rankings = [
        Ranking(f"q{at:03}", judge_ids(["a"], {"a": 1.0}), dimensions={"part": name})
        for at, name in enumerate(names)
    ]

    part = score_rankings(rankings, metrics_of(["hit@1"]))
    notes = retrieval_block([part], intervals=None)["strata"]["part"]["notes"]

    assert notes.keys() == {"a", "b"}
    assert "warning" in notes["a"]
    assert "warning" not in notes["b"]


def test_a_dimension_with_one_value_is_used_only_on_request() -> None:
    """By itself it says nothing. The error about an unknown dimension lists the known ones."""
    part = score_rankings(by_language("de", "de"), metrics_of(["mrr"]))

    assert retrieval_block([part])["strata"] == {}
    assert retrieval_block([part], dimensions=["language"])["strata"].keys() == {"language"}
    with pytest.raises(UnknownDimension, match="there are: language"):
        retrieval_block([part], dimensions=["difficulty"])


def test_a_dimension_with_many_values_is_used_only_on_request() -> None:
    """A separate value for every query makes no useful strata."""
    part = score_rankings(by_language(*(f"l{at:02}" for at in range(51))), metrics_of(["hit@1"]))

    assert retrieval_block([part], intervals=None)["strata"] == {}
    asked = retrieval_block([part], intervals=None, dimensions=["language"])
    assert len(asked["strata"]["language"]["units"]) == 51


# -- searches of conversations ----------------------------------------------------------------


def judged_search(unit: str, turn: int, documents: str, **judgements: Any) -> Ranking:
    """A search of a turn, judged by the first available strategy."""
    results = [Retrieved(one, one, text=f"text {one}") for one in documents]
    judged = Relevance().judge(Query(results, **judgements))
    return Ranking(
        unit, judged, turn=turn, search_id=f"{unit}-{turn}-{documents}", results=len(results)
    )


EVENTS = [
    judged_search("c1", 1, "ab", relevant={"a": 1.0}),
    judged_search("c1", 1, "ba", relevant={"a": 1.0}),
    judged_search("c1", 2, "xa", labels={"a": 3.0}),
    judged_search("c2", 1, "a", references=["text a"]),
    judged_search("c3", 1, "abc"),
]


def of_events() -> Block:
    """The summary of the events."""
    return retrieval_block(
        [score_rankings(EVENTS, metrics_of(["mrr", "recall@2"]), unit="conversation")]
    )


def test_strategies_are_counted_and_reported_apart() -> None:
    """If several are in use, the report says mixed and has the mean of each."""
    block = of_events()

    assert block["strategy_used"] == "mixed"
    assert block["strategy_counts"] == {
        "qrels": 2, "custom": 0, "judged": 1, "token_overlap": 1,
    }  # fmt: skip
    by = block["metrics"]["mrr"]["by_strategy"]
    assert {name: one["mean"] for name, one in by.items()} == {
        "qrels": 0.75, "judged": 0.5, "token_overlap": 1.0,
    }  # fmt: skip


def test_an_unjudged_search_is_counted_without_a_score() -> None:
    """Its row shows its results with null scores, and no mean includes it."""
    part = score_rankings(EVENTS, metrics_of(["mrr"]), unit="conversation")
    row = list(part.rows())[-1]

    assert (row["conversation_id"], row["strategy"], row["n_retrieved"]) == ("c3", None, 3)
    assert (row["n_judged"], row["n_relevant"]) == (0, None)
    assert set(row["scores"].values()) == {None}
    block = retrieval_block([part])
    assert (block["queries"], block["queries_without_judgement"]) == (5, 1)
    assert block["metrics"]["mrr"]["n"] == 4


def test_conversations_are_resampled() -> None:
    """Four searches of two conversations give the interval of two units."""
    mrr = of_events()["metrics"]["mrr"]
    units = Units.of_values([("c1", 1.0), ("c1", 0.5), ("c1", 0.5), ("c2", 1.0)])
    expected = estimate(units)

    assert (mrr["mean"], mrr["n"]) == (0.75, 4)
    assert (mrr["ci_low"], mrr["ci_high"]) == (expected.ci_low, expected.ci_high)


def test_the_mean_over_turns_is_reported_too() -> None:
    """Each turn's mean counts once: (0.75 + 0.5 + 1) ÷ 3."""
    macro = of_events()["metrics"]["mrr"]["macro_turn"]

    assert (macro["mean"], macro["n"]) == (0.75, 3)


def test_recorded_searches_have_the_mean_of_the_live_sums() -> None:
    """Searches of a turn are judged as the engine has them; the mean is live sum ÷ count."""
    metrics = live_metrics(["mrr", "ndcg@10", "recall@1", "judged@2"])
    fed = Fed(retrieval=metrics)
    fed.take(fed.search("a", "D1", "D2", "D2"), fed.search("b", "D3", "D1", iteration=2))
    fed.take(fed.labels(a_1=1, a_2=3, b_1=4), fed.search("c", "D4", iteration=2))
    turn = fed.conversation.turns[1]
    rankings = [
        Ranking("c", Relevance().judge(query), turn=1, search_id=found.search_id)
        for found, query in zip(turn.order, queries_of(turn, turn.order), strict=True)
    ]

    figures = retrieval_block([score_rankings(rankings, metrics, unit="conversation")])["metrics"]

    sums: dict[str, int] = {}
    for sign, cell in fed.cells:
        for code, value in cell.sums.items():
            sums[code] = sums.get(code, 0) + sign * value
    for name, found in figures.items():
        live = sums.get(f"rs|{name}", 0) / 10**9 / sums[f"rc|{name}"]
        assert found["mean"] == pytest.approx(live, abs=1e-9)
        assert found["n"] == sums[f"rc|{name}"] == 3


def test_a_stratum_counts_resampled_units() -> None:
    """Three searches of two conversations are two units, and a row's dimensions are sorted."""
    rankings = [
        one._replace(dimensions={"route": "kb", "language": "de"})
        for one in (*EVENTS[:2], EVENTS[3])
    ]
    part = score_rankings(rankings, metrics_of(["mrr"]), unit="conversation")

    strata = retrieval_block([part], dimensions=["route"])["strata"]["route"]

    assert strata["units"] == {"kb": 2}
    assert list(next(part.rows())["dimensions"]) == ["language", "route"]


def test_queries_of_files_have_no_turns() -> None:
    """There is no mean over turns for them."""
    assert "macro_turn" not in block_of("mrr")["metrics"]["mrr"]
