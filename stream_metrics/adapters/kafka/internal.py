"""The internal topic: filled by a consumer group of its own, and read in place of the input topics.

How far that group has read is in its commits: beside each offset stands up to when the input
partition has been read. Workers must know it: a conversation may only expire once all of its events
have come, and those may lie unread in the input topics though the internal one is read to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import InvalidTimestampError, KafkaError, MessageSizeTooLargeError
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.adapters.kafka.commits import note_ms
from stream_metrics.adapters.kafka.groups import PASSING
from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.adapters.kafka.partitioners import PARTITIONERS
from stream_metrics.adapters.kafka.produce import LARGEST_BYTES, abandon
from stream_metrics.adapters.kafka.records import copy_headers
from stream_metrics.ports import Record, RepartitionUnavailable
from stream_metrics.settings import KafkaSettings

ANSWER_WITHIN_MS: Final = 4_000  # of one request
DONE_WITHIN_SECONDS: Final = 10.0  # then the worker says what it waits for, and tries again
STOP_WITHIN_SECONDS: Final = 2.0
BATCH_BYTES: Final = 256 * 1024
LINGER_MS: Final = 5


class KafkaInternal:
    """Produces to ``kafka.repartition_topic``, and waits until all replicas in sync have it.

    Idempotent, so that the records of a key keep their order. After an error the producer is given
    up, and all of the call's records are sent again.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        assert settings.repartition_topic is not None
        self._settings = settings
        self._topic = settings.repartition_topic
        self._producer: AIOKafkaProducer | None = None

    async def send(self, records: Sequence[Record]) -> None:
        """See ``worker.repartition.Internal``."""
        try:
            async with asyncio.timeout(DONE_WITHIN_SECONDS):
                await self._send(await self._started(), records)
        except (KafkaError, OSError, TimeoutError) as error:
            await self.stop()
            raise RepartitionUnavailable(self._why(error)) from error

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            options = client_options(self._settings)
            options["request_timeout_ms"] = min(options["request_timeout_ms"], ANSWER_WITHIN_MS)
            self._producer = AIOKafkaProducer(
                **options,
                acks="all",
                enable_idempotence=True,
                linger_ms=LINGER_MS,
                compression_type="lz4",
                max_batch_size=BATCH_BYTES,
                max_request_size=LARGEST_BYTES,
            )
            await self._producer.start()
        return self._producer

    async def _send(self, producer: AIOKafkaProducer, records: Sequence[Record]) -> None:
        count = len(await producer.partitions_for(self._topic))
        sent = []
        for record in records:
            assert record.key is not None
            stamp = record.timestamp_ms
            sent.append(
                await producer.send(
                    self._topic,
                    record.value,
                    key=record.key,
                    partition=PARTITIONERS["murmur2"](record.key, count),
                    timestamp_ms=None if stamp is None or stamp < 0 else stamp,
                    headers=list(copy_headers(record)),
                )
            )
        for answer in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    def _why(self, error: Exception) -> str:
        if isinstance(error, MessageSizeTooLargeError):
            why = "a record is too large for the topic; raise its `max.message.bytes`"
        elif isinstance(error, InvalidTimestampError):
            why = (
                "it rejects a record's time; raise its `message.timestamp.before.max.ms` and "
                "`message.timestamp.after.max.ms` to those of the input topics"
            )
        else:
            why = (
                f"{type(error).__name__}. The topic must exist and have room, and the worker needs "
                "permission to write to it"
            )
        return f"cannot write to the internal topic {self._topic}: {why}"

    async def stop(self) -> None:
        """Disconnect; what is not sent yet is dropped."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await abandon(producer, STOP_WITHIN_SECONDS)


class KafkaUpstream:
    """``ports.Upstream``: up to when the internal topic is filled, by its group's commits.

    Raises aiokafka's errors.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin: AIOKafkaAdminClient | None = None

    async def read_up_to_ms(self) -> int:
        """See ``ports.Upstream``."""
        try:
            if self._admin is None:
                self._admin = AIOKafkaAdminClient(**client_options(self._settings))
                await self._admin.start()
            described = await self._admin.describe_topics(list(self._settings.topics))
            group = self._settings.repartition_group
            commits = await self._admin.list_consumer_group_offsets(group)
        except PASSING:
            return 0
        except BaseException:
            await self.stop()
            raise
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
    return min(note_ms(commits[p].metadata) if p in commits else 0 for p in places)
