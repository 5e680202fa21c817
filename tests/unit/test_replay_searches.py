"""Searches in a replay: ``queries.jsonl``, the block ``retrieval``, and merges of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.ranking.names import MetricNameError
from stream_metrics.core.metrics.ranking.registry import parse
from stream_metrics.core.metrics.ranking.relevance import (
    Query,
    RecordedSearch,
    Relevance,
    Retrieved,
    judge_ids,
)
from stream_metrics.lab.evaluation.recorded_searches import Scoring, UndefinedMetric, score_searches
from stream_metrics.lab.evaluation.retrieval import retrieval_block
from stream_metrics.lab.evaluation.scoring import Ranking, score_rankings
from stream_metrics.lab.replay import report_files
from stream_metrics.lab.replay.merge_pieces import BadRows
from stream_metrics.lab.reports.files import QUERIES, RELEVANT
from stream_metrics.lab.reports.run_directory import read_observations
from tests.helpers import rest_long
from tests.replays import AT_ONCE, CONFIG, IN_PARTS, SPOOLED, replayed, traffic
from tests.unit.test_replay_answers import NOON_S, record


def search(conversation: str, second: int, *docs: str, **fields: Any) -> Record:
    """A search with these documents, by default in turn 1 and iteration 1."""
    found = [
        {"result_id": f"r{second}-{at}", "doc_id": doc, "content": f"about {doc}"}
        for at, doc in enumerate(docs)
    ]
    route = fields.pop("route", None)
    sent: dict[str, Any] = {"search_id": f"s{second}", "results": found}
    if route is not None:
        sent["routing"] = {"selected": route}
    fields = {"iteration": second, "searches": [sent], **fields}
    return record("search_iteration", conversation, second, **fields)


def judged(size: int = 24) -> list[Record]:
    """Conversations judged by ground truth, by labels, by a reference answer, or not at all."""
    records = []
    for number in range(size):
        name = f"c{number:02}"
        agent = f"bot-{number % 2}"
        records.append(search(name, 1, "a", "b", agent=agent, route="web"))
        records.append(search(name, 2, "c", "a", "d", agent=agent, route="kb", release="r1"))
        language = {"language": "de" if number % 3 else "en", "agent": "nobody"}
        if number % 4 == 0:
            records.append(
                record("turn_completed", name, 9, relevant={"a": 3, "d": 1}, dimensions=language)
            )
        if number % 4 == 1:
            labels = [{"result_id": "r1-0", "gain": 1}, {"result_id": "r2-0", "gain": number % 8}]
            labels[1]["gain"] = 4 if number % 8 == 1 else 1
            records.append(record("relevance_labels", name, 8, labels=labels))
        if number % 4 == 2:
            records.append(
                record("turn_completed", name, 9, reference_answers=["y", "d"],
                       dimensions=language)
            )  # fmt: skip
    return records


def rows_in(files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of ``queries.jsonl``."""
    return [json.loads(line) for line in files[QUERIES].splitlines()]


def block_in(files: dict[str, bytes]) -> dict[str, Any]:
    """The block ``retrieval``."""
    found: dict[str, Any] = json.loads(files["report.json"])["retrieval"]
    return found


def test_each_search_has_a_row_with_its_place_and_scores(tmp_path: Path) -> None:
    """Dimensions are the recorded ones, release and route; the agent is that of the search."""
    rows = rows_in(replayed(judged(1), tmp_path, AT_ONCE))

    assert rows[1] == {
        "conversation_id": "c00", "turn": 1, "search_id": "s2", "agent": "bot-0",
        "dimensions": {"language": "en", "release": "r1", "route": "kb"}, "strategy": "qrels",
        "n_retrieved": 3, "n_judged": 2, "n_relevant": 2,
        "scores": rows[1]["scores"],
    }  # fmt: skip
    assert [row["search_id"] for row in rows] == ["s1", "s2"]
    assert rows[1]["scores"]["mrr"] == 0.5
    assert rows[1]["scores"]["recall@2"] == 0.5
    ids = judge_ids(["c", "a", "d"], {"a": 3, "d": 1})
    expected = score_rankings([Ranking("q", ids)], [parse("ndcg@10")]).values[0, 0]
    assert rows[1]["scores"]["ndcg@10"] == expected


