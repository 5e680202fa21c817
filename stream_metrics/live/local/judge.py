"""What a judge keeps in the SQLite file: the labels that it writes, and its budget."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from stream_metrics.core.judge.budget import Book, Entry
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.log import Entry as LogEntry
from stream_metrics.live.local.log import Log
from stream_metrics.live.local.tables import EVENTS, JUDGE

READER: Final = "judge"
"""The name by which the judge commits."""


class LocalLabels:
    """Implements ``judge.judge.LabelWriter``; ``clock`` is in milliseconds of Unix time."""

    def __init__(self, log: Log, clock: Callable[[], int]) -> None:
        self._log = log
        self._clock = clock

    async def send(self, conversation_id: str, events: Sequence[bytes]) -> None:
        """See ``judge.judge.LabelWriter``."""
        key = conversation_id.encode()
        await self._log.append(EVENTS, [LogEntry(key, event) for event in events], self._clock)


class LocalEntries:
    """Implements ``judge.ledger.EntryStore``. Only one process has the file, so that the book knows
    all entries once they were read."""

    def __init__(self, database: Database, book: Book) -> None:
        self._database = database
        self._book = book
        self._is_read = False

    async def refresh(self) -> None:
        """See ``judge.ledger.EntryStore``."""
        if self._is_read:
            return

        def read(connection: sqlite3.Connection) -> list[tuple[int, str, bytes]]:
            connection.execute(JUDGE)
            return connection.execute("SELECT day, writer, entry FROM judge_budget").fetchall()

        for day, writer, entry in await self._database.write(read):
            self._book.put(day, writer, Entry.decode(entry))
        self._is_read = True

    async def write(self, day: int, writer: str, entry: Entry | None) -> None:
        """See ``judge.ledger.EntryStore``."""

        def store(connection: sqlite3.Connection) -> None:
            if entry is None:
                statement = "DELETE FROM judge_budget WHERE day = ? AND writer = ?"
                connection.execute(statement, (day, writer))
            else:
                statement = "INSERT OR REPLACE INTO judge_budget VALUES (?, ?, ?)"
                connection.execute(statement, (day, writer, entry.encode()))

        await self.refresh()
        await self._database.write(store)
        self._book.put(day, writer, entry)
