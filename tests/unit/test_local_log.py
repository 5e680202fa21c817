"""The log in the SQLite file: order, retention, and what is still to be read."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from stream_metrics.core.events.record import DeadLetter, Extent, Record
from stream_metrics.live.local import log as module
from stream_metrics.live.local.conversations import LocalConversationRecords
from stream_metrics.live.local.database import Database, FileDamaged
from stream_metrics.live.local.letters import LocalDeadLetters
from stream_metrics.live.local.log import Backlog, Entry, Log, Retention
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.local.tables import EVENTS, SPANS
from stream_metrics.live.ports import BatchWrite, Position

NOW_MS = 1_718_020_800_000
HOUR_MS = 3_600_000
KEPT = Retention({EVENTS: 24 * HOUR_MS, SPANS: HOUR_MS}, 1 << 30)


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """A new file."""
    made = Database(tmp_path / "a.db")
    yield made
    await made.close()


async def append(log: Log, topic: str, count: int, timestamp_ms: int, size: int = 10) -> None:
    """Append records with some bytes each, which cannot be compressed."""
    made = random.Random(timestamp_ms)
    await log.append(topic, [Entry(b"k", made.randbytes(size)) for _ in range(count)], timestamp_ms)


async def read_up_to(database: Database, offset: int, state: int = 0) -> None:
    """Let a state, of which there may be several, have read the events up to an offset."""
    store = LocalStore(database)
    await store.claim(state, b"owner", {EVENTS: Position(0)})
    await store.write(BatchWrite(state, b"owner", b"b", {EVENTS: 0}, {EVENTS: Position(offset)}))


async def trim(log: Log, retention: Retention, now_ms: int = NOW_MS) -> list[Extent]:
    """Delete all that may be deleted; what is left of the events, and of the spans."""
    while await log.trim(retention, now_ms):
        pass
    found = await log.extents([EVENTS, SPANS])
    return [found[EVENTS], found[SPANS]]


async def test_records_come_back_as_they_were_appended(database: Database) -> None:
    """In order, to the byte, with the time of their request; each topic counts from 0."""
    log = Log(database)
    first = await log.append(EVENTS, [Entry(b"a", b"\0\xff"), Entry(b"b", b"2")], NOW_MS)
    await log.append(SPANS, [Entry(b"t", b"3")], NOW_MS)
    second = await log.append(EVENTS, [Entry(b"c", b"")], NOW_MS - 5)

    found = await log.read({EVENTS: 0, SPANS: 0})

    assert (first, second) == (0, 2)
    assert found == {
        EVENTS: [
            Record(b"\0\xff", b"a", NOW_MS, EVENTS, 0, 0),
            Record(b"2", b"b", NOW_MS, EVENTS, 0, 1),
            Record(b"", b"c", NOW_MS - 5, EVENTS, 0, 2),
        ],
        SPANS: [Record(b"3", b"t", NOW_MS, SPANS, 0, 0)],
    }


async def test_a_read_ends_at_its_bytes(database: Database) -> None:
    """But it returns a record, however large it is."""
    log = Log(database)
    await append(log, EVENTS, 5, NOW_MS, size=1_000)

    sizes = [len((await log.read({EVENTS: 0}, max_bytes=n))[EVENTS]) for n in (1, 2_500, 9_000)]

    assert sizes == [1, 3, 5]


async def test_no_more_is_accepted_than_can_be_read(database: Database) -> None:
    """A request that alone is too large is accepted where nothing else waits."""
    log = Log(database)
    await log.append(EVENTS, [Entry(b"k", b"v")] * 12, NOW_MS, max_backlog=10)

    with pytest.raises(Backlog, match="12 records are stored that were not read yet"):
        await log.append(EVENTS, [Entry(b"k", b"v")], NOW_MS, max_backlog=10)
    await read_up_to(database, 12)
    await log.append(EVENTS, [Entry(b"k", b"v")] * 10, NOW_MS, max_backlog=10)

    assert (await log.extents([EVENTS]))[EVENTS] == Extent(0, 22)


async def test_state_that_is_built_beside_keeps_no_event_out(database: Database) -> None:
    """It begins far behind; what it has still to read is only not deleted."""
    log = Log(database)
    for count in (3, 9):
        await append(log, EVENTS, count, NOW_MS - 25 * HOUR_MS)
    await read_up_to(database, 12)
    await read_up_to(database, 3, state=1)

    await log.append(EVENTS, [Entry(b"k", b"v")] * 10, NOW_MS, max_backlog=10)

    assert await log.backlog(EVENTS) == 10
    assert (await trim(log, KEPT))[0] == Extent(3, 22)


async def test_old_records_that_were_read_are_deleted(database: Database) -> None:
    """Spans, which hold texts, sooner than events; what is deleted is counted."""
    log = Log(database)
    for topic in (EVENTS, SPANS):
        await append(log, topic, 3, NOW_MS - 25 * HOUR_MS)
        for _ in range(2):
            await append(log, topic, 1, NOW_MS - 2 * HOUR_MS)
        await append(log, topic, 1, NOW_MS)
    assert await trim(log, KEPT) == [Extent(0, 6), Extent(0, 6)], "nobody has read them"

    await read_up_to(database, 6)
    await log.commit("bridge", {SPANS: (4, "")})

    assert await trim(log, KEPT) == [Extent(3, 6), Extent(4, 6)]
    kept = await log.kept()
    assert (kept.aged, kept.crowded) == ({EVENTS: 3, SPANS: 4}, {EVENTS: 0, SPANS: 0})


async def test_what_was_appended_together_is_deleted_together(database: Database) -> None:
    """Once all of it was read."""
    log = Log(database)
    await append(log, EVENTS, 5, NOW_MS - 25 * HOUR_MS)
    await read_up_to(database, 4)
    before = await trim(log, KEPT)

    await log.append(EVENTS, [Entry(b"k", b"v")], NOW_MS)
    await read_up_to(database, 6, state=1)
    await database.write(lambda at: at.execute('DELETE FROM positions WHERE "offset" = 4'))

    assert before[0] == Extent(0, 5)
    assert (await trim(log, KEPT))[0] == Extent(5, 6)
    assert [one.offset for one in (await log.read({EVENTS: 0}))[EVENTS]] == [5]


async def test_an_emptied_log_goes_on_at_its_end(database: Database, tmp_path: Path) -> None:
    """After a restart too: an offset is never used again."""
    log = Log(database)
    await append(log, EVENTS, 3, NOW_MS - 30 * HOUR_MS)
    await read_up_to(database, 3)
    await trim(log, KEPT)

    again = Database(tmp_path / "a.db")
    assert await Log(again).append(EVENTS, [Entry(b"k", b"v")], NOW_MS) == 3
    await again.close()


async def test_the_oldest_go_where_the_file_is_too_large(database: Database) -> None:
    """Of both logs in turn, until the rest fits; the file is used again before it grows."""
    log = Log(database)
    for hour in range(8):
        topic = SPANS if hour % 2 else EVENTS
        await append(log, topic, 1_000, NOW_MS - (8 - hour) * 60_000, size=300)
    await read_up_to(database, 4_000)
    await log.commit("bridge", {SPANS: (4_000, "")})
    full = (await log.kept()).file_bytes

    left = await trim(log, Retention(KEPT.ages_ms, full * 6 // 10))

    assert left == [Extent(2_000, 4_000), Extent(2_000, 4_000)]
    assert (await log.kept()).file_bytes <= full * 6 // 10
    assert (await log.kept()).crowded == {EVENTS: 2_000, SPANS: 2_000}


async def test_one_wrong_clock_does_not_keep_everything(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record from far in the future is deleted with its neighbours; a step back of an hour
    deletes nothing."""
    monkeypatch.setattr(module, "TRIMMED_AT_ONCE", 2)
    log = Log(database)
    await append(log, EVENTS, 3, NOW_MS - 30 * HOUR_MS)
    await append(log, EVENTS, 1, NOW_MS + 2_000 * HOUR_MS)
    await append(log, EVENTS, 1, NOW_MS - 30 * HOUR_MS)
    await append(log, EVENTS, 1, NOW_MS + HOUR_MS)
    await read_up_to(database, 6)

    assert (await trim(log, KEPT))[0] == Extent(5, 6)