def test_ground_truth_then_labels_then_overlap_judge_a_search(tmp_path: Path) -> None:
    """The first of them that exists is used; the report has counts and means by strategy."""
    files = replayed(judged(), tmp_path, AT_ONCE)
    rows, block = rows_in(files), block_in(files)

    found = [row["strategy"] for row in rows if row["search_id"] == "s1"]
    assert found == ["qrels", "judged", "token_overlap", None] * 6
    assert block["strategy_counts"] == {
        "qrels": 12, "custom": 0, "judged": 12, "token_overlap": 12,
    }  # fmt: skip
    assert (block["strategy_used"], block["queries_without_judgement"]) == ("mixed", 12)
    assert list(block["metrics"]["mrr"]["by_strategy"]) == ["qrels", "judged", "token_overlap"]


def test_under_overlap_metrics_that_need_all_relevant_documents_are_null(tmp_path: Path) -> None:
    """Documents that share tokens with the best reference answer are relevant; recall is null."""
    rows = rows_in(replayed(judged(3), tmp_path, AT_ONCE))

    first, second = rows[4:6]
    assert (first["strategy"], first["n_relevant"]) == ("token_overlap", None)
    assert second["scores"]["recall@2"] is None
    assert (first["scores"]["mrr"], second["scores"]["mrr"]) == (0.0, 1 / 3)


@pytest.mark.slow
@pytest.mark.parametrize("turn_scope", rest_long(["last", "all"]))
def test_every_way_of_replaying_gives_the_same_searches(tmp_path: Path, turn_scope: str) -> None:
    """This holds for replays in memory, with a spool, and in shards."""
    found = [
        replayed([*judged(8), *traffic(60)], tmp_path / str(at), scale, turn_scope=turn_scope)
        for at, scale in enumerate((AT_ONCE, SPOOLED, IN_PARTS))
    ]

    assert found[0] == found[1] == found[2]


def test_the_order_of_records_does_not_matter(tmp_path: Path) -> None:
    """With labels before results and ends before turns, searches and figures are the same."""
    one = replayed(judged(), tmp_path / "one", AT_ONCE)
    other = replayed(reversed(judged()), tmp_path / "other", AT_ONCE)

    assert one[QUERIES] == other[QUERIES]
    assert block_in(one) == block_in(other)


def test_the_block_is_that_of_an_evaluation_of_the_same_rankings(tmp_path: Path) -> None:
    """``retrieval_block`` gives the same means, intervals, strategies and strata."""
    files = replayed(judged(), tmp_path, AT_ONCE)
    metrics = Scoring.of(CONFIG["evaluation"], 2).metrics
    intervals = Scoring.of(CONFIG["evaluation"], 2).intervals
    rankings = []
    for row in rows_in(files):
        number = int(row["conversation_id"][1:])
        docs = ["a", "b"] if row["search_id"] == "s1" else ["c", "a", "d"]
        again = row["search_id"] == "s2"
        kind = number % 4
        truth = {"a": 3.0, "d": 1.0}
        if kind == 1:
            truth = {"a": 1.0, "c": 4.0 if number % 8 == 1 else 1.0}
        one = judge_ids(docs, truth, rel=2.0 if kind == 1 else 1.0)
        values: dict[str, Any] = {"strategy": ("qrels", "judged", "token_overlap", None)[kind]}
        if kind == 2:
            grades = [float(doc == "d") for doc in docs]
            values |= {"grades": grades, "truth": None, "graded": False, "boolean": True}
        if again:
            values["before"] = [doc == "a" for doc in docs]
        own = {"release": "none", **row["dimensions"], "agent": row["agent"]}
        rankings.append(
            Ranking(
                row["conversation_id"], None if kind == 3 else one._replace(**values), 1,
                row["search_id"], row["agent"], own, len(docs),
            )
        )  # fmt: skip
    expected = retrieval_block(
        [score_rankings(rankings, metrics, unit="conversation")], intervals=intervals
    )

    assert block_in(files) == json.loads(json.dumps(expected))
    assert list(expected["strata"]) == ["language", "agent", "release", "route"]


