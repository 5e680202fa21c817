"""``DeadLetters`` in the SQLite file. A letter that is sent again is stored once.

Commands note about letters what they note on a dead-letter topic of Kafka.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, NamedTuple

from stream_metrics.clients.kafka.records import OutgoingRecord
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.live.letters import (
    Forgotten,
    Letter,
    Resubmitted,
    letter_headers,
    parse,
)
from stream_metrics.live.local.database import Database
from stream_metrics.live.worker.clock import wall_ms

READ_TOGETHER: Final = 200


class LocalDeadLetters:
    """Stores letters; ``clock`` is in milliseconds of Unix time."""

    def __init__(self, database: Database, clock: Callable[[], int] = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """See ``DeadLetters.send``."""
        now_ms = self._clock()
        rows = [
            (
                now_ms,
                letter.record.topic,
                letter.record.offset,
                letter.record.timestamp_ms,
                letter.record.key,
                letter.record.value,
                letter.reason,
                letter.message,
                _digest(letter),
            )
            for letter in letters
        ]
        statement = (
            'INSERT OR IGNORE INTO letters (written_ms, topic, "offset", timestamp_ms, key, value, '
            "reason, message, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        await self._database.write(lambda at: at.executemany(statement, rows))


def _digest(letter: DeadLetter) -> bytes:
    """Of what tells letters about one record apart: a trace may have several."""
    state = hashlib.blake2b(digest_size=16)
    texts = letter.reason.encode(), letter.message.encode("utf-8", "surrogatepass")
    for part in (letter.record.key, letter.record.value, *texts):
        state.update(b"-" if part is None else b"+%d:" % len(part) + part)
    return state.digest()


class _Stored(NamedTuple):
    """A letter or a mark, as a record of a dead-letter topic; see ``letters.StoredRecord``."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


async def read_letters(
    database: Database, topics: Sequence[str], suffix: str
) -> AsyncGenerator[Letter | Resubmitted | Forgotten, None]:
    """All letters about records of these topics, and what commands have noted about them.

    They are told as on topics of Kafka, whose names have this ``suffix``.
    """
    for table, stored in (("letters", _stored_letter), ("letter_marks", _stored_mark)):
        after = 0
        while True:
            rows = await database.read(_page(table, after))
            for row in rows:
                after, topic = row[0], row[2]
                found = parse(stored(row, topic + suffix), topic) if topic in topics else None
                if found is not None:
                    yield found
            if not rows:
                break


def _page(table: str, after: int) -> Callable[[sqlite3.Connection], list[tuple[Any, ...]]]:
    statement = f"SELECT * FROM {table} WHERE id > ? ORDER BY id LIMIT {READ_TOGETHER}"  # noqa: S608
    return lambda at: at.execute(statement, (after,)).fetchall()


def _stored_letter(row: tuple[Any, ...], place: str) -> _Stored:
    number, written_ms, topic, offset, stamp, key, value, reason, message, _ = row
    letter = DeadLetter(Record(value, key, stamp, topic, 0, offset), reason, message)
    return _Stored(place, 0, number, written_ms, key, value, letter_headers(letter))


def _stored_mark(row: tuple[Any, ...], place: str) -> _Stored:
    number, written_ms, _, key, headers = row
    named = [(name, text.encode()) for name, text in json.loads(headers)]
    return _Stored(place, 0, number, written_ms, key, None, named)


async def note_about_letters(
    database: Database, topic: str, marks: Sequence[OutgoingRecord], now_ms: int
) -> None:
    """Store marks about letters of a topic."""
    rows = [
        (now_ms, topic, mark.key, json.dumps([(n, text.decode()) for n, text in mark.headers]))
        for mark in marks
    ]
    statement = "INSERT INTO letter_marks (written_ms, topic, key, headers) VALUES (?, ?, ?, ?)"
    await database.write(lambda at: at.executemany(statement, rows))
