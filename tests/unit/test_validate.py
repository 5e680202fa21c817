"""``stream-metrics validate``, and what ``replay`` refuses in the same way."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_replay_commands import command, refused
from tests.unit.test_unknown_fields import ITERATION, LABELS

GOOD: dict[str, Any] = {**ITERATION, "gate": {"decision": "skip"}}
EMPTY_EVENTS: list[dict[str, Any]] = [
    {**ITERATION, "search": [], "trace_id": 1},
    {**LABELS, "labels": [], "routing": [], "gate": [], "sample": None, "trace_id": 1},
]


def lines(*events: Any) -> str:
    """Events as JSON Lines."""
    return "".join(json.dumps(event) + "\n" for event in events)


def test_every_bad_record_is_named_with_its_line(tmp_path: Path) -> None:
    """Lines are numbered from 1 in each file, including empty ones, on standard output."""
    (tmp_path / "a.jsonl").write_text(lines(GOOD) + "\nno json\n" + lines({"type": "x"}))
    (tmp_path / "b.jsonl").write_text(lines({**GOOD, "occurred_at": 1_742_288_400_000}))

    found = command(tmp_path, "validate", "a.jsonl", "b.jsonl")

    assert found.returncode == 2
    told = found.stdout.splitlines()
    assert [line.split(": ")[:3] for line in told] == [
        ["error", "a.jsonl:3", "not_json"],
        ["error", "a.jsonl:4", "unknown_type"],
        ["error", "b.jsonl:1", "time_out_of_range"],
    ]
    assert "looks like milliseconds" in told[2]
    assert found.stderr.strip() == "4 records, 3 of them bad"


def told(found: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The findings as objects, one on each line."""
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_findings_as_json_have_counts(tmp_path: Path) -> None:
    """Misspelt fields are errors; unknown fields and empty events are counted."""
    (tmp_path / "events.jsonl").write_text(lines(GOOD, *EMPTY_EVENTS))

    found = command(tmp_path, "validate", "events.jsonl", "--format", "json")

    assert found.returncode == 2
    assert [
        (one["level"], one["kind"], one["about"], one["events"], one["line"]) for one in told(found)
    ] == [
        ("error", "misspelt_field", "search", 1, 2),
        ("warning", "unknown_field", "trace_id", 2, 2),
        ("warning", "empty_event", "search_iteration", 1, 2),
        ("warning", "empty_event", "relevance_labels", 1, 3),
    ]
    assert found.stderr.strip() == "3 records, 0 of them bad"


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_file_name_that_is_no_utf_8_is_escaped(tmp_path: Path, form: str) -> None:
    """Names of files are bytes, and output is text."""
    (tmp_path / "caf\udce9.jsonl").write_text("no json\n")

    found = command(tmp_path, "validate", "caf\udce9.jsonl", "--format", form)

    assert found.returncode == 2
    assert "caf\\udce9.jsonl" in found.stdout
    assert found.stderr.strip() == "1 record, 1 of them bad"


def test_findings_before_a_damaged_file_are_listed(tmp_path: Path) -> None:
    """The findings are listed before the error that ends the command."""
    (tmp_path / "events.jsonl").write_text(lines(EMPTY_EVENTS[0]))
    (tmp_path / "damaged.jsonl.gz").write_bytes(gzip.compress(lines(GOOD).encode())[:-5])

    found = command(tmp_path, "validate", "events.jsonl", "damaged.jsonl.gz", "--format", "json")

    assert found.returncode == 2
    assert told(found)[0]["about"] == "search"
    assert "error: damaged.jsonl.gz" in found.stderr


def test_warnings_alone_end_with_0(tmp_path: Path) -> None:
    """Empty events and fields that resemble no known one are permitted."""
    (tmp_path / "events.jsonl").write_text(lines({**ITERATION, "trace_id": 1}))

    found = command(tmp_path, "validate", "events.jsonl")

    assert found.returncode == 0
    assert [line.split()[0] for line in found.stdout.splitlines()] == ["warning:", "warning:"]


