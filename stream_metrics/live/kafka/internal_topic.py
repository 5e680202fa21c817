"""The internal topic, which a consumer group of its own fills and workers read instead of the input
topics.

The commits of that group say how far it has read: the metadata of each offset holds the time up to
which the input partition has been read. Workers need that time, because a conversation may expire
only once all of its events have arrived, and some may still be unread in the input topics after a
worker has read the internal topic to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import InvalidTimestampError, KafkaError, MessageSizeTooLargeError
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.clients.kafka.errors import why_not_written
from stream_metrics.clients.kafka.groups import TRANSIENT_ERRORS
from stream_metrics.clients.kafka.options import client_options
from stream_metrics.clients.kafka.records import copy_headers
from stream_metrics.clients.kafka.rights import DENIED
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events.record import Record
from stream_metrics.live.kafka.keyed_producer import KeyedProducer, KeyedRecord
from stream_metrics.live.ports import RepartitionUnavailable
from stream_metrics.live.worker.inputs import note_time_ms
from stream_metrics.live.worker.source import RightsMissing, SourceUnavailable


class KafkaInternalTopic:
    """Produces to ``kafka.repartition_topic``, and waits until all in-sync replicas have it."""

    def __init__(self, settings: KafkaSettings) -> None:
        assert settings.repartition_topic is not None
        self._settings = settings
        self._topic = settings.repartition_topic
        self._producer = KeyedProducer(settings)

    async def send(self, records: Sequence[Record]) -> None:
        """See ``worker.repartition.Internal``."""
        copies = []
        for record in records:
            assert record.key is not None
            headers = copy_headers(record)
            copies.append(
                KeyedRecord(self._topic, record.key, record.value, record.timestamp_ms, headers)
            )
        try:
            if await self._producer.send(copies):
                raise MessageSizeTooLargeError
        except (KafkaError, OSError, TimeoutError) as error:
            raise RepartitionUnavailable(self._why(error)) from error

    def _why(self, error: Exception) -> str:
        if isinstance(error, MessageSizeTooLargeError):
            why = "a record is too large for the topic; raise its `max.message.bytes`"
        elif isinstance(error, InvalidTimestampError):
            why = (
                "it rejects a record's time; raise its `message.timestamp.before.max.ms` and "
                "`message.timestamp.after.max.ms` to those of the input topics"
            )
        else:
            why = why_not_written(error)
        return f"cannot write to the internal topic {self._topic}: {why}"

    async def stop(self) -> None:
        """Disconnect; records that are not sent yet are dropped."""
        await self._producer.stop()


class KafkaUpstream:
    """``ports.Upstream``: the time up to which the internal topic is complete, from the commits."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin: AIOKafkaAdminClient | None = None

    async def read_up_to_ms(self) -> int:
        """See ``ports.Upstream``."""
        try:
            return await self._ask()
        except TRANSIENT_ERRORS:
            return 0
        except BaseException as error:
            await self.stop()
            if isinstance(error, DENIED):
                raise RightsMissing(f"Kafka denies it: {type(error).__name__}") from error
            if isinstance(error, (KafkaError, OSError)):
                why = f"brokers do not answer: {type(error).__name__}"
                raise SourceUnavailable(why) from error
            raise

    async def _ask(self) -> int:
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(**client_options(self._settings))
            await self._admin.start()
        described = await self._admin.describe_topics(list(self._settings.topics))
        commits = await self._admin.list_consumer_group_offsets(self._settings.repartition_group)
        counts = {found["topic"]: len(found["partitions"]) for found in described}
        return filled_up_to_ms({t: counts.get(t, 0) for t in self._settings.topics}, commits)

    async def stop(self) -> None:
        """Disconnect."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()


def filled_up_to_ms(
    counts: Mapping[str, int], commits: Mapping[TopicPartition, OffsetAndMetadata]
) -> int:
    """The earliest of the times up to which the input partitions have been read.

    0 while there is a topic without partitions, or a partition without a commit.
    """
    if not all(counts.values()):
        return 0
    places = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
    return min(note_time_ms(commits[p].metadata) if p in commits else 0 for p in places)
