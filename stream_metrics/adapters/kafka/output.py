"""The output topic: the rows of conversations, in order and with versions, by one writer at a time.

Each state partition writes in transactions, under a transactional id of its own. Kafka lets one
producer at a time do that: once a second one has begun, the open transaction of the first is undone
and nothing of it arrives any more. So the last record of a key is always the newest, also where a
topic is compacted, although a worker that stood still may try to write after its successor.

The version of a message is how many records the topic had ever taken before it: the ends of its
partitions, summed. It grows with whatever arrives, outlives workers and Redis, and is no clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, ProducerFenced

from stream_metrics.adapters.kafka.internals import abandon
from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.adapters.kafka.partitioners import PARTITIONERS
from stream_metrics.adapters.kafka.produce import (
    LARGEST_BYTES,
    TRANSACTION_TIMEOUT_MS,
    Outgoing,
    transactional_id,
    transactional_prefix,
)
from stream_metrics.adapters.kafka.records import HEADER_PREFIX
from stream_metrics.layout import Generation
from stream_metrics.ports import OutputFenced, OutputMessage, OutputUnavailable
from stream_metrics.settings.kafka import KafkaSettings

VERSION: Final = HEADER_PREFIX + "version"

ANSWER_WITHIN_MS: Final = 4_000  # of one request
DONE_WITHIN_SECONDS: Final = 10.0  # then the worker says what it waits for, and tries again
STOP_WITHIN_SECONDS: Final = 2.0
BATCH_BYTES: Final = 256 * 1024


class KafkaOutputs:
    """A worker's ways to ``kafka.output_topic``."""

    def __init__(self, settings: KafkaSettings) -> None:
        assert settings.output_topic is not None
        self.settings = settings
        self.topic = settings.output_topic
        self._ways: dict[int, KafkaOutput] = {}
        self._log: AIOKafkaConsumer | None = None

    def of(self, partition: int) -> KafkaOutput:
        """See ``ports.Outputs``."""
        return self._ways.setdefault(partition, KafkaOutput(self, partition))

    async def keep(self, partitions: Collection[int]) -> None:
        """See ``ports.Outputs``."""
        gone = [self._ways.pop(number) for number in self._ways.keys() - set(partitions)]
        await asyncio.gather(*(way.close() for way in gone))

    async def stop(self) -> None:
        """Disconnect."""
        await self.keep(())
        await self._close_log()

    async def version(self, partitions: Collection[int]) -> int:
        """How many records the topic has ever taken; raises aiokafka's errors.

        Also of transactions that are not done, so that nothing that may arrive was left out.
        """
        try:
            if self._log is None:
                self._log = AIOKafkaConsumer(**self.options())
                await self._log.start()
            return await records_taken(self._log, self.topic, partitions)
        except BaseException:
            await self._close_log()
            raise

    async def _close_log(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            await log.stop()

    def options(self) -> dict[str, object]:
        """What the clients here are made with."""
        options = client_options(self.settings)
        options["request_timeout_ms"] = min(options["request_timeout_ms"], ANSWER_WITHIN_MS)
        return options

    def unavailable(self, error: Exception) -> OutputUnavailable:
        """What to say about ``error``."""
        if isinstance(error, MessageSizeTooLargeError):
            why = "a row is too large for the topic; raise its `max.message.bytes`"
        else:
            why = (
                f"{type(error).__name__}. The topic must exist and have room, and the worker needs "
                "permission to write to it, and to use transactional ids that begin with "
                f"{transactional_prefix(self.settings.group_id)}"
            )
        return OutputUnavailable(f"cannot write to the output topic {self.topic}: {why}")


class KafkaFence:
    """``worker.switch.Fence`` over the ids of a generation; raises ``OutputUnavailable``."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    async def shut_out(self, generation: Generation) -> None:
        """Begin under each of its ids, as a later owner of the partition would."""
        named = self._settings.model_copy(update={"group_id": generation.group})
        outputs = KafkaOutputs(named)
        try:
            for number in range(generation.identity.count):
                await outputs.of(number).begin()
                await outputs.keep(())
        finally:
            await outputs.stop()


class KafkaOutput:
    """One state partition's way to the output topic; see ``ports.Output``."""

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
            **self._outputs.options(),
            transactional_id=transactional_id(self._outputs.settings.group_id, self._partition),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            compression_type="lz4",
            max_batch_size=BATCH_BYTES,
            max_request_size=LARGEST_BYTES,
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
        """See ``ports.Output``; in one transaction."""
        producer, self._producer = self._producer, None
        if producer is None:
            raise RuntimeError("an output sends before it has begun")
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
        """Not undone if it fails: whoever begins next does that, and here it might hang."""
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
        await producer.commit_transaction()

    async def close(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._broken.append(producer)
        await self._clear_away()

    async def _clear_away(self) -> None:
        broken, self._broken = self._broken, []
        await asyncio.gather(*(abandon(producer, STOP_WITHIN_SECONDS) for producer in broken))


async def records_taken(log: AIOKafkaConsumer, topic: str, partitions: Iterable[int]) -> int:
    """The ends of a topic's partitions, summed; ``log`` must read uncommitted records."""
    ends = await log.end_offsets([TopicPartition(topic, number) for number in partitions])
    return sum(ends.values())


def outgoing(topic: str, partitions: int, message: OutputMessage, version: int) -> Outgoing:
    """The record of a message."""
    key = message.conversation_id.encode()
    header = (VERSION, b"%d" % version)
    return Outgoing(
        topic, PARTITIONERS["murmur2"](key, partitions), key, message.value, headers=(header,)
    )


async def erasures(
    settings: KafkaSettings, partitions: int, conversations: Iterable[str]
) -> list[Outgoing]:
    """Records that take conversations from the output topic as it is now.

    What a worker sends once it has read something that is written after them comes behind them,
    and has a larger version. Raises aiokafka's errors.
    """
    topic = settings.output_topic
    assert topic is not None
    log = AIOKafkaConsumer(**client_options(settings))
    try:
        await log.start()
        version = await records_taken(log, topic, range(partitions))
    finally:
        await log.stop()
    gone = (OutputMessage(conversation, None) for conversation in conversations)
    return [outgoing(topic, partitions, message, version) for message in gone]
