"""Records of several logs in one order that depends on nothing but the records.

The next record is always the one with the smallest timestamp among the first unread ones of all
partitions; of equal ones that of the first topic by name, then of the lowest partition. So
searches and their labels come about as they did live, at every run in the same order, and each
partition's records in the order of their offsets.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_metrics.adapters.kafka.reading import Place, rounds_between

QUIET_SECONDS: Final = 5.0  # without a record, after which the brokers are asked whether they live
HELD_BYTES: Final = 64 << 20  # fetched at once, of all partitions together
LEAST_FETCH_BYTES: Final = 256 << 10


def partition_fetch_bytes(partitions: int) -> int:
    """How much to fetch of each of so many partitions: one fetch of each is held."""
    return max(LEAST_FETCH_BYTES, HELD_BYTES // max(1, partitions))


class Merger:
    """Puts records of several places in order, as they come in."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._held: dict[Place, deque[Any]] = {place: deque() for place in places}
        self._heads: list[tuple[int, Place]] = []

    def add(self, found: Mapping[Place, Sequence[Any]]) -> None:
        """Hold further records, in the order of each place."""
        for place, records in found.items():
            held = self._held[place]
            if records and not held:
                heapq.heappush(self._heads, (records[0].timestamp, place))
            held.extend(records)

    def dry(self, left: Collection[Place]) -> set[Place]:
        """Those of the places with records to come of which none is held."""
        return {place for place in left if not self._held[place]}

    def take(self, left: Collection[Place]) -> list[Any]:
        """The next records, up to where it is not known which comes next."""
        taken: list[Any] = []
        if self.dry(left):
            return taken
        while self._heads:
            place = self._heads[0][1]
            held = self._held[place]
            taken.append(held.popleft())
            if held:
                heapq.heapreplace(self._heads, (held[0].timestamp, place))
                continue
            heapq.heappop(self._heads)
            if place in left:
                break
        return taken


async def merged_between(
    consumer: AIOKafkaConsumer, starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> AsyncIterator[list[Any]]:
    """The client's records from each start to before each end, merged, some at a time.

    Raises ``RecordsGone`` if Kafka deletes some before they are read, and aiokafka's errors, also
    if for a while no broker answers.
    """
    merger = Merger(starts)
    heard = time.monotonic()
    async for found, left in rounds_between(consumer, starts, ends):
        merger.add(found)
        taken = merger.take(left)
        # Those whose next record is known wait, so that one fetch of each is all that is held.
        dry = merger.dry(left)
        consumer.pause(*(TopicPartition(*place) for place in left - dry))
        consumer.resume(*(TopicPartition(*place) for place in dry))
        if taken:
            yield taken
        if found:
            heard = time.monotonic()
        elif left and time.monotonic() - heard > QUIET_SECONDS:
            await consumer.end_offsets([TopicPartition(*place) for place in left])
            heard = time.monotonic()
