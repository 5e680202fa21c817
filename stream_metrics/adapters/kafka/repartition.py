"""The part of a worker that fills the internal topic: ``worker.repartition`` over Kafka."""

from __future__ import annotations

from typing import Protocol

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from stream_metrics.adapters.kafka.cluster import Cluster, Group
from stream_metrics.adapters.kafka.dead_letters import KafkaDeadLetters
from stream_metrics.adapters.kafka.internal import KafkaInternal
from stream_metrics.adapters.kafka.member import KafkaSource
from stream_metrics.adapters.kafka.records import record_to_pass_on
from stream_metrics.adapters.kafka.topics import check_input_topics
from stream_metrics.ports import DeadLetters
from stream_metrics.settings.kafka import KafkaSettings
from stream_metrics.worker.clock import Clock
from stream_metrics.worker.inputs import CommittedInputs, InputOptions
from stream_metrics.worker.lag import Gauges
from stream_metrics.worker.patience import Patience, Reasons
from stream_metrics.worker.repartition import Counts, Repartitioner, Route
from stream_metrics.worker.watchdog import Standing


def inputs_source(
    settings: KafkaSettings, cluster: Cluster, patience: Patience, reasons: Reasons
) -> KafkaSource:
    """``kafka.topics``, as a member of the copying group reads them."""

    async def counts() -> dict[str, int]:
        found = await cluster.partition_counts(settings.topics)
        check_input_topics(settings.topics, found)
        return found

    group = Group(settings.repartition_group, settings.topics, RoundRobinPartitionAssignor)
    return KafkaSource(settings, cluster, group, counts, record_to_pass_on, patience, reasons)


class Operations(Gauges, Counts, Protocol):
    """What is told of the copying."""


class KafkaRepartition:
    """Copies the input topics to ``kafka.repartition_topic`` until it is told to stop.

    Records without a conversation go to ``letters``, or else to the dead-letter topics.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        route: Route,
        reasons: Reasons,
        operations: Operations,
        clock: Clock,
        letters: DeadLetters | None = None,
    ) -> None:
        self._patience = Patience(reasons, lambda: None)
        source = inputs_source(settings, cluster, self._patience, reasons)
        options = InputOptions(settings.repartition_group, settings.on_offset_gap, settings.start)
        self._inputs = CommittedInputs(source, options, self._patience, reasons, operations, clock)
        self._internal = KafkaInternal(settings)
        self._letters = KafkaDeadLetters(settings, clock.now_ms)
        to = self._letters if letters is None else letters
        self._repartitioner = Repartitioner(
            self._inputs, self._internal, to, route, self._patience, operations
        )

    def standing(self, waiting: frozenset[str]) -> Standing:
        """How far it is, for the watchdog."""
        return self._inputs.standing(waiting)

    async def run(self) -> None:
        """Work until ``stop``; raises ``TopicsMissing`` if an input topic is not there."""
        try:
            await self._patience.rounds(self._repartitioner.turn)
        finally:
            await self._inputs.stop()
            await self._internal.stop()
            await self._letters.stop()

    def stop(self) -> None:
        """Finish the round in hand and leave the group."""
        self._patience.stop()
