"""Events that a receiver has decoded already, until the loop reads their records.

A receiver decodes an event to tell whether it is valid. What a decoder returns depends on its
arguments alone, so the loop may use that in place of decoding the same record again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.record import Record

MAX_BYTES: Final = 8 << 20  # of records; the loop reads no more at once


class DecodedAhead:
    """Events as ``decoder`` decodes them, up to ``max_bytes`` of their records."""

    def __init__(self, decoder: RecordDecoder, max_bytes: int = MAX_BYTES) -> None:
        self._decoder = decoder
        self._max_bytes = max_bytes
        self._bytes = 0
        # By value: the key and timestamp of its record, and the event.
        self._events: dict[bytes, tuple[bytes, int, DigestedEvent]] = {}
        self._half_empty = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    async def has_room(self, patience_seconds: float) -> None:
        """Wait until half of the room is free; what is not taken so long is forgotten."""
        if self._bytes <= self._max_bytes // 2:
            return
        self._half_empty.clear()
        try:
            async with asyncio.timeout(patience_seconds):
                await self._half_empty.wait()
        except TimeoutError:
            self._events.clear()
            self._bytes = 0
            self._half_empty.set()

    def decode(self, value: bytes, timestamp_ms: int) -> DigestedEvent | BadRecord | None:
        """The event, whose record is to have its conversation as key, or why it is rejected.

        None if there is no room for it.
        """
        if self._bytes + len(value) > self._max_bytes:
            return None
        event = self._decoder.decode(value, timestamp_ms=timestamp_ms)
        if isinstance(event, DigestedEvent) and value not in self._events:
            self._events[value] = event.conversation_id.encode(), timestamp_ms, event
            self._bytes += len(value)
        return event

    def take(self, record: Record) -> DigestedEvent | None:
        """The record's event, if it is here, for the last time."""
        value = record.value
        if value is None or (found := self._events.pop(value, None)) is None:
            return None
        self._bytes -= len(value)
        if self._bytes <= self._max_bytes // 2:
            self._half_empty.set()
        key, timestamp_ms, event = found
        return event if (key, timestamp_ms) == (record.key, record.timestamp_ms) else None
