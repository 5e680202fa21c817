"""Writes the events of traces to the log in the SQLite file, those of each trace once.

A process that starts reads the spans again from the first one of a trace that was open. Which
traces were told since is stored with their events, in one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from stream_metrics.core.events.record import Record
from stream_metrics.live.bridge.bridge import Told
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.log import Entry, Log, add
from stream_metrics.live.local.tables import EVENTS, SPANS

READER: Final = "bridge"
"""The name by which the reader of spans commits."""


class LocalEvents:
    """Implements ``bridge.bridge.EventWriter``; ``clock`` is in milliseconds of Unix time."""

    def __init__(self, database: Database, log: Log, clock: Callable[[], int]) -> None:
        self._database = database
        self._log = log
        self._clock = clock

    async def send(self, told: Sequence[Told]) -> Sequence[Told]:
        """See ``bridge.bridge.EventWriter``; nothing is too large."""

        def write(connection: sqlite3.Connection) -> list[Record]:
            connection.execute(
                'DELETE FROM told WHERE "offset" < '
                '(SELECT "offset" FROM commits WHERE reader = ? AND topic = ?)',
                (READER, SPANS),
            )
            traces = {(one.trace.offset, one.trace.key): one.trace for one in told}
            new = {
                trace
                for trace in traces
                if connection.execute("INSERT OR IGNORE INTO told VALUES (?, ?)", trace).rowcount
            }
            entries = [
                Entry(one.event.conversation.encode(), one.event.value)
                for one in told
                if (one.trace.offset, one.trace.key) in new
            ]
            return add(connection, EVENTS, entries, self._clock())

        self._log.appended(EVENTS, await self._database.write(write))
        return ()
