"""What a judge reads and writes in Kafka: the input topics, labels, and the judges' budget.

The topic of the budget is compacted and has one partition, so that the order of its records is the
order in which judges have reserved calls. Its keys are a day and a writer, its values what that
writer has reserved on that day (``core/judge/budget.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from stream_metrics.clients.kafka.aiokafka_private import Consumer, abandon
from stream_metrics.clients.kafka.errors import why_not_written
from stream_metrics.clients.kafka.options import client_options, prompt_options
from stream_metrics.clients.kafka.records import record_of
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import (
    TopicsInvalid,
    create_topics,
    equal_counts,
    partition_counts,
    topic_configs,
)
from stream_metrics.core.judge.budget import Book, Entry
from stream_metrics.live.kafka.cluster import Cluster, Group
from stream_metrics.live.kafka.group_source import KafkaSource
from stream_metrics.live.kafka.keyed_producer import KeyedProducer, KeyedRecord
from stream_metrics.live.ports import InputTopicsUnavailable, Unavailable
from stream_metrics.live.worker.retry import Reasons, RetryPolicy

CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": "3600000"}
"""Of the topic of the budget."""
ANSWER_SECONDS: Final = 10.0
STOP_SECONDS: Final = 2.0
WAIT_MS: Final = 500

log = structlog.get_logger(__name__)


class BudgetUnavailable(Unavailable):
    """The topic of the budget cannot be read or written, so that nothing can be reserved."""

    reason: ClassVar[str] = "topic"


def judge_source(
    settings: KafkaSettings, cluster: Cluster, retry: RetryPolicy, reasons: Reasons
) -> KafkaSource:
    """The source of a judge: all topics of a partition number go to one member of the group."""
    group = Group(settings.group_id, settings.state_topics, RangePartitionAssignor)
    record = partial(
        record_of, internal_topic=settings.repartition_topic, value_format=settings.value_format
    )
    counts = partial(equal_counts, settings)
    return KafkaSource(settings, cluster, group, counts, record, retry, reasons)


class KafkaLabels:
    """Implements ``judge.judge.LabelWriter``: labels go to the last of the input topics."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topics[-1]
        self._producer = KeyedProducer(settings)

    async def send(self, conversation_id: str, events: Sequence[bytes]) -> None:
        """See ``judge.judge.LabelWriter``."""
        key = conversation_id.encode()
        records = [KeyedRecord(self._topic, key, event) for event in events]
        try:
            large = await self._producer.send(records)
        except (KafkaError, OSError, TimeoutError) as error:
            why = why_not_written(error)
            raise InputTopicsUnavailable(f"cannot write to {self._topic}: {why}") from error
        if large:
            raise InputTopicsUnavailable(
                f"cannot write to {self._topic}: an event is too large; raise its "
                "`max.message.bytes`"
            )

    async def stop(self) -> None:
        """Disconnect; unsent records are dropped."""
        await self._producer.stop()


async def prepare_budget_topic(settings: KafkaSettings, topic: str) -> None:
    """Create the topic of the budget if it is missing.

    Raises ``TopicsInvalid`` if it is not as it must be, and aiokafka's errors.
    """
    counts = await partition_counts(settings, [topic])
    if topic not in counts:
        await create_topics(settings, [topic], 1, None, CONFIG)
        return
    if counts[topic] != 1:
        raise TopicsInvalid(
            f"`judge.budget_topic` {topic} has {counts[topic]} partitions, and must have one: the "
            "order of its records decides what judges may spend. Name another topic, which is then "
            "created"
        )
    config = (await topic_configs(settings, [topic])).get(topic, {})
    if "compact" not in config.get("cleanup.policy", "compact"):
        raise TopicsInvalid(
            f"`judge.budget_topic` {topic} is not compacted, so what was spent would be deleted. "
            "Set its cleanup.policy to compact"
        )


class KafkaEntries:
    """Implements ``judge.ledger.EntryStore`` over the topic of the budget."""

    def __init__(self, settings: KafkaSettings, topic: str, book: Book) -> None:
        self._settings = settings
        self._place = TopicPartition(topic, 0)
        self._book = book
        self._consumer: Consumer | None = None
        self._producer: AIOKafkaProducer | None = None

    async def refresh(self) -> None:
        """See ``judge.ledger.EntryStore``."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._consumer is None:
                    await self._begin()
                else:
                    await self._read(0)
        except (KafkaError, OSError, TimeoutError) as error:
            await self._unavailable("read", error)

    async def write(self, day: int, writer: str, entry: Entry | None) -> None:
        """See ``judge.ledger.EntryStore``."""
        await self.refresh()
        key, value = f"{day}/{writer}".encode(), None if entry is None else entry.encode()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._producer is None:
                    self._producer = AIOKafkaProducer(
                        **prompt_options(self._settings), acks="all", enable_idempotence=True
                    )
                    await self._producer.start()
                stored = await self._producer.send_and_wait(
                    self._place.topic, value, key, partition=0
                )
                while await self._position() <= stored.offset:
                    await self._read(WAIT_MS)
        except (KafkaError, OSError, TimeoutError) as error:
            await self._unavailable("write to", error)

    async def _begin(self) -> None:
        """Read the topic from its beginning to its present end."""
        consumer = Consumer(**client_options(self._settings), auto_offset_reset="earliest")
        try:
            await consumer.start()
            consumer.assign([self._place])
            await consumer.seek_to_beginning(self._place)
            end = (await consumer.end_offsets([self._place]))[self._place]
            self._consumer = consumer
            while await self._position() < end:
                await self._read(WAIT_MS)
        except BaseException:
            self._consumer = None
            await consumer.stop()
            raise

    async def _position(self) -> int:
        assert self._consumer is not None
        return int(await self._consumer.position(self._place))

    async def _read(self, wait_ms: int) -> None:
        assert self._consumer is not None
        found = await self._consumer.getmany(self._place, timeout_ms=wait_ms)
        for record in found.get(self._place, ()):
            self._add(record)

    def _add(self, record: Any) -> None:
        """Put a record's entry into the book."""
        day, _, writer = (record.key or b"").decode("utf-8", "replace").partition("/")
        try:
            entry = None if record.value is None else Entry.decode(record.value)
            self._book.put(int(day), writer, entry)
        except ValueError:
            log.warning("not a judge's entry", topic=record.topic, offset=record.offset)

    async def _unavailable(self, what: str, error: BaseException) -> None:
        """Disconnect, and raise ``BudgetUnavailable``."""
        await self.stop()
        why = why_not_written(error) if isinstance(error, Exception) else type(error).__name__
        message = f"cannot {what} the topic of the budget, {self._place.topic}: {why}"
        raise BudgetUnavailable(message) from error

    async def stop(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        producer, self._producer = self._producer, None
        if consumer is not None:
            with suppress(KafkaError, OSError, TimeoutError):
                await asyncio.wait_for(consumer.stop(), STOP_SECONDS)
        if producer is not None:
            await abandon(producer, STOP_SECONDS)
