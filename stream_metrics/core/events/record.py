"""Kafka records before they are decoded as events."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct, structs

from stream_metrics.core.events.bugs import Bug

MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of year 9999


def bounded_timestamp(timestamp_ms: int) -> int:
    """Clamp a timestamp to what can be stored and compared everywhere; -1 (none) is unchanged."""
    if -1 <= timestamp_ms <= MAX_TIMESTAMP_MS:
        return timestamp_ms
    return -1 if timestamp_ms < 0 else MAX_TIMESTAMP_MS


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """The position and key of a record before it was repartitioned."""

    topic: str
    partition: int
    offset: int
    key: bytes | None


class Record(Struct, frozen=True, gc=False):
    """A record of an input topic, or a line of a file, whose topic and position may be unknown.

    ``headers`` are set for records that may be forwarded, ``origin`` for repartitioned ones.
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
    """A record that was turned away, and why; the message quotes nothing that it holds.

    ``bug`` is set if the record is not at fault.
    """

    record: Record
    reason: str
    message: str
    bug: Bug | None = None

    @classmethod
    def of_bug(cls, record: Record, error: Exception, met: str = "") -> DeadLetter:
        """The letter of a record that met a bug; ``met`` says in what, if that is not the record.

        Call it in the ``except`` clause.
        """
        bug = Bug.of(error)
        return cls(record, "internal_error", f"a bug{met and f', met in {met}'}: {bug.kind}", bug)


@dataclass(frozen=True, slots=True)
class Extent:
    """A log has the records from ``first`` to before ``end``, except for holes."""

    first: int
    end: int

    def nearest(self, offset: int) -> int:
        """The offset itself if one can read from there, else the end that is next to it."""
        return max(self.first, min(offset, self.end))
