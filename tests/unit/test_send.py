"""How ``stream-metrics send`` splits, checks and shifts its input before it sends anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError
from stream_metrics.cli.send import CheckedEvent, check_event, shift_to_now
from stream_metrics.core.events.decode import instant
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.json_values import InvalidJson, json_values
from stream_metrics.lab.sources.unchanged import InputError

NOW_US = 1_742_000_000_000_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=6)


def searched(n: int, occurred_at: Any = "2025-03-18T09:00:00Z", **more: Any) -> dict[str, Any]:
    """A search event."""
    return {
        "type": "search_iteration",
        "event_id": f"e-{n}",
        "occurred_at": occurred_at,
        "conversation_id": "c-1",
        "turn": 1,
        "iteration": n,
        **more,
    }


def send(tmp_path: Path, text: str | bytes, *arguments: str) -> str:
    """The error with which ``send`` refuses this input."""
    path = tmp_path / "events.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = CliRunner().invoke(app, ["send", str(path), *arguments])
    assert isinstance(done.exception, (InputError, UsageError)), done.exception
    return str(done.exception)


@given(OBJECTS, st.sampled_from([None, 1, 4]), st.sampled_from(["\n", "\r\n\n", " ", ""]))
def test_objects_are_split_in_any_layout(
    objects: list[dict[str, Any]], indent: int | None, between: str
) -> None:
    """Objects with any separators, or none, are returned unchanged, each with its line."""
    written = [json.dumps(each, indent=indent) for each in objects]
    text = between.join(written)

    found = list(json_values(text.encode()))

    assert [value.text.decode() for value in found] == written
    at = 0
    for value in found:
        at = text.index(value.text.decode(), at)
        assert value.line == 1 + text.count("\n", 0, at)
        at += len(value.text.decode())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b'{"a": 1}\n{"a": }', 2),
        (b'{\n\n"a": nope}', 3),
        (b"{}\n\xff", 2),
        (b"{}\n" + b"[" * 100_000, 2),
        (b"{}\n\n" + b"9" * 5_000, 3),
    ],
)
def test_text_that_is_not_json_is_located(text: bytes, line: int) -> None:
    """The error names the line."""
    with pytest.raises(InvalidJson) as caught:
        list(json_values(text))

    assert caught.value.line == line


def test_a_byte_order_mark_is_skipped() -> None:
    """Some editors on Windows write one."""
    assert [value.text for value in json_values(b"\xef\xbb\xbf{}")] == [b"{}"]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=8))
def test_moved_events_end_now_and_keep_their_distances(seconds: list[int]) -> None:
    """They do to the microsecond, in any order and notation of their times."""
    times = [
        second if n % 2 else f"2000-01-01T00:00:00.{second % 1_000_000:06}Z"
        for n, second in enumerate(seconds)
    ]
    before = [instant(time) for time in times]

    records = shift_to_now(
        [Record(json.dumps(searched(1, time)).encode()) for time in times], NOW_US
    )

    after = [instant(json.loads(record.value or b"")["occurred_at"]) for record in records]
    latest = max(time for time in before if time is not None)
    assert after == [NOW_US - latest + (time or 0) for time in before]


def test_every_invalid_event_is_listed_with_its_line(tmp_path: Path) -> None:
    """No event is sent then."""
    events = [searched(1), {**searched(2), "turn": 0}, {"type": "serch"}, searched(3)]
    text = "\n".join(json.dumps(event, indent=1) for event in events) + "\n{"

    said = send(tmp_path, text)

    lines = [line.strip() for line in said.splitlines()]
    assert "nothing was sent" in lines[0]
    assert [line.split(":")[:2] for line in lines[1:]] == [
        ["line 9", " invalid"],
        ["line 17", " unknown_type"],
        ["line 28", " not JSON"],
    ]


def test_a_long_list_of_invalid_events_is_truncated(tmp_path: Path) -> None:
    """It has twenty events, and the number of others."""
    said = send(tmp_path, "{}\n" * 1_030)

    assert said.count("line ") == 20
    assert "and 1,010 more" in said


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_input_without_events_is_an_error(tmp_path: Path, text: str) -> None:
    """An empty pipe is not a success."""
    assert "has no events" in send(tmp_path, text)


def test_a_missing_file_is_an_error() -> None:
    """The error names it."""
    done = CliRunner().invoke(app, ["send", "no/such/file"])

    assert "no/such/file: No such file" in str(done.exception)


def test_a_topic_that_no_worker_reads_is_refused(tmp_path: Path) -> None:
    """A misspelt topic would receive events that nobody reads."""
    said = send(tmp_path, json.dumps(searched(1)), "--topic", "serches")

    assert "search-iterations, relevance-labels" in said


def test_an_event_of_the_future_is_refused_unless_it_is_moved(tmp_path: Path) -> None:
    """Workers reject an event that occurs more than a day after it was sent."""
    event = json.dumps(searched(1, "2099-01-01T00:00:00Z"))

    said = send(tmp_path, event)

    assert "line 1: time_out_of_range" in said
    (record,) = shift_to_now([Record(event.encode())], NOW_US)
    sent = check_event(record.value or b"", Limits(), NOW_US)
    assert isinstance(sent, CheckedEvent)
    assert (sent.key, sent.occurred_us) == (b"c-1", NOW_US)


@pytest.mark.parametrize("time", [1_742_288_400_000, -5, "1999-12-31T23:59:59Z"])
def test_a_time_that_is_wrong_is_refused_and_not_moved(tmp_path: Path, time: Any) -> None:
    """``--now`` would make it look valid, and shift the times of others wrongly."""
    events = [searched(1), searched(2, time), searched(3)]

    said = send(tmp_path, "\n".join(map(json.dumps, events)), "--now")

    lines = [line.strip() for line in said.splitlines()]
    assert [line[:25] for line in lines[1:]] == ["line 2: time_out_of_range"]
