"""The log behind a partition number, and the group's commits, as the brokers tell them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.adapters.kafka.membership import Membership
from stream_metrics.worker.takeover import Extent, Positions

FRESH: Final = "stream-metrics: nothing written yet"

Retry = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class KafkaLog:
    """A ``worker.takeover.Log`` as a member asks; ``retry`` repeats while brokers are away."""

    def __init__(self, group: Membership, topics: Sequence[str], retry: Retry) -> None:
        self._group = group
        self._topics = tuple(topics)
        self._retry = retry

    async def extents(self, number: int, *, commits: bool) -> Mapping[str, Extent]:
        """See ``Log.extents``."""
        places = [TopicPartition(topic, number) for topic in self._topics]

        async def ask() -> dict[str, Extent]:
            firsts = await self._group.consumer.beginning_offsets(places)
            ends = await self._group.consumer.end_offsets(places)
            committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
            if commits:  # the public method gives the offset without the note
                committed = await self._group.consumer._coordinator.fetch_committed_offsets(places)
            found = {}
            for place in places:
                commit = committed.get(place)
                found[place.topic] = Extent(
                    firsts[place],
                    ends[place],
                    commit.offset if commit else None,
                    bool(commit and commit.metadata == FRESH),
                )
            return found

        extents: dict[str, Extent] = await self._retry(ask)
        return extents

    async def confirm(self, number: int, positions: Positions, *, fresh: bool) -> bool:
        """See ``Log.confirm``.

        If it fails, the client joins the group anew. Nothing may be committed meanwhile, since
        that would make it begin again; the listener says when there is an assignment.
        """
        note = FRESH if fresh else ""
        offsets = {
            TopicPartition(topic, number): OffsetAndMetadata(position.offset, note)
            for topic, position in positions.items()
        }

        async def commit() -> bool:
            try:
                await self._group.consumer.commit(offsets)
            except (CommitFailedError, IllegalStateError):
                return False
            return True

        return bool(await self._retry(commit))
