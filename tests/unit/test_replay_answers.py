"""Answers in a replay: ``turns.jsonl``, the block ``generation``, and merges of both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.core.dedup.tables import DedupRules, published
from stream_metrics.core.events.record import Record
from stream_metrics.lab.evaluation.generation import Generation
from stream_metrics.lab.replay import report_files
from stream_metrics.lab.replay.merge_pieces import BadRows
from stream_metrics.lab.replay.report_files import PARTS
from stream_metrics.lab.replay.run import Execution, run
from stream_metrics.lab.reports.files import QUERIES, TURNS
from stream_metrics.lab.reports.run_directory import read_observations
from tests.helpers import rest_long
from tests.replays import (
    AT_ONCE,
    IN_PARTS,
    SPOOLED,
    RecordedProgress,
    files_of,
    replayed,
    task,
)

NOON_S = 1_718_020_800


def record(kind: str, conversation: str, second: int, **fields: Any) -> Record:
    """A record of turn 1 by default."""
    body = {"type": kind, "event_id": f"{kind}-{second}", "conversation_id": conversation,
            "turn": 1, "occurred_at": NOON_S + second, **fields}  # fmt: skip
    return Record(json.dumps(body).encode(), conversation.encode(), None)


def search(conversation: str, second: int, title: str, **fields: Any) -> Record:
    """A search with one result."""
    sent = {"search_id": f"s{second}", "results": [{"result_id": f"r{second}", "title": title}]}
    fields = {"iteration": 1, "searches": [sent], **fields}
    return record("search_iteration", conversation, second, **fields)


def answered(size: int = 30) -> list[Record]:
    """Conversations of two turns; every third has no answer in its second turn."""
    records = []
    for number in range(size):
        name = f"c{number:02}"
        for turn in (1, 2):
            records.append(search(name, 10 * turn, f"Nile {number}", turn=turn))
            if turn == 1 or number % 3:
                language = {"language": "de" if number % 2 else "en"}
                answer, references = f"the Nile {turn}", ["Nile 2", f"Po {number}"]
                records.append(
                    record("turn_completed", name, 10 * turn + 1, turn=turn, answer=answer,
                           reference_answers=references, dimensions=language)
                )  # fmt: skip
    return records


def rows_in(files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The rows of ``turns.jsonl``."""
    return [json.loads(line) for line in files[TURNS].splitlines()]


def test_a_turn_with_a_row_and_an_answer_is_scored(tmp_path: Path) -> None:
    """With the scope ``last`` this is the highest turn, with ``all`` every turn with an answer."""
    last = rows_in(replayed(answered(), tmp_path / "last", AT_ONCE))
    every = rows_in(replayed(answered(), tmp_path / "all", AT_ONCE, turn_scope="all"))

    assert [(row["conversation_id"], row["turn"]) for row in last] == [
        (f"c{number:02}", 2) for number in range(30) if number % 3
    ]
    assert len(every) == 30 + len(last)
    assert last[0]["scores"]["exact_match"] == 0.0  # c01 is German: "the" is no article
    assert last[1]["scores"]["exact_match"] == 1.0
    assert last[1]["scores"]["support_density"] == 1.0


@pytest.mark.parametrize("scale", [AT_ONCE, SPOOLED])
def test_answers_that_nobody_asked_for_are_not_scored(tmp_path: Path, scale: Execution) -> None:
    """Without them the block is null, and all other files are the same."""
    given = task(answered(), tmp_path / "with", scale)
    without = replace(
        given, out=tmp_path / "without", options=replace(given.options, answers=False)
    )
    found = {}
    for each in (given, without):
        each.out.mkdir(exist_ok=True)
        run(each, RecordedProgress())
        found[each.out.name] = files_of(each.out)

    reports = {name: json.loads(files.pop("report.json")) for name, files in found.items()}
    for files in found.values():
        del files[PARTS]
    assert found["with"].pop(TURNS)
    assert found["without"].pop(TURNS) == b""
    assert found["with"] == found["without"]
    assert reports["without"] == reports["with"] | {"generation": None}


