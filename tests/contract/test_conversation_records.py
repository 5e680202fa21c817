"""Recorded events by conversation: what every source of them must do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.live.local.conversations import LocalConversationRecords
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.log import Entry, Log
from stream_metrics.live.memory import MemoryConversationRecords
from stream_metrics.live.ports import Arrived, ConversationRecords

KEYS = ["a", "b", "a", "a", "c", "b", "a"]


def events() -> list[Record]:
    """Events of three conversations."""
    return [
        Record(json.dumps({"conversation_id": key, "n": n}).encode(), key.encode(), n, "events")
        for n, key in enumerate(KEYS)
    ]


def numbers(found: list[Arrived]) -> list[int]:
    """Which of ``events`` these are."""
    return [json.loads(one.record.value or b"")["n"] for one in found]


@pytest.fixture(params=["memory", "local"])
async def records(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ConversationRecords]:
    """A source that has the events."""
    if request.param == "memory":
        found = MemoryConversationRecords(Limits())
        found.add(events())
        yield found
        return
    database = Database(tmp_path / "file.db")
    log = Log(database)
    for one in events():
        await log.append("events", [Entry(one.key or b"", one.value or b"")], one.timestamp_ms or 0)
    yield LocalConversationRecords(database)
    await database.close()


async def test_a_conversation_is_read_in_order_from_a_place(records: ConversationRecords) -> None:
    """Piece by piece, to the end."""
    first = await records.of_conversation("a", -1, 3)
    rest = await records.of_conversation("a", first[-1].place, 3)

    assert (numbers(first), numbers(rest)) == ([0, 2, 3], [6])
    assert await records.of_conversation("a", rest[-1].place, 3) == []


@pytest.mark.parametrize("name", ["nobody", "", "\ud800", "a\0", "A"])
async def test_an_unknown_conversation_has_no_events(
    records: ConversationRecords, name: str
) -> None:
    """Whatever its name is."""
    assert await records.of_conversation(name, -1, 3) == []
    assert await records.letters(name, 3) == []


async def test_the_newest_events_come_first(records: ConversationRecords) -> None:
    """Of all conversations, from the end, piece by piece."""
    first = await records.newest(None, 4)
    rest = await records.newest(first[-1].place, 4)

    assert (numbers(first), numbers(rest)) == ([6, 5, 4, 3], [2, 1, 0])
    assert await records.newest(rest[-1].place, 4) == []


async def test_places_are_the_same_both_ways(records: ConversationRecords) -> None:
    """That of an event by its conversation, and among all."""
    by_place = dict(await records.newest(None, 10))
    for place, record in await records.of_conversation("b", -1, 10):
        assert by_place[place] == record


async def test_nothing_is_deleted_at_first(records: ConversationRecords) -> None:
    """So there is no time from which events are kept."""
    assert await records.kept_since_ms() is None
