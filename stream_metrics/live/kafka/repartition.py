"""The worker's repartitioner, which fills the internal topic: ``worker.repartition`` on Kafka."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from stream_metrics.clients.kafka.records import record_with_headers
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import check_input_topics
from stream_metrics.live.kafka.cluster import Cluster, Group
from stream_metrics.live.kafka.dead_letter_producer import KafkaDeadLetters
from stream_metrics.live.kafka.group_source import KafkaSource
from stream_metrics.live.kafka.internal_topic import KafkaInternalTopic
from stream_metrics.live.ports import DeadLetters
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.inputs import CommittedInputs, InputOptions
from stream_metrics.live.worker.lag import Gauges
from stream_metrics.live.worker.repartition import Counts, Repartitioner, Route
from stream_metrics.live.worker.retry import Reasons, RetryPolicy
from stream_metrics.live.worker.watchdog import WorkerStatus


def input_source(
    settings: KafkaSettings, cluster: Cluster, retry: RetryPolicy, reasons: Reasons
) -> KafkaSource:
    """A source that reads ``kafka.topics`` as a member of ``kafka.repartition_group``."""

    async def counts() -> dict[str, int]:
        found = await cluster.partition_counts(settings.topics)
        check_input_topics(settings.topics, found)
        return found

    group = Group(settings.repartition_group, settings.topics, RoundRobinPartitionAssignor)
    record = partial(record_with_headers, value_format=settings.value_format)
    return KafkaSource(settings, cluster, group, counts, record, retry, reasons)


class RepartitionMetrics(Gauges, Counts, Protocol):
    """The metrics of the repartitioner."""


class KafkaRepartition:
    """Copies the input topics to ``kafka.repartition_topic`` until ``stop``.

    Records without a conversation id go to ``letters``, by default the dead-letter topics.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        route: Route,
        reasons: Reasons,
        operations: RepartitionMetrics,
        clock: Clock,
        letters: DeadLetters | None = None,
    ) -> None:
        self._retry = RetryPolicy(reasons, lambda: None)
        source = input_source(settings, cluster, self._retry, reasons)
        options = InputOptions(settings.repartition_group, settings.on_offset_gap, settings.start)
        self._inputs = CommittedInputs(source, options, self._retry, reasons, operations, clock)
        self._internal = KafkaInternalTopic(settings)
        self._letters = KafkaDeadLetters(settings, clock.now_ms)
        to = self._letters if letters is None else letters
        self._repartitioner = Repartitioner(
            self._inputs, self._internal, to, route, self._retry, operations
        )

    def status(self, waiting: frozenset[str]) -> WorkerStatus:
        """How far it is, for the watchdog."""
        return self._inputs.status(waiting)

    async def run(self) -> None:
        """Run until ``stop``; raises ``TopicsMissing`` if an input topic does not exist."""
        try:
            await self._inputs.run(self._repartitioner.turn)
        finally:
            await self._inputs.stop()
            await self._internal.stop()
            await self._letters.stop()

    def stop(self) -> None:
        """Finish the current round and leave the group."""
        self._retry.stop()
