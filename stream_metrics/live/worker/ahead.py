"""Events that whoever receives them decodes, so that the loop need not decode them again.

A receiver decodes an event to tell whether it is valid. What a decoder returns depends on its
arguments alone; so where the loop would decode the same record with the same options, it takes that
event.
"""

from __future__ import annotations

from typing import NamedTuple

from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.record import Record
from stream_metrics.live.worker.options import PartitionOptions


class Decoded(NamedTuple):
    """An event, and the options with which it was decoded."""

    event: DigestedEvent
    options: PartitionOptions


class DecodedRecord(Record, frozen=True, gc=False, kw_only=True):
    """A record whose event was decoded."""

    decoded: Decoded


class AheadDecoder:
    """Decodes events as the partitions with these options do."""

    def __init__(self, options: PartitionOptions) -> None:
        self._options = options
        engine, key_id = options.engine, options.key_id
        dedup = options.dedups.of(engine.rules, options.keys[key_id])
        self._decoder = RecordDecoder(dedup, key_id, engine.rules.tables, engine.limits)

    def decode(self, value: bytes, timestamp_ms: int) -> Decoded | BadRecord:
        """The event of a record with this timestamp, and its conversation as the key; or why such a
        record is rejected."""
        found = self._decoder.decode(value, timestamp_ms=timestamp_ms)
        return found if isinstance(found, BadRecord) else Decoded(found, self._options)


def event_of(record: Record, options: PartitionOptions) -> DigestedEvent | None:
    """The event of a record that was decoded with these options; else None."""
    if isinstance(record, DecodedRecord) and record.decoded.options is options:
        return record.decoded.event
    return None
