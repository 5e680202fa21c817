"""The output topic: rows of conversations, in order and with versions, from one writer at a time.

Each state partition writes in transactions, with a transactional id of its own. Kafka admits one
producer at a time for an id: when a second one starts, Kafka aborts the open transaction of the
first and rejects its further writes. So the last record of a key is always the newest, even if a
worker that was suspended tries to write after its successor.

The version of a message is the sum of the end offsets of the topic's partitions before it was
written. It grows with every record, does not depend on a clock, and survives the loss of workers
and of Redis. A broker that was suspended takes itself for the leader for a moment, and names an end
that has been passed; a worker therefore remembers the ends that it knows of (``EndOffsets``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, ProducerFenced

from stream_metrics.clients.kafka.aiokafka_private import Consumer, abandon
from stream_metrics.clients.kafka.errors import why_not_written
from stream_metrics.clients.kafka.options import client_options, prompt_options
from stream_metrics.clients.kafka.producer import (
    MAX_REQUEST_BYTES,
    TRANSACTION_TIMEOUT_MS,
    transactional_id,
    transactional_prefix,
)
from stream_metrics.clients.kafka.records import HEADER_PREFIX, OutgoingRecord
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.live.kafka.keyed_producer import (
    BATCH_BYTES,
    DONE_WITHIN_SECONDS,
    STOP_WITHIN_SECONDS,
)
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.layout import Generation
from stream_metrics.live.ports import OutputFenced, OutputMessage, OutputUnavailable

VERSION: Final = HEADER_PREFIX + "version"


class EndOffsets:
    """The largest end offset known of each partition; brokers may name a smaller one later."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def update(self, ends: Mapping[int, int]) -> None:
        """Learn end offsets by partition."""
        for partition, end in ends.items():
            self._ends[partition] = max(end, self._ends.get(partition, 0))

    def total(self, partitions: Iterable[int]) -> int:
        """The sum over the partitions."""
        return sum(self._ends[partition] for partition in partitions)


class KafkaOutputs:
    """A worker's producers for ``kafka.output_topic``, one per state partition."""

    def __init__(self, settings: KafkaSettings) -> None:
        assert settings.output_topic is not None
        self.settings = settings
        self.topic = settings.output_topic
        self.ends = EndOffsets()
        self._outputs: dict[int, KafkaOutput] = {}
        self._consumer: AIOKafkaConsumer | None = None

    def of(self, partition: int) -> KafkaOutput:
        """See ``ports.Outputs``."""
        return self._outputs.setdefault(partition, KafkaOutput(self, partition))

    async def keep(self, partitions: Collection[int]) -> None:
        """See ``ports.Outputs``."""
        gone = [self._outputs.pop(number) for number in self._outputs.keys() - set(partitions)]
        await asyncio.gather(*(output.close() for output in gone))

    async def stop(self) -> None:
        """Disconnect."""
        await self.keep(())
        await self._close_consumer()

    async def version(self, partitions: Collection[int]) -> int:
        """The sum of the topic's end offsets; raises aiokafka's errors.

        Records of open transactions count too, because they may still be committed.
        """
        try:
            if self._consumer is None:
                self._consumer = Consumer(**prompt_options(self.settings))
                await self._consumer.start()
            self.ends.update(await end_offsets(self._consumer, self.topic, partitions))
        except BaseException:
            await self._close_consumer()
            raise
        return self.ends.total(partitions)

    async def _close_consumer(self) -> None:
        log, self._consumer = self._consumer, None
        if log is not None:
            await log.stop()

    def unavailable(self, error: Exception) -> OutputUnavailable:
        """The error of the port for one of the client's."""
        if isinstance(error, MessageSizeTooLargeError):
            why = "a row is too large for the topic; raise its `max.message.bytes`"
        else:
            prefix = transactional_prefix(self.settings.group_id)
            why = why_not_written(
                error,
                f"permission to write to it, and to use transactional ids that begin with {prefix}",
            )
        return OutputUnavailable(f"cannot write to the output topic {self.topic}: {why}")


