"""Reads dead-letter topics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from aiokafka import AIOKafkaConsumer

from stream_metrics.clients.kafka.partition_reader import extents, open_consumer, records_between
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import TopicsMissing, partition_counts
from stream_metrics.live.letters import Forgotten, Letter, Resubmitted, parse


async def read_letters(
    settings: KafkaSettings, topics: Sequence[str]
) -> AsyncGenerator[Letter | Resubmitted | Forgotten, None]:
    """Everything on the dead-letter topics of ``topics``, up to their current ends.

    It holds a connection until it is closed. Raises ``TopicsMissing``, and aiokafka's errors.
    """
    async with open_consumer(settings) as consumer:
        for topic in topics:
            stored = _records(settings, consumer, topic + settings.dead_letter_suffix)
            async with aclosing(stored) as records:
                async for record in records:
                    found = parse(record, topic)
                    if found is not None:
                        yield found


async def _records(
    settings: KafkaSettings, consumer: AIOKafkaConsumer, topic: str
) -> AsyncGenerator[Any, None]:
    counts = await partition_counts(settings, [topic])
    places = [(topic, number) for number in range(counts.get(topic, 0))]
    if not places:
        raise TopicsMissing(f"topic {topic} does not exist; the worker needs it too. Create it")
    logs = await extents(consumer, places)
    starts = {place: log.first for place, log in logs.items()}
    ends = {place: log.end for place, log in logs.items()}
    async with aclosing(records_between(consumer, starts, ends)) as records:
        async for record in records:
            yield record