async def test_a_clock_that_was_not_set_deletes_nothing(database: Database) -> None:
    """A machine that starts in 1970 receives events before it learns the time."""
    log = Log(database)
    await append(log, EVENTS, 5, NOW_MS)
    await append(log, EVENTS, 2, HOUR_MS)
    await read_up_to(database, 7)

    assert (await trim(log, KEPT, HOUR_MS))[0] == Extent(0, 7)
    assert (await trim(log, KEPT))[0] == Extent(0, 7)


async def test_old_letters_are_deleted(database: Database) -> None:
    """A letter holds its record, so it is kept as long as an event."""
    now_ms = NOW_MS - 30 * HOUR_MS
    letters = LocalDeadLetters(database, lambda: now_ms)
    await letters.send([DeadLetter(Record(b"1", b"k", 1, EVENTS, 0, 1), "invalid", "old")])
    now_ms = NOW_MS
    await letters.send([DeadLetter(Record(b"2", b"k", 1, EVENTS, 0, 2), "invalid", "new")])

    await trim(Log(database), KEPT)

    found = await database.read(lambda at: at.execute("SELECT message FROM letters").fetchall())
    assert found == [("new",)]


async def test_a_letter_is_stored_once(database: Database) -> None:
    """It may be sent again after a crash; other letters about the record are others."""
    letters = LocalDeadLetters(database)
    record = Record(None, None, None, SPANS, 0, 7)
    one, two = (DeadLetter(record, "invalid", message) for message in ("one", "two"))

    for _ in range(2):
        await letters.send([one, two])

    found = await database.read(lambda at: at.execute("SELECT message FROM letters").fetchall())
    assert found == [("one",), ("two",)]


