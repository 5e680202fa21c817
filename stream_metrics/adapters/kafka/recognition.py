"""Recognising a log: the record before a stored offset must be the one that was read there.

Whoever takes a partition over reads that record once more. If it is another one, the topic was made
anew or truncated, though its offsets may look right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition

from stream_metrics.adapters.kafka.records import record_of
from stream_metrics.ports import Position, Record
from stream_metrics.worker.partition import StatePartition
from stream_metrics.worker.takeover import OffsetGap, other_record


class Recognition:
    """Which logs have yet to be recognised, and those that were not; ``internal`` is the topic of
    copies, if there is one."""

    def __init__(self, internal: str | None) -> None:
        self._internal = internal
        self._expected: dict[TopicPartition, Position] = {}
        self._gaps: dict[int, list[OffsetGap]] = {}

    def begin(self, place: TopicPartition, position: Position, first: int) -> int:
        """From where to read a log that begins at ``first``: one record back, if there is one."""
        back = position.last_digest and position.offset > first
        self.forget(place)
        if back:
            self._expected[place] = position
        return position.offset - 1 if back else position.offset

    def forget(self, place: TopicPartition) -> None:
        """The log is not read any more."""
        self._expected.pop(place, None)

    def expects(self, place: TopicPartition) -> bool:
        """Whether the record before the stored offset has yet to come."""
        return place in self._expected

    def passed(self, place: TopicPartition, offset: int) -> None:
        """Nothing else comes before this offset: a marker may stand where a record is expected."""
        expected = self._expected.get(place)
        if expected is not None and offset >= expected.offset:
            self.forget(place)

    def new(
        self, place: TopicPartition, found: Sequence[Any], partition: StatePartition
    ) -> list[Record]:
        """The fetched records that the state does not have; none of a log that is another one."""
        records = [record_of(record, self._internal) for record in found]
        if place in self._expected and not self._recognise(place, records[0], partition):
            return []
        stored = partition.positions[place.topic].offset
        if records[0].offset < stored:
            records = [record for record in records if record.offset >= stored]
        return records

    def _recognise(self, place: TopicPartition, first: Record, partition: StatePartition) -> bool:
        position = self._expected.pop(place)
        if first.offset != position.offset - 1:
            return True  # compacted away
        if (
            first.timestamp_ms == position.last_timestamp_ms
            and partition.record_digest(first) == position.last_digest
        ):
            return True
        gap = other_record(place.topic, position.offset)
        self._gaps.setdefault(place.partition, []).append(gap)
        return False

    def has_gaps(self, number: int) -> bool:
        """Whether a log of this number is another one."""
        return number in self._gaps

    def take_gaps(self) -> dict[int, list[OffsetGap]]:
        """What was not recognised since the last call, by partition number."""
        gaps, self._gaps = self._gaps, {}
        return gaps
