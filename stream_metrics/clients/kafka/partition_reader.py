"""Reads ranges of partitions once, without a consumer group."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from stream_metrics.clients.kafka.aiokafka_private import Consumer
from stream_metrics.clients.kafka.options import client_options
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events.record import Extent, bounded_timestamp

PartitionId = tuple[str, int]  # topic and partition
WAIT_MS: Final = 500


class RecordsGone(KafkaError):  # type: ignore[misc]
    """The offset to read next no longer exists in the partition."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        listed = ", ".join(f"{p.topic}/{p.partition} from {o}" for p, o in offsets.items())
        super().__init__(f"records were deleted before they could be read: {listed}")


@asynccontextmanager
async def open_consumer(
    settings: KafkaSettings, partition_fetch_bytes: int | None = None
) -> AsyncIterator[AIOKafkaConsumer]:
    """A connected consumer without a group; raises aiokafka's errors.

    ``partition_fetch_bytes`` limits a fetch from one partition, unless the settings are lower.
    """
    usual = settings.max_partition_fetch_bytes
    consumer = Consumer(
        **client_options(settings),
        isolation_level="read_committed",
        max_partition_fetch_bytes=min(usual, partition_fetch_bytes or usual),
        auto_offset_reset="none",  # or records deleted meanwhile would be skipped silently
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def extents(
    consumer: AIOKafkaConsumer, places: Collection[PartitionId]
) -> dict[PartitionId, Extent]:
    """The current first and end offsets of each partition."""
    partitions = [TopicPartition(*place) for place in places]
    firsts = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    return {(p.topic, p.partition): Extent(firsts[p], ends[p]) for p in partitions}


async def time_at(consumer: AIOKafkaConsumer, place: PartitionId, extent: Extent) -> int | None:
    """The timestamp of the first record between two offsets; None if there is none.

    Assigns the partition to the consumer.
    """
    partition = TopicPartition(*place)
    consumer.assign([partition])
    consumer.seek(partition, extent.first)
    while await consumer.position(partition) < extent.end:
        for records in (await consumer.getmany(timeout_ms=WAIT_MS, max_records=1)).values():
            return bounded_timestamp(records[0].timestamp)
    return None


async def rounds_between(
    consumer: AIOKafkaConsumer, starts: Mapping[PartitionId, int], ends: Mapping[PartitionId, int]
) -> AsyncGenerator[tuple[dict[PartitionId, list[Any]], frozenset[PartitionId]], None]:
    """The client's records from each start to before each end, as they arrive.

    Each round has the records by partition, and the partitions that are not read to their ends yet;
    the caller may pause and resume those. Raises ``RecordsGone`` if Kafka deletes some records
    before they are read.
    """
    partitions = {
        TopicPartition(*place): ends[place] for place in starts if starts[place] < ends[place]
    }
    consumer.assign(list(partitions))
    for partition in partitions:
        consumer.seek(partition, starts[partition.topic, partition.partition])
    left = set(partitions)
    while left:
        try:
            fetched = await consumer.getmany(timeout_ms=WAIT_MS)
        except OffsetOutOfRangeError as error:
            raise RecordsGone(error.args[0]) from error
        found = {
            (partition.topic, partition.partition): [
                record for record in records if record.offset < partitions[partition]
            ]
            for partition, records in fetched.items()
        }
        left = {p for p in left if await consumer.position(p) < partitions[p]}
        consumer.pause(*(partitions.keys() - left))
        yield found, frozenset((p.topic, p.partition) for p in left)


async def records_between(
    consumer: AIOKafkaConsumer, starts: Mapping[PartitionId, int], ends: Mapping[PartitionId, int]
) -> AsyncGenerator[Any, None]:
    """The records of ``rounds_between``, one by one."""
    async with aclosing(rounds_between(consumer, starts, ends)) as rounds:
        async for found, _ in rounds:
            for records in found.values():
                for record in records:
                    yield record


class KafkaLogs:
    """Looks up offsets and times, with a consumer that has no group."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def extents(self, places: Collection[PartitionId]) -> Mapping[PartitionId, Extent]:
        """The current first and end offsets of each partition."""
        return await extents(self._consumer, places)

    async def oldest_ms(self, places: Collection[PartitionId]) -> Mapping[PartitionId, int]:
        """The timestamp of the first record of each partition; empty partitions are left out."""
        if not places:
            return {}
        wanted = {TopicPartition(*place): 0 for place in places}
        found = await self._consumer.offsets_for_times(wanted)
        return {
            (place.topic, place.partition): bounded_timestamp(first.timestamp)
            for place, first in found.items()
            if first is not None
        }
