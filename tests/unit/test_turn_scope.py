"""The default turn scope of a replay."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.helpers import ran
from tests.otlp import RETRIEVER, SpanSpec, as_json, as_protobuf, documents, framed

SESSION = {"session.id": "s"}
SPANS = [
    SpanSpec(trace, span, 0 if span == 1 else 1, start_ms=10 * trace + span, end_ms=10 * trace + 9,
         attributes=SESSION if span == 1 else {**RETRIEVER, **documents("a", trace)})
    for trace in (1, 2, 3)
    for span in (1, 2)
]  # fmt: skip
EVENTS = [
    {"type": "search_iteration", "event_id": f"e{turn}", "occurred_at": 1_718_020_800 + turn,
     "conversation_id": "c", "turn": turn, "iteration": 1}
    for turn in (1, 2, 3)
]  # fmt: skip
LINES = "\n".join(map(json.dumps, EVENTS)).encode()
TRACES = {
    "a document": as_json(SPANS),
    "lines": as_json(SPANS[:2]) + b"\n" + as_json(SPANS[2:]),
    "messages": framed([as_protobuf(SPANS[:3]), as_protobuf(SPANS[3:])]),
}


def replayed(out: Path, *sources: str | Path, given: bytes) -> CompletedProcess[str]:
    """Run the command with this as standard input."""
    return ran("replay", *map(str, sources), "--processes", "1", "--out", str(out), given=given)


def rows(out: Path, *sources: str | Path, given: bytes = b"") -> int:
    """The number of rows that a replay writes."""
    result = replayed(out, *sources, given=given)
    assert result.returncode == 0, result.stderr
    return len((out / "conversations.jsonl").read_bytes().splitlines())


@pytest.mark.parametrize("form", TRACES)
def test_traces_on_standard_input_have_a_row_for_each_turn(tmp_path: Path, form: str) -> None:
    """The same traces in a file have them, too."""
    (tmp_path / "traces").write_bytes(TRACES[form])

    assert rows(tmp_path / "file", tmp_path / "traces") == 3
    assert rows(tmp_path / "input", "-", given=TRACES[form]) == 3


def test_events_on_standard_input_have_a_row_for_each_conversation(tmp_path: Path) -> None:
    """Detection loses no first record, and an empty input has no rows."""
    assert rows(tmp_path / "out", "-", given=LINES) == 1
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    assert report["counts"]["events"] == 3
    assert replayed(tmp_path, "-", given=b"").returncode == 2


def test_traces_after_another_source_have_a_row_for_each_turn(tmp_path: Path) -> None:
    """The other source may be labels for the results in the traces."""
    (tmp_path / "events.jsonl").write_bytes(LINES)
    (tmp_path / "traces").write_bytes(TRACES["a document"])

    assert rows(tmp_path / "out", tmp_path / "events.jsonl", tmp_path / "traces") == 6