class KafkaFence:
    """``ownership.switch.Fence`` by transactional ids; raises ``OutputUnavailable``."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    async def fence_producers(self, generation: Generation) -> None:
        """Start a producer with each transactional id of the generation; this fences others."""
        named = self._settings.model_copy(update={"group_id": generation.group})
        outputs = KafkaOutputs(named)
        try:
            for number in range(generation.identity.count):
                await outputs.of(number).begin()
                await outputs.keep(())
        finally:
            await outputs.stop()


class KafkaOutput:
    """The producer of one state partition for the output topic; see ``ports.Output``."""

    muted = False

    def __init__(self, outputs: KafkaOutputs, partition: int) -> None:
        self._outputs = outputs
        self._partition = partition
        self._producer: AIOKafkaProducer | None = None
        self._broken: list[AIOKafkaProducer] = []

    @property
    def begun(self) -> bool:
        """See ``ports.Output``."""
        return self._producer is not None

    async def begin(self) -> None:
        """See ``ports.Output``."""
        await self.close()
        producer = AIOKafkaProducer(
            **prompt_options(self._outputs.settings),
            transactional_id=transactional_id(self._outputs.settings.group_id, self._partition),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            compression_type="lz4",
            max_batch_size=BATCH_BYTES,
            max_request_size=MAX_REQUEST_BYTES,
        )
        try:
            async with asyncio.timeout(DONE_WITHIN_SECONDS):
                await producer.start()
        except (KafkaError, OSError, TimeoutError) as error:
            self._broken.append(producer)
            raise self._outputs.unavailable(error) from error
        except BaseException:
            self._broken.append(producer)
            raise
        self._producer = producer

    async def send(self, messages: Sequence[OutputMessage]) -> None:
        """See ``ports.Output``; sends in one transaction."""
        producer, self._producer = self._producer, None
        if producer is None:
            raise RuntimeError("`send` was called before `begin`")
        try:
            async with asyncio.timeout(DONE_WITHIN_SECONDS):
                await self._transact(producer, messages)
        except ProducerFenced as error:
            self._broken.append(producer)
            raise OutputFenced from error
        except (KafkaError, OSError, TimeoutError) as error:
            self._broken.append(producer)
            raise self._outputs.unavailable(error) from error
        except BaseException:
            self._broken.append(producer)
            raise
        self._producer = producer

    async def _transact(
        self, producer: AIOKafkaProducer, messages: Sequence[OutputMessage]
    ) -> None:
        """If this fails, the transaction stays open: aborting might hang, and the next ``begin``
        aborts it."""
        topic = self._outputs.topic
        partitions = await producer.partitions_for(topic)
        version = await self._outputs.version(partitions)
        await producer.begin_transaction()
        sent = []
        for message in messages:
            record = outgoing(topic, len(partitions), message, version)
            sent.append(
                await producer.send(
                    record.topic,
                    record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=list(record.headers),
                )
            )
        for answer in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            self._outputs.ends.update({answer.partition: answer.offset + 1})
        await producer.commit_transaction()

    async def close(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._broken.append(producer)
        await self._abandon_broken()

    async def _abandon_broken(self) -> None:
        broken, self._broken = self._broken, []
        await asyncio.gather(*(abandon(producer, STOP_WITHIN_SECONDS) for producer in broken))


async def end_offsets(
    log: AIOKafkaConsumer, topic: str, partitions: Iterable[int]
) -> dict[int, int]:
    """A topic's end offsets by partition; the consumer must read uncommitted records."""
    ends = await log.end_offsets([TopicPartition(topic, number) for number in partitions])
    return {place.partition: end for place, end in ends.items()}


def outgoing(topic: str, partitions: int, message: OutputMessage, version: int) -> OutgoingRecord:
    """The record of a message."""
    key = message.conversation_id.encode()
    header = (VERSION, b"%d" % version)
    return OutgoingRecord(
        topic, PARTITIONERS["murmur2"](key, partitions), key, message.value, headers=(header,)
    )


async def erasures(
    settings: KafkaSettings, partitions: int, conversations: Iterable[str]
) -> list[OutgoingRecord]:
    """Records that delete conversations from the output topic.

    Their version is smaller than that of anything that a worker sends after it has read a record
    written after them. Raises aiokafka's errors.
    """
    topic = settings.output_topic
    assert topic is not None
    log = Consumer(**client_options(settings))
    try:
        await log.start()
        version = sum((await end_offsets(log, topic, range(partitions))).values())
    finally:
        await log.stop()
    gone = (OutputMessage(conversation, None) for conversation in conversations)
    return [outgoing(topic, partitions, message, version) for message in gone]
