"""Assembles traces from topics in a replay, by the rules of the bridge but with a fixed end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry.assembly import Assembly, Bounds, ClosedTrace
from stream_metrics.core.telemetry.otlp.payloads import (
    UNREADABLE,
    id_of_key,
    spans_of,
    trace_ids_of,
)
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.otlp.traces import TraceCounts

TopicPartition = tuple[str, int]  # topic and partition


class UnreadableRecord(Exception):
    """A record is not an OTLP payload; ``closed`` is the trace refused for it, if it is known."""

    def __init__(self, closed: list[ClosedTrace]) -> None:
        super().__init__("no OTLP traces")
        self.closed = closed


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The part of a partition that is read.

    Attributes:
        first, end: A trace is used if its first record is at or after ``first`` and before ``end``.
            Earlier records show which traces began before, later ones may close traces.
        is_cut: Whether earlier records were deleted.
    """

    first: int
    end: int
    is_cut: bool = False


class TopicAssembler:
    """Assembles the traces of topics as ``bridge.bridge`` does."""

    def __init__(self, bounds: Bounds) -> None:
        self._payloads = 0
        self._early = 0  # spans of traces that may have begun before the range: not used
        self._bounds = bounds
        self._assemblies: dict[TopicPartition, Assembly] = {}
        self._parts: dict[TopicPartition, PartitionRange] = {}
        self._early_until_ms: dict[TopicPartition, int] = {}

    def count(self, counts: TraceCounts) -> None:
        """Add the payloads and spans read, and the late and early spans."""
        late = sum(one.late for one in self._assemblies.values())
        spans = sum(one.spans for one in self._assemblies.values())
        counts.payloads += self._payloads
        counts.spans += spans + self._early
        counts.late += late
        counts.early += self._early

    def read(self, record: Record, part: PartitionRange) -> list[ClosedTrace]:
        """Add a payload; the traces that it closes.

        Raises ``UnreadableRecord`` for a record that is not a payload.
        """
        partition, time_ms = (record.topic, record.partition), record.timestamp_ms or 0
        assembly = self._assembly_of(partition, part, record)
        try:
            if self._is_early(partition, part, record):
                ids = trace_ids_of(record.value or b"")
                self._early += len(ids)
                assembly.note(time_ms, ids)
                return []
            found = spans_of(record.value or b"")
        except OtlpError as error:
            raise UnreadableRecord(self.refuse(record, part)) from error
        self._payloads += 1
        return _within(part, assembly.read(record.offset, time_ms, found))

    def refuse(self, record: Record, part: PartitionRange) -> list[ClosedTrace]:
        """Refuse the trace that the key of an unreadable record names; the traces that closes."""
        trace_id = id_of_key(record.key)
        if trace_id is None:
            return []
        partition, time_ms = (record.topic, record.partition), record.timestamp_ms or 0
        assembly = self._assembly_of(partition, part, record)
        if self._is_early(partition, part, record):
            assembly.note(time_ms, [trace_id])
            return []
        message = f"the record at offset {record.offset} cannot be read"
        closed = assembly.refuse(record.offset, time_ms, [trace_id], UNREADABLE, message)
        return _within(part, closed)

    def finish(self) -> Iterator[ClosedTrace]:
        """All open traces."""
        for partition, assembly in sorted(self._assemblies.items()):
            yield from _within(self._parts[partition], assembly.finish())

    def _assembly_of(
        self, partition: TopicPartition, part: PartitionRange, record: Record
    ) -> Assembly:
        found = self._assemblies.get(partition)
        if found is None:
            found = self._assemblies[partition] = Assembly(self._bounds)
            self._parts[partition] = part
            if part.is_cut:
                until_ms = (record.timestamp_ms or 0) + self._bounds.known_ms
                self._early_until_ms[partition] = until_ms
        return found

    def _is_early(self, partition: TopicPartition, part: PartitionRange, record: Record) -> bool:
        """Whether the record's traces may have begun before the range that is read."""
        if record.offset < part.first:
            return True
        until_ms = self._early_until_ms.get(partition)
        if until_ms is not None and (record.timestamp_ms or 0) < until_ms:
            return True
        self._early_until_ms.pop(partition, None)
        return False


def _within(part: PartitionRange, closed: list[ClosedTrace]) -> list[ClosedTrace]:
    return [one for one in closed if one.offset < part.end]
