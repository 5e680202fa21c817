"""Records as they lie in a log, before anyone reads them as events."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct, structs

MAX_TIMESTAMP_MS = 253_402_300_799_999  # the year 9999; producers may stamp records with anything


def bounded_timestamp(timestamp_ms: int) -> int:
    """A record's timestamp, within what can be stored and compared everywhere; -1 stays."""
    if -1 <= timestamp_ms <= MAX_TIMESTAMP_MS:
        return timestamp_ms
    return -1 if timestamp_ms < 0 else MAX_TIMESTAMP_MS


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record stood, and under which key, before it was repartitioned."""

    topic: str
    partition: int
    offset: int
    key: bytes | None


class Record(Struct, frozen=True, gc=False):
    """One record of an input topic (or line of a file, where topic and place may be unknown).

    ``headers`` are there where a record is to be passed on. ``origin`` is told of a record that was
    repartitioned.
    """

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    topic: str = ""
    partition: int = 0
    offset: int = 0
    headers: Headers = ()
    origin: Origin | None = None

    @property
    def produced(self) -> Record:
        """The record as produced: with its original key, topic, partition and offset."""
        origin = self.origin
        if origin is None:
            return self
        return structs.replace(
            self,
            key=origin.key,
            topic=origin.topic,
            partition=origin.partition,
            offset=origin.offset,
            origin=None,
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that was turned away, and why; the message quotes nothing that it holds."""

    record: Record
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Extent:
    """A log has the records from ``first`` to before ``end``, except for holes."""

    first: int
    end: int

    def nearest(self, offset: int) -> int:
        """The offset itself if one can read from there, else the end that is next to it."""
        return max(self.first, min(offset, self.end))
