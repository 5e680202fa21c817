"""Blocks of records in the SQLite file, against a list of the records."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.events.record import Record
from stream_metrics.live.local import blocks as module
from stream_metrics.live.local.blocks import (
    NO_SPANS,
    blocks_from,
    delete_blocks,
    empty_block,
    last_of_key,
    records_before,
    records_from,
    records_of_key,
)
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.log import Entry, Log, Retention, add
from stream_metrics.live.local.tables import EVENTS, SPANS, create_tables

AGE_MS = 50
KEYS = (b"a", b"b", b"")
ENTRIES = st.tuples(
    st.none() | st.sampled_from(KEYS),
    st.none() | st.binary(max_size=12),
    st.none() | st.integers(1, 3),
).map(lambda parts: Entry(*parts))
APPENDS = st.lists(st.tuples(st.lists(ENTRIES, min_size=1, max_size=9), st.integers(1, 3)))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that most appends need several."""
    monkeypatch.setattr(module, "BLOCK_RECORDS", 3)
    monkeypatch.setattr(module, "BLOCK_BYTES", 16)


@given(APPENDS, st.integers(0, 9), st.integers(0, 60))
def test_what_is_read_is_what_was_appended(
    appends: list[tuple[list[Entry], int]], gone: int, at: int
) -> None:
    """From any offset on, backwards, by key, and after the first blocks are deleted or emptied."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_tables(connection)
        kept = [one for entries, now in appends for one in add(connection, SPANS, entries, now)]
        old = list(blocks_from(connection, SPANS, 0))[:gone]
        assert [record for block in old for record in block.unpacked(SPANS)] == (
            kept[: sum(block.records for block in old)]
        )
        if old:
            delete_blocks(connection, SPANS, old[:-1])
            empty_block(connection, SPANS, old[-1])
            kept = [
                Record(NO_SPANS, None, one.timestamp_ms, SPANS, 0, one.offset)
                if one.offset < old[-1].end
                else one
                for one in kept
                if one.offset >= old[-1].offset
            ]

        assert list(records_from(connection, SPANS, at)) == kept_from(kept, at)
        assert list(records_before(connection, SPANS, at)) == [
            one for one in reversed(kept) if one.offset < at
        ]
        for key in KEYS:
            of_key = [one for one in kept if one.key == key]
            assert list(records_of_key(connection, SPANS, key, at)) == kept_from(of_key, at + 1)
            assert last_of_key(connection, SPANS, key) == (of_key[-1].offset if of_key else None)


def kept_from(records: list[Record], offset: int) -> list[Record]:
    """The records from an offset on."""
    return [one for one in records if one.offset >= offset]


ROUNDS = st.lists(
    st.tuples(
        st.integers(1, 8),
        st.sampled_from([0, 0, 0, 1, 2, 9]),
        st.sampled_from([0, 5, 20, 40, 80]),
        st.sampled_from([False, False, True]),
    ),
    min_size=4,
    max_size=8,
)


@given(ROUNDS, st.sampled_from([1, 10, 30]))
def test_retention_takes_the_oldest_blocks_that_were_read(
    rounds: list[tuple[int, int, int, bool]], known_ms: int
) -> None:
    """Old ones, or any to make room, but none since which spans tell which traces have begun; and
    what is left is as it was appended, but for a first block that is emptied."""
    with TemporaryDirectory() as folder:
        asyncio.run(retain(Path(folder) / "a.db", rounds, known_ms))


async def retain(path: Path, rounds: list[tuple[int, int, int, bool]], known_ms: int) -> None:
    """In each round so many spans come, so many are left to read, and so much time passes; then
    the file may be too large."""
    database = Database(path)
    log = Log(database)
    now, read, first, all_ = 1_000, 0, 0, list[Record]()
    for number, unread, passed_ms, is_crowded in rounds:
        entries = [Entry(b"%d" % at, bytes(5 * at)) for at in range(number)]
        offset = await log.append(SPANS, entries, now)
        all_ += [one.at(SPANS, at, now) for at, one in enumerate(entries, offset)]
        read = max(read, len(all_) - unread)
        await log.commit("reader", {SPANS: (read, "")})
        now += passed_ms
        most_bytes = 0 if is_crowded else 1 << 40
        while await log.trim(Retention({EVENTS: AGE_MS, SPANS: AGE_MS}, most_bytes, known_ms), now):
            pass

        times = [one.timestamp_ms or 0 for one in all_]
        needed_ms = (times[read] if read < len(all_) else now) - known_ms
        before, first = first, (await log.extents([SPANS]))[SPANS].first
        left = (await log.read({SPANS: first}))[SPANS]
        emptied = sum(one.value == NO_SPANS for one in left)
        assert [one.offset for one in left] == [*range(first, len(all_))]
        assert left[emptied:] == all_[first + emptied :]
        assert first + emptied <= read
        assert all(time_ms < needed_ms for time_ms in times[: first + emptied])
        aged = times[first if is_crowded else before : first + emptied]
        assert all(now - time_ms > AGE_MS for time_ms in aged)
        assert first < len(all_), "a block is kept that shows that all that are needed are there"
    await database.close()
