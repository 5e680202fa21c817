"""The log in the SQLite file: what was accepted, in order, with an offset for each record.

A record gets its offset, and is stored, in the transaction of whoever appends it, so offsets have
no holes. Old records are deleted from the beginning, but never one that is still to be read.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, NamedTuple

from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.local.blocks import (
    Block,
    add_blocks,
    blocks_from,
    delete_blocks,
    empty_block,
    records_from,
)
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.tables import EVENTS, SPANS, TOPICS
from stream_metrics.live.local.tail import Tail
from stream_metrics.live.worker.ahead import Decoded, DecodedRecord

READ_RECORDS: Final = 2_000
READ_BYTES: Final = 8 << 20
TRIMMED_AT_ONCE: Final = 1_000  # records, so that others do not wait long for the writer


class Entry(NamedTuple):
    """A record to append; one that is sent again has a timestamp of its own. ``decoded`` is its
    event with the timestamp that it gets, if that was decoded."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    decoded: Decoded | None = None

    def at(self, topic: str, offset: int, timestamp_ms: int) -> Record:
        """The record that it becomes."""
        if self.decoded is not None:
            return DecodedRecord(
                self.value, self.key, timestamp_ms, topic, 0, offset, decoded=self.decoded
            )
        own_ms = self.timestamp_ms
        stamp = timestamp_ms if own_ms is None else own_ms
        return Record(self.value, self.key, stamp, topic, 0, offset)


class Backlog(Exception):
    """So much is still to be read that no more is accepted now; the message says how much."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How old records of a topic may become, and the size of the file above which the oldest go.

    Spans of the last ``known_ms`` before those that are still to be read are kept in any case: they
    tell which traces have begun.
    """

    ages_ms: Mapping[str, int]
    max_bytes: int
    known_ms: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """How many records of each topic there are, and how many were ever deleted: too old, or to make
    room. ``file_bytes`` are those of the file that hold something."""

    records: Mapping[str, int]
    aged: Mapping[str, int]
    crowded: Mapping[str, int]
    file_bytes: int


class Listener:
    """A reader of some topics: ``heard`` is set whenever this process has appended to one of them,
    and ``tails`` have what it has appended to those that are ``handed`` over."""

    def __init__(self, handed: Collection[str]) -> None:
        self.heard = asyncio.Event()
        self.tails = {topic: Tail() for topic in handed}

    def appended(self, topic: str, records: Sequence[Record]) -> None:
        """Note that something was appended: these records, if they are known."""
        if records and topic in self.tails:
            self.tails[topic].add(records)
        self.heard.set()


