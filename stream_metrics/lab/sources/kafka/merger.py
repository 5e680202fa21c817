"""Merges the records of several partitions by timestamp, in the same order on every run.

The next record is the one with the smallest timestamp among the first unread records of all
partitions; ties go to the first topic by name, then to the lowest partition. So searches and their
labels arrive in about the order they had live, and each partition's records in offset order.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_metrics.clients.kafka.partition_reader import PartitionId, rounds_between

IDLE_SECONDS: Final = 5.0  # without a record, after which a request checks that brokers answer
BUFFER_BYTES: Final = 64 << 20  # fetched at a time, of all partitions together
MIN_FETCH_BYTES: Final = 256 << 10


def partition_fetch_bytes(partitions: int) -> int:
    """Bytes to fetch per partition, since one fetch of each partition is buffered."""
    return max(MIN_FETCH_BYTES, BUFFER_BYTES // max(1, partitions))


class Merger:
    """Merges the records of several partitions as they arrive."""

    def __init__(self, places: Iterable[PartitionId]) -> None:
        self._buffers: dict[PartitionId, deque[Any]] = {place: deque() for place in places}
        self._heads: list[tuple[int, PartitionId]] = []

    def add(self, found: Mapping[PartitionId, Sequence[Any]]) -> None:
        """Buffer further records, each partition's in offset order."""
        for place, records in found.items():
            held = self._buffers[place]
            if records and not held:
                heapq.heappush(self._heads, (records[0].timestamp, place))
            held.extend(records)

    def starved(self, left: Collection[PartitionId]) -> set[PartitionId]:
        """Those of the unfinished partitions ``left`` without a buffered record."""
        return {place for place in left if not self._buffers[place]}

    def take(self, left: Collection[PartitionId]) -> list[Any]:
        """Remove and return the next records, as far as their order is known."""
        taken: list[Any] = []
        if self.starved(left):
            return taken
        while self._heads:
            place = self._heads[0][1]
            held = self._buffers[place]
            taken.append(held.popleft())
            if held:
                heapq.heapreplace(self._heads, (held[0].timestamp, place))
                continue
            heapq.heappop(self._heads)
            if place in left:
                break
        return taken


async def merged_between(
    consumer: AIOKafkaConsumer, starts: Mapping[PartitionId, int], ends: Mapping[PartitionId, int]
) -> AsyncGenerator[list[Any], None]:
    """The client's records from each start to before each end, merged, in batches.

    Raises ``RecordsGone`` if Kafka deletes some before they are read, and aiokafka's errors, also
    if no broker answers for a while.
    """
    merger = Merger(starts)
    last_found = time.monotonic()
    async with aclosing(rounds_between(consumer, starts, ends)) as rounds:
        async for found, left in rounds:
            merger.add(found)
            taken = merger.take(left)
            # Partitions with a buffered record are paused: at most one fetch of each is held.
            starved = merger.starved(left)
            consumer.pause(*(TopicPartition(*place) for place in left - starved))
            consumer.resume(*(TopicPartition(*place) for place in starved))
            if taken:
                yield taken
            if found:
                last_found = time.monotonic()
            elif left and time.monotonic() - last_found > IDLE_SECONDS:
                await consumer.end_offsets([TopicPartition(*place) for place in left])
                last_found = time.monotonic()
