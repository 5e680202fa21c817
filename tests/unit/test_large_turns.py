"""The largest allowed turn number, and turn numbers that are times, work everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.dedup.tables import DedupRules
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events import BadRecord, Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.turns import turn_text
from stream_metrics.lab.reports.files import PARQUET
from stream_metrics.lab.reports.html.report import PAGE, write_report_page
from stream_metrics.lab.reports.row_parquet import write_row_parquet
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.readers.export import export_state
from tests.page import Showcase
from tests.replays import AT_ONCE, IN_PARTS, replayed
from tests.unit.test_page_server import asking
from tests.unit.test_worst import labelled, searched

LARGEST = 2**53 - 1
TRACED = 1_718_020_800_005_000
TRACED_TEXT = "1718020800005000 (2024-06-10 12:00:00Z)"
EVENTS = [
    searched("c", 1, ["a"] * 12, turn=1),
    searched("c", 1, ["a"] * 12, turn=TRACED, event_id="traced"),
    searched("c", 1, ["a"] * 12, turn=LARGEST, event_id="last"),
    {**labelled("c", {"1.0.a": 3}), "turn": LARGEST},
]
RECORDS = [
    Record(json.dumps(event).encode(), b"c", event["occurred_at"] * 1000) for event in EVENTS
]
TURNS = [1, TRACED, LARGEST]


@pytest.mark.parametrize(("turn", "taken"), [(LARGEST, True), (LARGEST + 1, False), (0, False)])
@pytest.mark.parametrize("event", EVENTS[2:], ids=["searches", "labels"])
def test_the_largest_turn_is_accepted_and_no_larger(
    event: dict[str, Any], turn: int, taken: bool
) -> None:
    """This holds for the compiled kernel and for Python."""
    rules = DedupRules()
    decoder = RecordDecoder(deduplicator(rules, b"key"), "k", rules.tables, Limits())

    found = decoder.decode(json.dumps({**event, "turn": turn}).encode())

    assert isinstance(found, DigestedEvent if taken else BadRecord)
    assert not isinstance(found, DigestedEvent) or found.turn == turn


@pytest.mark.kernel
@pytest.mark.parametrize("event", EVENTS[2:], ids=["searches", "labels"])
def test_the_kernel_decodes_the_largest_turn(event: dict[str, Any]) -> None:
    """Such events do not fall back to Python."""
    rules = DedupRules()
    decoder = RecordDecoder(deduplicator(rules, b"key"), "k", rules.tables, Limits())

    found = decoder.decode_fast(json.dumps(event).encode(), None, None)

    assert found is not None
    assert found.turn == LARGEST


async def test_stored_state_keeps_the_largest_turn() -> None:
    """The state read back equals the one written, with the label of that turn."""
    store = MemoryStore()
    await Showcase.new(*EVENTS, store=store)

    found = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "all")

    assert [row["turn"] for row in found.rows] == TURNS
    assert [row["labelled"] for row in found.rows] == [0, 0, 1]


@pytest.mark.parametrize("scale", [AT_ONCE, IN_PARTS], ids=["at once", "in parts"])
def test_reports_and_parquet_hold_the_largest_turn(scale: Any, tmp_path: Path) -> None:
    """Rows, searches and columns have the number; the HTML page has the time as well."""
    files = replayed(RECORDS, tmp_path, scale, turn_scope="all")
    rows = [json.loads(line)["turn"] for line in files["conversations.jsonl"].splitlines()]

    write_row_parquet(tmp_path)
    write_report_page(tmp_path)

    assert rows == TURNS
    assert pyarrow.parquet.read_table(tmp_path / PARQUET).column("turn").to_pylist() == TURNS
    page = (tmp_path / PAGE).read_text()
    assert TRACED_TEXT in page
    assert turn_text(LARGEST) == str(LARGEST)
    assert str(LARGEST) in page


async def test_the_live_page_shows_the_time_of_a_turn() -> None:
    """Each duplicate has its turn's number, and the time in readable form."""
    async with (
        asking(await Showcase.new(*EVENTS)) as client,
        client.get("/api/worst", params={"window": "1h"}) as answer,
    ):
        body = await answer.json()

    [row] = body["highest_srr"]
    assert row["turns"] == TURNS
    shown = {pair["turn"]: pair["turn_text"] for pair in row["pairs"]}
    assert shown == {1: "1", TRACED: TRACED_TEXT}  # the first twenty duplicates
