"""The range of offsets to read of each partition, between two marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_metrics.clients.kafka.partition_reader import PartitionId, extents
from stream_metrics.lab.sources.kafka.mark import Mark


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets to read of a partition: from ``first`` to before ``end``.

    ``missed`` is the number of requested offsets before ``first`` that no longer exist.
    """

    first: int
    end: int
    missed: int = 0

    @property
    def size(self) -> int:
        """The number of offsets; compaction and transactions can leave fewer records."""
        return self.end - self.first


async def spans(
    consumer: AIOKafkaConsumer, counts: Mapping[str, int], since: Mark, until: Mark
) -> dict[PartitionId, Span]:
    """The span of each partition; ``counts`` has the partition counts of the topics.

    ``END`` is the current end. Raises aiokafka's errors.
    """
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    logs = await extents(consumer, places)
    firsts = await _offsets(consumer, places, since)
    ends = await _offsets(consumer, places, until)
    found = {}
    for place, log in logs.items():
        asked = firsts.get(place, log.end if since.kind in ("time", "end") else log.first)
        first = min(max(asked, log.first), log.end)
        end = min(ends.get(place, log.end), log.end) if until.kind != "earliest" else log.first
        found[place] = Span(first, max(first, end), max(0, log.first - asked))
    return found


async def _offsets(
    consumer: AIOKafkaConsumer, places: list[PartitionId], mark: Mark
) -> dict[PartitionId, int]:
    """The offset of the mark in each partition; partitions without a record there are left out."""
    if mark.kind == "offset":
        return dict.fromkeys(places, mark.value)
    if mark.kind != "time":
        return {}
    wanted = {TopicPartition(*place): mark.value for place in places}
    found = await consumer.offsets_for_times(wanted)
    return {(p.topic, p.partition): at.offset for p, at in found.items() if at is not None}