class Log:
    """The records of each topic; a topic is one log.

    A reader of a topic ``listen``s, and is then woken by what this process appends.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._listeners: dict[str, list[Listener]] = {topic: [] for topic in TOPICS}
        self._read: dict[str, int] = {}  # up to which offset, by topic

    def listen(self, topics: Collection[str], *, hand_over: bool) -> Listener:
        """A reader of topics, who is told from now on when this process appends to them; with
        ``hand_over`` also what, and who appends waits for that reader."""
        listener = Listener(topics if hand_over else ())
        for topic in topics:
            self._listeners[topic].append(listener)
        return listener

    async def append(
        self,
        topic: str,
        entries: Sequence[Entry],
        timestamp_ms: int | Callable[[], int],
        max_backlog: int | None = None,
    ) -> int:
        """Append all entries or none; returns the offset of the first one once they are stored.

        A clock as ``timestamp_ms`` is read when they are written, so that none is written later
        with an earlier time. Raises ``Backlog`` if more than ``max_backlog`` records would then be
        unread.
        """

        def append(connection: sqlite3.Connection) -> list[Record]:
            if max_backlog is not None:
                behind = _backlog(connection, topic)
                if topic != EVENTS:
                    end = _extent(connection, topic).end
                    behind = min(behind, end - self._read.get(topic, 0))
                if behind + len(entries) > max(max_backlog, len(entries)):
                    raise Backlog(f"{behind:,} records are stored that were not read yet")
            stamp = timestamp_ms if isinstance(timestamp_ms, int) else timestamp_ms()
            return add(connection, topic, entries, stamp)

        records = await self._database.write(append)
        self.appended(topic, records)
        return records[0].offset

    async def pace(self, topic: str, patience_seconds: float) -> None:
        """Wait while readers of a topic are behind, but have it in memory."""
        for listener in self._listeners[topic]:
            if topic in listener.tails:
                await listener.tails[topic].has_room(patience_seconds)

    def appended(self, topic: str, records: Sequence[Record] = ()) -> None:
        """Tell the readers of a topic what is stored now: these records, if they are known."""
        for listener in self._listeners[topic]:
            listener.appended(topic, records)

    def read_up_to(self, topic: str, offset: int) -> None:
        """Note that the reader of a topic has the records before an offset."""
        self._read[topic] = offset

    async def read(
        self,
        offsets: Mapping[str, int],
        max_records: int = READ_RECORDS,
        max_bytes: int = READ_BYTES,
    ) -> dict[str, list[Record]]:
        """The next records of each topic from its offset, at least one if there is any."""
        return await self._database.read(
            lambda at: {
                topic: _records(at, topic, offset, max_records, max_bytes)
                for topic, offset in offsets.items()
            }
        )

    async def extents(self, topics: Collection[str]) -> dict[str, Extent]:
        """The current first and end offset of each topic."""
        return await self._database.read(lambda at: {topic: _extent(at, topic) for topic in topics})

    async def ends(self, topics: Collection[str]) -> dict[str, int]:
        """The end offset of each topic, behind all that was being written when it was asked for."""
        return await self._database.write(
            lambda at: {topic: _extent(at, topic).end for topic in topics}
        )

    async def first_since(self, times_ms: Mapping[str, int]) -> dict[str, int]:
        """The first offset at or after each time; topics without such a record are omitted."""

        def find(connection: sqlite3.Connection) -> dict[str, int]:
            found = {}
            for topic, since_ms in times_ms.items():
                statement = f'SELECT min("offset") FROM {topic} WHERE timestamp_ms >= ?'  # noqa: S608
                [offset] = connection.execute(statement, (since_ms,)).fetchone()
                if offset is not None:
                    found[topic] = offset
            return found

        return await self._database.read(find)

    async def time_at(self, topic: str, extent: Extent) -> int | None:
        """The timestamp of the first record of the extent; None if there is none."""

        def look(connection: sqlite3.Connection) -> int | None:
            block = next(blocks_from(connection, topic, extent.first), None)
            return None if block is None or block.offset >= extent.end else block.timestamp_ms

        return await self._database.read(look)

    # -- what readers have committed

    async def commit(self, reader: str, commits: Mapping[str, tuple[int, str]]) -> None:
        """Store offsets and notes of a reader."""
        rows = [(reader, topic, *commit) for topic, commit in commits.items()]
        statement = "INSERT OR REPLACE INTO commits VALUES (?, ?, ?, ?)"
        await self._database.write(lambda at: at.executemany(statement, rows))

    async def committed(self, reader: str) -> dict[str, tuple[int, str]]:
        """The offsets and notes of a reader, by topic."""
        statement = 'SELECT topic, "offset", note FROM commits WHERE reader = ?'
        rows = await self._database.read(lambda at: at.execute(statement, (reader,)).fetchall())
        return {topic: (offset, note) for topic, offset, note in rows}

    async def forget_readers(self, readers: Collection[str]) -> None:
        """Delete what these readers have committed."""
        rows = [(reader,) for reader in readers]
        await self._database.write(
            lambda at: at.executemany("DELETE FROM commits WHERE reader = ?", rows)
        )

    async def waiting_scores(self) -> int:
        """How many scores of log records wait for their trace."""
        return await self._database.read(
            lambda at: int(at.execute("SELECT count(*) FROM scores").fetchone()[0])
        )

    async def backlog(self, topic: str) -> int:
        """How many records of a topic are still to be read."""
        return await self._database.read(lambda at: _backlog(at, topic))

    # -- retention

    async def trim(self, retention: Retention, now_ms: int) -> bool:
        """Delete some of the records that are too old or too many; whether there may be more."""
        return await self._database.write(lambda at: _trim(at, retention, now_ms))

    async def kept(self) -> Kept:
        """What is there, and what was ever deleted."""

        def look(connection: sqlite3.Connection) -> Kept:
            statement = 'SELECT topic, "end" - first, aged, crowded FROM logs'
            rows = connection.execute(statement).fetchall()
            records, aged, crowded = ({row[0]: row[at] for row in rows} for at in (1, 2, 3))
            return Kept(records, aged, crowded, _used_bytes(connection))

        return await self._database.read(look)


def add(
    connection: sqlite3.Connection, topic: str, entries: Sequence[Entry], timestamp_ms: int
) -> list[Record]:
    """Append entries in a transaction that is under way; the records that they become."""
    end = _extent(connection, topic).end
    records = [entry.at(topic, offset, timestamp_ms) for offset, entry in enumerate(entries, end)]
    add_blocks(connection, topic, records)
    connection.execute('UPDATE logs SET "end" = "end" + ? WHERE topic = ?', (len(records), topic))
    return records


def _extent(connection: sqlite3.Connection, topic: str) -> Extent:
    statement = 'SELECT first, "end" FROM logs WHERE topic = ?'
    first, end = connection.execute(statement, (topic,)).fetchone()
    return Extent(first, end)


def _records(
    connection: sqlite3.Connection, topic: str, offset: int, max_records: int, max_bytes: int
) -> list[Record]:
    following = islice(records_from(connection, topic, offset), max_records)
    return bounded(following, max_bytes)


def bounded(records: Iterable[Record], max_bytes: int) -> list[Record]:
    """The records up to the one with which their values have so many bytes."""
    found: list[Record] = []
    for record in records:
        found.append(record)
        max_bytes -= len(record.value or b"")
        if max_bytes <= 0:
            break
    return found


def _backlog(connection: sqlite3.Connection, topic: str) -> int:
    """How many records are still to be read: for state that is built beside, nobody waits."""
    extent = _extent(connection, topic)
    return extent.end - _read_up_to(connection, topic, extent, "max")


def _read_up_to(
    connection: sqlite3.Connection, topic: str, extent: Extent, which: str = "min"
) -> int:
    """The offset up to which everybody has read: each generation of state that is in use, or the
    readers that commit. With ``max``, the one that has read furthest."""
    if topic == EVENTS:
        statement = (
            f'SELECT {which}("offset") FROM positions JOIN partitions USING (place) '  # noqa: S608
            "LEFT JOIN frozen USING (mark, number) "
            "WHERE topic = ? AND NOT wiping AND frozen.by IS NULL"
        )
        [offset] = connection.execute(statement, (topic.encode(),)).fetchone()
    else:
        statement = f'SELECT {which}("offset") FROM commits WHERE topic = ?'  # noqa: S608
        [offset] = connection.execute(statement, (topic,)).fetchone()
    return extent.first if offset is None else extent.nearest(offset)


def _unneeded(
    connection: sqlite3.Connection, topic: str, extent: Extent, retention: Retention, now_ms: int
) -> int:
    """The offset up to which records may be deleted.

    Of spans, a block is kept that is older than those that are needed: it shows that all these are
    there.
    """
    end = _read_up_to(connection, topic, extent)
    if topic == EVENTS or not retention.known_ms or end <= extent.first:
        return end
    before = (
        f'SELECT "offset" FROM {topic} WHERE timestamp_ms < ? '  # noqa: S608
        "ORDER BY timestamp_ms DESC LIMIT 1"
    )
    needed_ms = _needed_ms(connection, topic, end, retention, now_ms)
    kept = connection.execute(before, (needed_ms,)).fetchone()
    return extent.first if kept is None else min(end, kept[0])


def _needed_ms(
    connection: sqlite3.Connection, topic: str, end: int, retention: Retention, now_ms: int
) -> int:
    """The time since which spans tell which traces have begun before the record at ``end``."""
    block = next(blocks_from(connection, topic, end), None)
    return (now_ms if block is None else block.timestamp_ms) - retention.known_ms


def _trim(connection: sqlite3.Connection, retention: Retention, now_ms: int) -> bool:
    for topic in retention.ages_ms:
        if _delete_aged(connection, topic, retention, now_ms):
            return True
    if _empty_aged(connection, retention, now_ms):
        return True
    before_ms = now_ms - retention.ages_ms[EVENTS]
    for table in ("letters", "letter_marks"):
        statement = f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT ?)"  # noqa: S608
        statement += " AND written_ms < ?"
        if connection.execute(statement, (TRIMMED_AT_ONCE, before_ms)).rowcount:
            return True
    return _used_bytes(connection) > retention.max_bytes and _delete_oldest(
        connection, retention, now_ms
    )


def _empty_aged(connection: sqlite3.Connection, retention: Retention, now_ms: int) -> bool:
    """Empty the first block of spans, which are kept for less long than it is kept itself."""
    extent = _extent(connection, SPANS)
    end = _read_up_to(connection, SPANS, extent)
    block = next(blocks_from(connection, SPANS, extent.first), None)
    if not retention.known_ms or block is None or block.content is None or block.end > end:
        return False
    before_ms = min(
        now_ms - retention.ages_ms[SPANS], _needed_ms(connection, SPANS, end, retention, now_ms)
    )
    if block.timestamp_ms >= before_ms:
        return False
    empty_block(connection, SPANS, block)
    return True


def _delete_aged(
    connection: sqlite3.Connection, topic: str, retention: Retention, now_ms: int
) -> bool:
    """Delete the records before the first one that is young, and was written by a clock that can
    have been right: one far ahead must not keep all that come after it. If most are far ahead, the
    clock of now cannot be right."""
    extent = _extent(connection, topic)
    end = _unneeded(connection, topic, extent, retention, now_ms)
    age_ms = retention.ages_ms[topic]
    blocks = _oldest(connection, topic, Extent(extent.first, end))
    latest_ms = now_ms + age_ms
    if any(block.timestamp_ms > latest_ms for block in blocks) and _mostly_after(
        connection, topic, latest_ms
    ):
        return False
    old = list(takewhile(lambda block: abs(now_ms - block.timestamp_ms) > age_ms, blocks))
    return _delete(connection, topic, old, "aged")


def _oldest(connection: sqlite3.Connection, topic: str, extent: Extent) -> list[Block]:
    """The first blocks of an extent that are whole in it, of some ``TRIMMED_AT_ONCE`` records."""
    found: list[Block] = []
    records = 0
    for block in blocks_from(connection, topic, extent.first):
        records += block.records
        if block.end > extent.end or (found and records > TRIMMED_AT_ONCE):
            break
        found.append(block)
    return found


def _mostly_after(connection: sqlite3.Connection, topic: str, time_ms: int) -> bool:
    """Whether more than half of the records are from after a time."""
    statement = f"SELECT coalesce(sum(records), 0) FROM {topic} WHERE timestamp_ms > ?"  # noqa: S608
    [after] = connection.execute(statement, (time_ms,)).fetchone()
    extent = _extent(connection, topic)
    return bool(2 * after > extent.end - extent.first)


def _delete_oldest(connection: sqlite3.Connection, retention: Retention, now_ms: int) -> bool:
    """Delete some records of the topic whose first record is the oldest."""
    oldest: list[tuple[int, str, list[Block]]] = []
    for topic in retention.ages_ms:
        extent = _extent(connection, topic)
        read = Extent(extent.first, _unneeded(connection, topic, extent, retention, now_ms))
        if blocks := _oldest(connection, topic, read):
            oldest.append((blocks[0].timestamp_ms, topic, blocks))
    if not oldest:
        return False
    _, topic, blocks = min(oldest, key=lambda one: one[:2])
    return _delete(connection, topic, blocks, "crowded")


def _delete(connection: sqlite3.Connection, topic: str, blocks: Sequence[Block], why: str) -> bool:
    """Delete the first blocks of a topic, and count their records; whether there are any."""
    if not blocks:
        return False
    delete_blocks(connection, topic, blocks)
    records = sum(block.records for block in blocks)
    connection.execute(
        f"UPDATE logs SET first = ?, {why} = {why} + ? WHERE topic = ?",  # noqa: S608
        (blocks[-1].end, records, topic),
    )
    return True


def _used_bytes(connection: sqlite3.Connection) -> int:
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    [free] = connection.execute("PRAGMA freelist_count").fetchone()
    [size] = connection.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)