@pytest.mark.slow
@pytest.mark.parametrize("turn_scope", rest_long(["last", "all"]))
def test_every_way_of_replaying_gives_the_same_answers(tmp_path: Path, turn_scope: str) -> None:
    """This holds for replays in memory, with a spool, and in shards."""
    found = [
        replayed(answered(), tmp_path / str(at), scale, turn_scope=turn_scope)
        for at, scale in enumerate((AT_ONCE, SPOOLED, IN_PARTS))
    ]

    assert found[0] == found[1] == found[2]


def test_the_report_summarises_the_rows(tmp_path: Path) -> None:
    """The block is computed from the rows; comparisons read the same rows."""
    files = replayed(answered(), tmp_path, AT_ONCE)
    generation = Generation()
    for row in rows_in(files):
        generation.add(row)

    block = json.loads(files["report.json"])["generation"]

    assert block == json.loads(json.dumps(generation.block()))
    assert list(block["strata"]) == ["language"]
    figure = read_observations(tmp_path)["turns"].figure("exact_match").figure
    assert figure == block["metrics"]["exact_match"]["mean"]


def test_without_answers_there_is_no_summary(tmp_path: Path) -> None:
    """The file of turns is empty if the traffic has no answers."""
    files = replayed([search("c", 1, "Nile")], tmp_path, AT_ONCE)

    assert files[TURNS] == b""
    assert json.loads(files["report.json"])["generation"] is None


def test_a_forgotten_answer_is_not_scored(tmp_path: Path) -> None:
    """The pass over texts skips forgotten conversations."""
    forget = {"type": "forget", "event_id": "f", "conversation_id": "c01"}
    forget["occurred_at"] = NOON_S + 100  # type: ignore[assignment]
    records = [*answered(2), Record(json.dumps(forget).encode(), b"c01", None)]

    assert rows_in(replayed(records, tmp_path, AT_ONCE, turn_scope="all")) == rows_in(
        replayed(answered(1), tmp_path / "first", AT_ONCE, turn_scope="all")
    )


def test_an_invalid_row_is_located(tmp_path: Path) -> None:
    """The error of a merge names the file and the line."""
    replayed(answered(4), tmp_path, AT_ONCE)
    first, _ = (tmp_path / TURNS).read_text().splitlines(keepends=True)
    (tmp_path / TURNS).write_text(first + '{"conversation_id": 1}\n')

    with pytest.raises(BadRows, match=r"turns\.jsonl, line 2: not a row of a replay"):
        report_files.merge([tmp_path], tmp_path)


@pytest.mark.parametrize(("number", "right"), [(1, 0.0), (2, 1.0)])
def test_the_rules_for_words_are_those_of_the_tables(
    tmp_path: Path, number: int, right: float
) -> None:
    """Replays under tables 1 give the figures that they gave before equivalent texts were equal."""
    records = [
        search("c", 1, "K\u00fcndigungsfrist"),
        record("turn_completed", "c", 2, answer="K\u00fcndigungs\u00adfrist",
               reference_answers=["Ku\u0308ndigungsfrist"], dimensions={"language": "de"}),
    ]  # fmt: skip
    given = task(records, tmp_path, AT_ONCE)
    rules = DedupRules(tables=published()[number])
    given = replace(
        given,
        options=replace(given.options, config=replace(given.options.config, rules=rules)),
        config=given.config | {"dedup": {"tables": number}},
    )

    run(given, RecordedProgress())

    files = files_of(tmp_path)
    scores = rows_in(files)[0]["scores"]
    assert [scores["exact_match"], scores["support_density"]] == [right, right]
    (query,) = map(json.loads, files[QUERIES].splitlines())
    assert query["scores"]["mrr"] == right
    assert json.loads(files["report.json"])["generation"]["words_version"] == number
