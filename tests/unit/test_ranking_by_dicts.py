"""Runs given as dictionaries score like their rankings, with the kernel and without it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.metrics.ranking.registry import SUITES, parse_all
from stream_metrics.core.metrics.ranking.relevance import order_by_score
from stream_metrics.core.metrics.ranking.scoring import score_batches
from stream_metrics.lab.evaluation.collection import Collection, join
from stream_metrics.lab.evaluation.scoring import score_rankings
from stream_metrics.lab.metrics.run_scores import judged_batches, score_run
from tests.twins.rankings import IDS, TIED

NAMES = [*SUITES["default"], "map", "ndcg", "q_measure", "rbp", "map(judged_only=true)@3"]


def test_a_nan_score_is_an_error() -> None:
    """The error names its document, with the kernel and without it."""
    with pytest.raises(ValueError, match="document 'b' is not a number"):
        score_run({"1": {"a": 1}}, {"1": {"a": 1.0, "b": float("nan")}}, ["mrr"])


QUERIES = st.dictionaries(st.text("123", min_size=1, max_size=2), st.dictionaries(IDS, TIED))


@settings(deadline=None)
@given(QUERIES, QUERIES)
def test_dictionaries_score_like_joined_rankings(
    qrels: dict[str, dict[str, float]], run: dict[str, dict[str, float]]
) -> None:
    """Scores equal those of rankings that were ordered and joined one by one, to the last bit."""
    metrics = parse_all(NAMES)
    ordered = {query: order_by_score(scores) for query, scores in run.items()}
    rankings = join(Collection(qrels), ordered).rankings
    expected = score_rankings(rankings, metrics)

    found = score_run(dict(sorted(qrels.items())), run, NAMES)

    assert list(found.queries) == [one.unit for one in expected.places]
    assert found.scores.values.tobytes() == expected.values.tobytes()
    for name in ("with_relevant", "retrieved", "judged", "relevant"):
        assert getattr(found.scores, name).tolist() == getattr(expected, name).tolist()


def made(queries: int) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Seeded qrels and runs of many lengths, with ties in single precision."""
    draw = np.random.default_rng(queries)
    qrels, run = {}, {}
    for query in map(str, range(queries)):
        judged = draw.choice(60, draw.integers(1, 30), replace=False)
        found = draw.choice(60, draw.integers(1, 40), replace=False)
        scores = 1.0 + draw.integers(0, 60, len(found)) * 1e-8
        qrels[query] = {f"d{one}": int(draw.integers(-1, 4)) for one in judged}
        run[query] = {f"d{one}": float(s) for one, s in zip(found, scores, strict=True)}
    return qrels, run


def test_trec_eval_agrees() -> None:
    """In single precision the scores are trec_eval's, also of tied results."""
    qrels, run = made(500)
    theirs = {"ndcg_cut_10": "ndcg@10", "map": "map", "recip_rank": "mrr", "recall_5": "recall@5"}
    measures = {name.replace("_cut_", "_cut.").replace("recall_", "recall.") for name in theirs}
    expected = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)

    found = score_run(qrels, run, list(theirs.values()), float32=True).by_query()

    for query, scores in expected.items():
        mine = [found[query][name] for name in theirs.values()]
        assert mine == pytest.approx([scores[name] for name in theirs], abs=1e-9)


@pytest.mark.parametrize("cells", [1, 7, 500, 10**9])
def test_a_score_does_not_depend_on_its_batch(cells: int) -> None:
    """Batches of any size give the same bits."""
    qrels, run = made(100)
    metrics = parse_all(NAMES)

    batches = list(judged_batches(qrels, run, cells=cells))
    found = score_batches(batches, len(qrels), metrics)

    assert found.values.tobytes() == score_run(qrels, run, NAMES).scores.values.tobytes()
    assert all(batch.grades.size <= max(cells, 40) for batch in batches)


def test_missing_queries_score_zero_and_unknown_ones_are_left_out() -> None:
    """A query without qrels is ignored; an undefined score is None and in no mean."""
    qrels = {"2": {"a": 1}, "1": {"b": 1}}
    run: Mapping[str, Mapping[str, float]] = {"3": {"a": 1.0}, "2": {"a": 1.0, "x": 0.5}}

    found = score_run(qrels, run, ["mrr", "judged@2"])

    assert found.by_query() == {
        "2": {"mrr": 1.0, "judged@2": 0.5},
        "1": {"mrr": 0.0, "judged@2": None},
    }
    assert found.means() == {"mrr": 0.5, "judged@2": 0.5}
    assert score_run({}, run, ["mrr"]).means() == {"mrr": None}
