"""Conversations in the SQLite file: bounded answers, letters, and what retention has deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.live.local import conversations
from stream_metrics.live.local.conversations import LocalConversationRecords
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.letters import LocalDeadLetters
from stream_metrics.live.local.log import Entry, Log
from tests.unit.test_reading import found, record
from tests.unit.test_serve import post, read_all, working


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """A new file."""
    made = Database(tmp_path / "file.db")
    yield made
    await made.close()


async def test_an_answer_has_a_bounded_size(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer events than asked for, but one at least."""
    monkeypatch.setattr(conversations, "READ_BYTES", 10)
    await Log(database).append("events", [Entry(b"c", b"x" * size) for size in (4, 4, 4, 99)], 0)
    records = LocalConversationRecords(database)

    sizes, after = [], -1
    while piece := await records.of_conversation("c", after, 100):
        after = piece[-1].place
        sizes.append([len(one.record.value or b"") for one in piece])
    assert sizes == [[4, 4], [4], [99]]
    assert len(await records.newest(None, 100)) == 1


async def test_letters_are_those_of_the_conversation(database: Database) -> None:
    """The latest ones of its events, in order; those of spans have keys of another kind."""
    sent = [
        DeadLetter(Record(b"{", key, 5, topic, 0, offset), "not_json", f"{offset}")
        for offset, (topic, key) in enumerate(
            [("events", b"c"), ("events", b"other"), ("spans", b"c"), ("events", b"c")]
        )
    ]
    await LocalDeadLetters(database).send(sent)
    records = LocalConversationRecords(database)

    assert [one.message for one in await records.letters("c", 9)] == ["0", "3"]
    assert [one.message for one in await records.letters("c", 1)] == ["3"]


async def test_what_was_deleted_is_said(database: Database) -> None:
    """From when on events are kept: the first one that is left, or now if none is."""
    log, records = Log(database), LocalConversationRecords(database, lambda: 9_000)
    for timestamp_ms in (1_000, 5_000):
        await log.append("events", [Entry(b"c", b"{}")], timestamp_ms)
    before = await records.kept_since_ms()
    await database.write(lambda at: at.execute('DELETE FROM events WHERE "offset" < 1'))
    await database.write(lambda at: at.execute("UPDATE logs SET first = 1 WHERE topic = 'events'"))

    assert before is None
    assert await records.kept_since_ms() == 5_000
    await database.write(lambda at: at.execute("DELETE FROM events"))
    assert await records.kept_since_ms() == 9_000


@pytest.mark.parametrize("texts", [True, False])
async def test_a_served_conversation_can_be_read(tmp_path: Path, texts: bool) -> None:
    """By its id and in the list of the latest ones; without texts if the settings say so."""
    event = found(1, {"doc_id": "a", "title": "Travel policy"}, {"doc_id": "a"}, agent="first")
    async with working(tmp_path, show_texts=texts) as (process, page, receiver):
        assert await post(receiver, record(event).value or b"") == 1
        await read_all(process)
        shown = {}
        async with aiohttp.ClientSession() as session:
            for path in ("conversation?id=c", "conversations?agent=first", "api/worst"):
                async with session.get(page + path) as answer:
                    shown[path] = await answer.text()
                    assert answer.status == 200

    assert ("Travel policy" in shown["conversation?id=c"]) is texts
    assert "same id" in shown["conversation?id=c"]
    assert "conversation?id=c" in shown["conversations?agent=first"]
    assert '"readable":true' in shown["api/worst"]