def test_the_list_of_findings_is_bounded(tmp_path: Path) -> None:
    """Findings beyond --limit are only counted."""
    extra = {f"x{n}": n for n in range(10)}
    (tmp_path / "events.jsonl").write_text("bad\n" * 7 + lines({**GOOD, **extra}))

    found = command(tmp_path, "validate", "events.jsonl", "--limit", "3", "--format", "json")

    kinds = [one["kind"] for one in told(found)]
    assert kinds == ["bad_record"] * 3 + ["unknown_field"] * 3
    assert found.stderr.splitlines() == [
        "8 records, 7 of them bad",
        "not listed: 4 of kind bad_record; --limit lists more",
        "not listed: 7 of kind unknown_field; --limit lists more",
    ]


def test_standard_input_and_recordings_are_validated(tmp_path: Path) -> None:
    """``-`` is standard input; keys of recorded records are checked."""
    record = {
        "topic": "t", "partition": 0, "offset": 5, "timestamp": None, "key": "another",
        "value": json.dumps(GOOD),
    }  # fmt: skip

    found = command(tmp_path, "validate", "-", sent=lines(record))

    assert found.returncode == 2
    assert found.stdout.startswith("error: -:1: key_mismatch: ")


@pytest.mark.parametrize("subcommand", ["validate", "replay"])
def test_an_empty_input_is_refused(tmp_path: Path, subcommand: str) -> None:
    """The exit code is 2, because there is nothing to validate."""
    (tmp_path / "empty.jsonl").touch()

    assert (
        refused(tmp_path, subcommand, "empty.jsonl")
        == f"error: empty.jsonl: no record to {subcommand}"
    )


def test_a_strict_replay_ends_at_a_misspelt_field(tmp_path: Path) -> None:
    """It agrees with ``validate``; other unknown fields do not end it."""
    (tmp_path / "events.jsonl").write_text(lines(GOOD, EMPTY_EVENTS[0]))
    (tmp_path / "fine.jsonl").write_text(lines({**GOOD, "trace_id": 1}))

    assert refused(tmp_path, "replay", "events.jsonl", "--strict") == (
        "error: events.jsonl:2: unknown field `search`; did you mean `searches`? "
        "(--strict stops here)"
    )
    assert command(tmp_path, "replay", "events.jsonl").returncode == 0
    assert command(tmp_path, "replay", "fine.jsonl", "--strict").returncode == 0


PAGES = [{"result_id": f"r{n}", "url": f"https://x.example/{n}"} for n in range(2)]
NAMED = [{"result_id": "n", "doc_id": "a"}, {"result_id": "m", "url": "https://x.example/m"}]


def searched(*searches: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """An event of searches with these results."""
    found = [{"search_id": f"s{n}", "results": results} for n, results in enumerate(searches)]
    return {**ITERATION, "searches": found, **fields}


def ended(**fields: Any) -> dict[str, Any]:
    """The end of a turn with a ground truth."""
    common = {"event_id": "end", "occurred_at": ITERATION["occurred_at"], "turn": 1}
    return {
        "type": "turn_completed", "conversation_id": ITERATION["conversation_id"], **common,
        "relevant": {"a": 4}, **fields,
    }  # fmt: skip


@pytest.mark.parametrize("first", [True, False])
def test_a_ground_truth_without_ids_to_compare_is_named(tmp_path: Path, first: bool) -> None:
    """With its line, and how many there are; it is a warning."""
    events = [searched(PAGES), searched(PAGES, turn=2), ended(), ended(turn=2)]
    (tmp_path / "a.jsonl").write_text(lines(*(events[::-1] if first else events)))

    found = command(tmp_path, "validate", "a.jsonl")

    assert found.returncode == 0
    assert found.stdout.splitlines() == [
        f"warning: a.jsonl:{1 if first else 3}: no result of the turn has a `doc_id` to compare "
        "with the documents that `relevant` names (2 events)"
    ]
    assert found.stderr.strip() == "4 records, 0 of them bad"


def test_a_search_without_ids_beside_others_is_named(tmp_path: Path) -> None:
    """Where the turn has a ground truth, and the search has results."""
    events = [searched(NAMED, []), searched(PAGES, iteration=2), searched(PAGES, turn=2)]
    events += [ended(), ended(turn=2, relevant={}), ended(turn=3)]
    (tmp_path / "a.jsonl").write_text(lines(*events))

    found = command(tmp_path, "validate", "a.jsonl", "--format", "json")

    assert [(one["kind"], one["about"], one["line"]) for one in told(found)] == [
        ("without_doc_id", "search_iteration", 2)
    ]
