"""What a group member needs of Kafka before it joins: clients, access rights, partition counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

from stream_metrics.clients.kafka.aiokafka_private import Consumer, StaticConsumer
from stream_metrics.clients.kafka.annotating_assignor import AnnotatingAssignor
from stream_metrics.clients.kafka.options import client_options
from stream_metrics.clients.kafka.partition_reader import open_consumer, time_at
from stream_metrics.clients.kafka.rights import (
    Right,
    check_rights,
    describe_missing_rights,
    explain,
)
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import partition_counts
from stream_metrics.core.events.record import Extent

MAX_POLL_INTERVAL_MS: Final = 900_000


@dataclass(frozen=True)
class Group:
    """A consumer group: its name, the topics it subscribes to and its partition assignor."""

    name: str
    topics: Sequence[str]
    assignor: type[AbstractPartitionAssignor]


class Cluster:
    """The Kafka cluster of the settings.

    ``rights`` are the access rights to check; if empty, those that a worker needs.
    """

    rights: Sequence[Right] = ()

    def __init__(self, settings: KafkaSettings, rights: Sequence[Right] = ()) -> None:
        self._settings = settings
        self.rights = rights

    def consumer(self, group: Group) -> AIOKafkaConsumer:
        """A consumer for a group member, not started, without automatic commits or resets."""
        settings = self._settings
        named = settings.group_instance_id is not None
        client = StaticConsumer if named else Consumer
        return client(
            **client_options(settings),
            group_id=group.name,
            group_instance_id=settings.group_instance_id,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            partition_assignment_strategy=(
                AnnotatingAssignor(group.assignor) if named else group.assignor,
            ),
            fetch_max_wait_ms=settings.fetch_max_wait_ms,
            max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        )

    def admin(self) -> AIOKafkaAdminClient:
        """An admin client, not started."""
        return AIOKafkaAdminClient(**client_options(self._settings))

    async def check_rights(self) -> None:
        """Raise ``KafkaRefused`` if the user lacks one of the rights."""
        await check_rights(self._settings, self.rights)

    async def lacking(self) -> str:
        """See ``kafka.rights.describe_missing_rights``."""
        return await describe_missing_rights(self._settings, self.rights)

    async def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """See ``kafka.topics.partition_counts``."""
        return await partition_counts(self._settings, topics)

    async def time_at(self, place: TopicPartition, extent: Extent) -> int | None:
        """See ``kafka.partition_reader.time_at``."""
        async with open_consumer(self._settings) as consumer:
            return await time_at(consumer, (place.topic, place.partition), extent)

    async def explain(self, error: Exception) -> str:
        """See ``kafka.rights.explain``."""
        return await explain(self._settings, error)
