"""Recordings that show all that a replay counts, and replays of them by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.core.events.record import Record
from tests.replays import traffic

NOON_S = 1_742_300_000
ABOUT_THE_RUN = "run.json"
PARTITIONS = (1, 2, 7)


def event(kind: str, conversation: str, number: int, **fields: Any) -> Record:
    """An event of turn 1, at a second of its own."""
    content = {
        "type": kind,
        "conversation_id": conversation,
        "event_id": f"{conversation}-{number}",
        "occurred_at": NOON_S + number,
        **({} if kind == "forget" else {"turn": 1}),
        **fields,
    }
    return Record(json.dumps(content).encode())


def recorded(count: int = 400) -> list[Record]:
    """Traffic; labels that come late, are revised or have no result; and what cannot be used."""
    found = [{"result_id": f"r{at}", "doc_id": f"d{at}"} for at in range(3)]
    search = {"search_id": "s", "results": found}
    judged = [{"result_id": "r0", "gain": 3}, {"result_id": "nowhere", "gain": 1}]
    revised = [{"result_id": "r0", "gain": 1}, {"result_id": "r2", "gain": 2}]
    by_model = [{"result_id": "r0", "gain": 4}, {"result_id": "r1", "gain": 3}]
    named = "z\u00e4hler \U0001f50e"  # its code points and its UTF-16 are sorted differently
    return [
        Record(b"{broken"),
        event("relevance_labels", named, 3, labels=judged),
        *traffic(count),
        event("search_iteration", named, 1, iteration=1, searches=[search]),
        event("relevance_labels", named, 7, labels=revised),
        event("relevance_labels", named, 8, labels=by_model, source="model", sample="random"),
        event("search_iteration", "\uffee", 1, iteration=1, searches=[search]),
        event("search_iteration", "forgotten", 1, iteration=1, searches=[search]),
        event("forget", "forgotten", 2),
        event("search_iteration", "refused", 1, iteration="one"),
        event("search_iteration", "behind", 1, turn=2, iteration=1, searches=[search]),
        event("search_iteration", "behind", 2, iteration=1, searches=[search]),
        Record(b'{"type": "search_iteration"}'),
        Record(b"\xff\xfe"),
        Record(b'{"type": "search_iteration", "conversation_id": "refused", "agent": "\xff"}'),
        Record(b'{"type": "unheard of", "conversation_id": "refused"}'),
    ]


def lines(records: Iterable[Record]) -> bytes:
    """The records as lines of a file, with a blank one and other ends of lines between them."""
    return b"\r\n \n".join((record.value or b"").replace(b"\n", b" ") for record in records)


def in_topics(records: Iterable[Record]) -> list[Record]:
    """The records in partitions of two topics, whose places are not in the order of reading."""
    found = []
    for number, record in enumerate(records):
        topic, partition = ("searches", "labels")[number % 2], 4 - number % 5
        stamp = 1_742_284_800_000 + number
        found.append(Record(record.value, record.key, stamp, topic, partition, 1_000 - number))
    return found


def replayed(out: str, *arguments: str) -> dict[str, bytes]:
    """The files of ``stream-metrics replay``."""
    found = CliRunner().invoke(app, ["replay", *arguments, "--out", out])
    assert found.exit_code == 0, (found.output, found.exception)
    return files_of(Path(out))


def files_of(out: Path) -> dict[str, bytes]:
    """The files of a report but for what tells of the run."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != ABOUT_THE_RUN}