async def test_only_readers_that_are_handed_records_make_others_wait(database: Database) -> None:
    """A judge that rests must not delay what is sent."""
    log = Log(database)
    rests = log.listen([EVENTS], hand_over=False)
    reads = log.listen([EVENTS], hand_over=True)
    assert reads.tails[EVENTS].take(0, 1) == []
    await log.append(EVENTS, [Entry(b"k", bytes(5 << 20))], NOW_MS)
    assert rests.heard.is_set()
    assert not rests.tails

    waiting = asyncio.create_task(log.pace(EVENTS, patience_seconds=60.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    reads.tails[EVENTS].take(0, 1)
    await waiting


@pytest.mark.parametrize("damage", ["empty", "cut", "bit", "another"])
async def test_a_damaged_block_is_told_as_a_damaged_file(database: Database, damage: str) -> None:
    """Whoever meets it: readers of the log and of a conversation, and retention."""
    log, records = Log(database), LocalConversationRecords(database)
    await log.append(EVENTS, [Entry(b"k", bytes(range(256))), Entry(b"k", b"2")], NOW_MS)
    await log.append(EVENTS, [Entry(b"k", b"3")], NOW_MS)
    await read_up_to(database, 3)

    def spoil(connection: sqlite3.Connection) -> None:
        each = 'SELECT content FROM events ORDER BY "offset"'
        [content], [other] = connection.execute(each).fetchall()
        middle = len(content) // 2
        made = {
            "empty": b"",
            "cut": content[:-7],
            "bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "another": other,
        }[damage]
        connection.execute('UPDATE events SET content = ? WHERE "offset" = 0', (made,))

    await database.write(spoil)

    for step in (
        log.read({EVENTS: 1}),
        records.newest(None, 9),
        records.of_conversation("k", -1, 9),
        log.trim(Retention({EVENTS: 0, SPANS: 0}, 1 << 40), NOW_MS + 1),
    ):
        with pytest.raises(FileDamaged, match=r"is damaged.*records from offset 0.* Move it away"):
            await step
    assert [one.value for one in (await log.read({EVENTS: 2}))[EVENTS]] == [b"3"]
