"""What a member of a group asks of Kafka before it joins: a client, its rights, the topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

from stream_metrics.adapters.kafka.internals import StaticConsumer
from stream_metrics.adapters.kafka.noting import NotingAssignor
from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.adapters.kafka.reading import reading, time_at
from stream_metrics.adapters.kafka.rights import Right, check_rights, explain, lacking
from stream_metrics.adapters.kafka.topics import partition_counts
from stream_metrics.events.record import Extent
from stream_metrics.settings.kafka import KafkaSettings

MAX_POLL_INTERVAL_MS: Final = 900_000


@dataclass(frozen=True)
class Group:
    """A consumer group, what its members subscribe to, and how partitions are shared out."""

    name: str
    topics: Sequence[str]
    assignor: type[AbstractPartitionAssignor]


class Cluster:
    """Kafka, as the settings reach it.

    ``rights`` are what is needed there; none stand for all that a worker needs.
    """

    rights: Sequence[Right] = ()

    def __init__(self, settings: KafkaSettings, rights: Sequence[Right] = ()) -> None:
        self._settings = settings
        self.rights = rights

    def consumer(self, group: Group) -> AIOKafkaConsumer:
        """A client for a member of the group, not started; it commits and seeks when told to."""
        settings = self._settings
        named = settings.group_instance_id is not None
        client = StaticConsumer if named else AIOKafkaConsumer
        return client(
            **client_options(settings),
            group_id=group.name,
            group_instance_id=settings.group_instance_id,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            partition_assignment_strategy=(
                NotingAssignor(group.assignor) if named else group.assignor,
            ),
            fetch_max_wait_ms=settings.fetch_max_wait_ms,
            max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        )

    def admin(self) -> AIOKafkaAdminClient:
        """A client that asks on a group's behalf, not started."""
        return AIOKafkaAdminClient(**client_options(self._settings))

    async def check_rights(self) -> None:
        """Raise ``KafkaRefused`` unless the user has the rights."""
        await check_rights(self._settings, self.rights)

    async def lacking(self) -> str:
        """See ``adapters.kafka.rights.lacking``."""
        return await lacking(self._settings, self.rights)

    async def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """See ``adapters.kafka.topics.partition_counts``."""
        return await partition_counts(self._settings, topics)

    async def time_at(self, place: TopicPartition, extent: Extent) -> int | None:
        """See ``adapters.kafka.reading.time_at``."""
        async with reading(self._settings) as consumer:
            return await time_at(consumer, (place.topic, place.partition), extent)

    async def explain(self, error: Exception) -> str:
        """See ``adapters.kafka.rights.explain``."""
        return await explain(self._settings, error)
