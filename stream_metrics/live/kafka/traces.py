"""Reads the topic of traces (``bridge.traces``) and writes to the input topics for the bridge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import InvalidTimestampError, KafkaError

from stream_metrics.clients.kafka.errors import why_not_written
from stream_metrics.clients.kafka.records import record_of
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import TopicsMissing, check_input_topics
from stream_metrics.live.bridge.bridge import Told
from stream_metrics.live.kafka.cluster import Cluster, Group
from stream_metrics.live.kafka.group_source import KafkaSource
from stream_metrics.live.kafka.keyed_producer import KeyedProducer, KeyedRecord
from stream_metrics.live.ports import InputTopicsUnavailable
from stream_metrics.live.worker.retry import Reasons, RetryPolicy


def traces_source(
    settings: KafkaSettings,
    cluster: Cluster,
    events: Sequence[str],
    retry: RetryPolicy,
    reasons: Reasons,
) -> KafkaSource:
    """The source of a bridge that writes to the topics ``events``; all topics must exist."""

    async def counts() -> dict[str, int]:
        topics = settings.state_topics
        found = await cluster.partition_counts([*topics, *events])
        for topic in topics:
            if topic not in found:
                raise TopicsMissing(
                    f"the topic of traces does not exist: {topic}. Create it with "
                    "message.timestamp.type=LogAppendTime, or correct `bridge.topic`"
                )
        check_input_topics(events, found)
        return {topic: found[topic] for topic in topics}

    group = Group(settings.group_id, settings.state_topics, RoundRobinPartitionAssignor)
    record = partial(record_of, internal_topic=settings.repartition_topic)
    return KafkaSource(settings, cluster, group, counts, record, retry, reasons)


class KafkaEventWriter:
    """Implements ``bridge.bridge.EventWriter``: each event goes to the topic that ``topic_of``
    returns."""

    def __init__(self, settings: KafkaSettings, topic_of: Callable[[bytes], str]) -> None:
        self._settings = settings
        self._topic_of = topic_of
        self._producer = KeyedProducer(settings)

    async def send(self, told: Sequence[Told]) -> Sequence[Told]:
        """See ``bridge.bridge.EventWriter``."""
        records = {
            KeyedRecord(
                self._topic_of(one.event.value), one.event.conversation.encode(), one.event.value
            ): one
            for one in told
        }
        try:
            large = await self._producer.send(list(records))
        except (KafkaError, OSError, TimeoutError) as error:
            topics = ", ".join(sorted({record.topic for record in records}))
            raise InputTopicsUnavailable(f"cannot write to {topics}: {_why(error)}") from error
        return [records[record] for record in large]

    async def stop(self) -> None:
        """Disconnect; unsent records are dropped."""
        await self._producer.stop()


def _why(error: Exception) -> str:
    if isinstance(error, InvalidTimestampError):
        return "the topic rejects the present time; check this machine's clock"
    return why_not_written(error)
