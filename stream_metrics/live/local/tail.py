"""What was just appended to a topic, in memory: its reader need not ask the file for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from stream_metrics.core.events.record import Record

MAX_BYTES: Final = 8 << 20
ENOUGH: Final = 0.25  # of that, above which who appends waits for the reader, so that all has room


class Tail:
    """The records that were appended and not read yet, up to ``max_bytes`` of values.

    They are one stretch of offsets: after a gap, because somebody else appended to the file, or
    because there was no room, a new one begins. What is not here is in the file. Nothing is kept
    until its reader asks for something.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._is_read = False
        self._taken = asyncio.Event()

    def add(self, records: Sequence[Record]) -> None:
        """Add records that are stored; if there is no room, only they are kept, or none."""
        if not self._is_read:
            return
        size = sum(len(record.value or b"") for record in records)
        follows = not self._records or self._records[-1].offset + 1 == records[0].offset
        if not follows or self._bytes + size > self._max_bytes:
            self._clear()
        if size <= self._max_bytes:
            self._records += records
            self._bytes += size

    def take(self, offset: int, max_records: int) -> list[Record]:
        """The records from an offset on, for the last time; empty if the first is not here."""
        self._is_read = True
        while self._records and self._records[0].offset < offset:
            self._pop()
        found: list[Record] = []
        if self._records and self._records[0].offset == offset:
            found = [self._pop() for _ in range(min(max_records, len(self._records)))]
        if self._has_room:
            self._taken.set()
        return found

    async def has_room(self, patience_seconds: float) -> None:
        """Wait until the reader has taken most of it; who takes nothing for so long gets no more
        here until it does."""
        if self._has_room:
            return
        self._taken.clear()
        try:
            async with asyncio.timeout(patience_seconds):
                await self._taken.wait()
        except TimeoutError:
            self._is_read = False
            self._clear()
            self._taken.set()

    @property
    def _has_room(self) -> bool:
        return self._bytes <= ENOUGH * self._max_bytes

    def _clear(self) -> None:
        self._records.clear()
        self._bytes = 0

    def _pop(self) -> Record:
        record = self._records.popleft()
        self._bytes -= len(record.value or b"")
        return record
