"""Reads topics once, up to a fixed end and without a consumer group, for commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_metrics.clients.kafka.errors import KafkaRefused
from stream_metrics.clients.kafka.partition_reader import (
    PartitionId,
    extents,
    open_consumer,
    time_at,
)
from stream_metrics.clients.kafka.records import record_of
from stream_metrics.clients.kafka.rights import DENIED, Right, rights_error
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import TopicsMissing, partition_counts
from stream_metrics.core.events.record import Extent, Record
from stream_metrics.lab.sources.kafka.mark import EARLIEST, END, Mark
from stream_metrics.lab.sources.kafka.merger import merged_between, partition_fetch_bytes
from stream_metrics.lab.sources.kafka.span import Span, spans


class TopicReader:
    """The records of topics between two marks, merged by timestamp.

    When reading starts, the ends are fixed: ``spans`` has the offsets to read of each partition,
    ``logs`` its first and end offset. Records up to ``around_ms`` before and after the span are
    read too; ``starts`` has the first offset that is read. Nothing is committed. Reading raises
    ``TopicsMissing``, ``KafkaRefused``, ``RecordsGone``, ``UnreadableBatch`` and aiokafka's errors.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topics: Sequence[str],
        since: Mark = EARLIEST,
        until: Mark = END,
        around_ms: int = 0,
    ) -> None:
        self._settings = settings
        self._topics = tuple(dict.fromkeys(topics))
        self._since, self._until = since, until
        self._around_ms = around_ms
        self.spans: dict[PartitionId, Span] = {}
        self.starts: dict[PartitionId, int] = {}
        self.logs: dict[PartitionId, Extent] = {}

    @property
    def offsets(self) -> int:
        """The number of offsets to read; 0 before reading starts."""
        return sum(span.size for span in self.spans.values())

    def records(self) -> Generator[Record, None, None]:
        """The records, for code without an event loop; close the generator to disconnect early."""
        with asyncio.Runner() as runner:
            batches = self.batches()

            async def next_batch() -> list[Record]:
                return await anext(batches, [])

            async def close() -> None:
                await batches.aclose()

            try:
                while batch := runner.run(next_batch()):
                    yield from batch
            finally:
                runner.run(close())

    async def batches(self) -> AsyncGenerator[list[Record], None]:
        """The records in batches, none of which is empty."""
        settings = self._settings
        counts = await partition_counts(settings, self._topics)
        missing = [topic for topic in self._topics if topic not in counts]
        if missing:
            raise TopicsMissing(f"topics do not exist: {', '.join(missing)}; check their names")
        fetch_bytes = partition_fetch_bytes(sum(counts.values()))
        try:
            async with open_consumer(settings, fetch_bytes) as consumer:
                self.spans = await spans(consumer, counts, self._since, self._until)
                self.logs = await extents(consumer, self.spans)
                self.starts = {
                    place: await self._start(consumer, place, span)
                    for place, span in self.spans.items()
                }
                stops = {
                    place: await self._stop(consumer, place, span)
                    for place, span in self.spans.items()
                }
                async with aclosing(merged_between(consumer, self.starts, stops)) as batches:
                    async for batch in batches:
                        yield [
                            record_of(found, settings.repartition_topic, settings.value_format)
                            for found in batch
                        ]
        except DENIED as error:
            rights = [Right("READ", "topic", topic) for topic in self._topics]
            raise KafkaRefused(rights_error(settings, rights)) from error

    async def _start(self, consumer: AIOKafkaConsumer, place: PartitionId, span: Span) -> int:
        if self._since == EARLIEST or not self._around_ms or span.first <= self.logs[place].first:
            return span.first
        first_ms = await time_at(consumer, place, Extent(span.first, span.end))
        if first_ms is None:
            return span.first
        found = await _offset_at(consumer, place, max(0, first_ms - self._around_ms))
        return span.first if found is None else min(found, span.first)

    async def _stop(self, consumer: AIOKafkaConsumer, place: PartitionId, span: Span) -> int:
        end = self.logs[place].end
        if self._until == END or not self._around_ms or span.end >= end:
            return span.end
        last_ms = await time_at(consumer, place, Extent(span.end, end))
        if last_ms is None:
            return span.end
        found = await _offset_at(consumer, place, last_ms + self._around_ms)
        return end if found is None else max(found, span.end)


async def _offset_at(consumer: AIOKafkaConsumer, place: PartitionId, time_ms: int) -> int | None:
    """The offset of the first record at or after a time; None if there is none."""
    partition = TopicPartition(*place)
    found = (await consumer.offsets_for_times({partition: time_ms}))[partition]
    return None if found is None else int(found.offset)
