"""``ConversationRecords`` of the log in the SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.live.local.blocks import records_before, records_of_key
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.tables import EVENTS
from stream_metrics.live.ports import Arrived
from stream_metrics.live.worker.clock import wall_ms

READ_BYTES: Final = 1 << 20
"""The bytes of events in an answer, unless one event alone has more."""


class LocalConversationRecords:
    """Finds events by their key; ``clock`` is in milliseconds of Unix time."""

    def __init__(self, database: Database, clock: Callable[[], int] = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def of_conversation(self, conversation_id: str, after: int, most: int) -> list[Arrived]:
        """See ``ConversationRecords.of_conversation``."""
        key = _key(conversation_id)
        return await self._database.read(
            lambda at: _bounded(islice(records_of_key(at, EVENTS, key, after), most))
        )

    async def newest(self, before: int | None, most: int) -> list[Arrived]:
        """See ``ConversationRecords.newest``."""
        end = 2**63 - 1 if before is None else before
        return await self._database.read(
            lambda at: _bounded(islice(records_before(at, EVENTS, end), most))
        )

    async def letters(self, conversation_id: str, most: int) -> list[DeadLetter]:
        """See ``ConversationRecords.letters``."""
        statement = (
            'SELECT topic, "offset", timestamp_ms, key, reason, message FROM letters '
            "WHERE topic = ? AND key = ? ORDER BY id DESC LIMIT ?"
        )
        parameters = (EVENTS, _key(conversation_id), most)
        rows = await self._database.read(lambda at: at.execute(statement, parameters).fetchall())
        return [
            DeadLetter(Record(None, key, timestamp_ms, topic, 0, offset), reason, message)
            for topic, offset, timestamp_ms, key, reason, message in reversed(rows)
        ]

    async def kept_since_ms(self) -> int | None:
        """See ``ConversationRecords.kept_since_ms``."""
        statement = (
            f'SELECT first, timestamp_ms FROM logs LEFT JOIN {EVENTS} ON "offset" = first '  # noqa: S608
            "WHERE topic = ?"
        )
        first, timestamp_ms = await self._database.read(
            lambda at: at.execute(statement, (EVENTS,)).fetchone()
        )
        if not first:
            return None
        return self._clock() if timestamp_ms is None else int(timestamp_ms)


def _key(conversation_id: str) -> bytes:
    return conversation_id.encode(errors="replace")


def _bounded(records: Iterable[Record]) -> list[Arrived]:
    found: list[Arrived] = []
    left = READ_BYTES
    for record in records:
        left -= len(record.value or b"")
        if found and left < 0:
            break
        found.append(Arrived(record.offset, record))
    return found