def test_a_query_without_relevant_documents_is_counted(tmp_path: Path) -> None:
    """Labels below the good gain count for graded NDCG only; overlap is judged down to rank k."""
    metrics = block_in(replayed(judged(6), tmp_path, AT_ONCE))["metrics"]

    assert metrics["recall@2"]["queries_without_relevant"] == 2 + 2
    assert metrics["ndcg@10"]["queries_without_relevant"] == 0 + 1
    assert metrics["recall@2"]["over_queries_with_relevant"]["mean"] > metrics["recall@2"]["mean"]


def test_comparisons_read_the_same_means(tmp_path: Path) -> None:
    """``compare`` computes from the rows the mean that the report has."""
    block = block_in(replayed(judged(), tmp_path, AT_ONCE))

    figure = read_observations(tmp_path)["queries"].figure("ndcg@10").figure

    assert figure == block["metrics"]["ndcg@10"]["mean"]


def test_without_searches_every_mean_is_null(tmp_path: Path) -> None:
    """The block exists, so that conditions can name its metrics."""
    block = block_in(replayed([record("turn_completed", "c", 1)], tmp_path, AT_ONCE))

    assert (block["queries"], block["metrics"]["mrr"]["mean"]) == (0, None)


def test_a_forgotten_search_is_not_scored(tmp_path: Path) -> None:
    """Only searches after the forget record are scored."""
    forget = {"type": "forget", "event_id": "f", "conversation_id": "c00",
              "occurred_at": NOON_S + 100}  # fmt: skip
    gone = Record(json.dumps(forget).encode(), b"c00", None)

    rows = rows_in(replayed([*judged(1), gone, search("c00", 200, "a")], tmp_path, AT_ONCE))

    assert [(row["search_id"], row["strategy"]) for row in rows] == [("s200", None)]


def test_a_metric_that_events_cannot_give_is_refused() -> None:
    """The message says that events do not have the data for it."""
    with pytest.raises(MetricNameError, match="cannot be computed from events"):
        Scoring.of({**CONFIG["evaluation"], "metrics": ["max_ont_sim@5"]}, 2)


def test_a_grade_above_the_limit_of_a_metric_is_an_error() -> None:
    """The replay ends with an error instead of a wrong score."""
    found = RecordedSearch("c", 1, "s", "bot", {}, Query([Retrieved(0, "a")], {"a": 4}))
    scoring = Scoring((parse("err(max_grade=3)@5"),), Relevance(), None)

    with pytest.raises(UndefinedMetric, match="max_grade"):
        score_searches([found], scoring)


def test_a_truncated_file_of_marks_is_named(tmp_path: Path) -> None:
    """The error of a merge says which file lacks a line."""
    replayed(judged(4), tmp_path, AT_ONCE)
    lines = (tmp_path / RELEVANT).read_text().splitlines(keepends=True)
    (tmp_path / RELEVANT).write_text("".join(lines[:-1]))

    with pytest.raises(BadRows, match=r"relevant\.jsonl has 7 complete lines, but 8 were written"):
        report_files.merge([tmp_path], tmp_path)


def test_a_row_with_other_metrics_is_named(tmp_path: Path) -> None:
    """A file of another replay is not summarised."""
    replayed(judged(4), tmp_path, AT_ONCE)
    text = (tmp_path / QUERIES).read_text().replace('"mrr"', '"map"')
    (tmp_path / QUERIES).write_text(text)

    with pytest.raises(BadRows, match=r"queries\.jsonl, line 1: .* it has other metrics"):
        report_files.merge([tmp_path], tmp_path)
