"""Samples of the latest keys of topics, to detect which partitioner their producers use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stream_metrics.clients.kafka.partition_reader import extents, open_consumer, records_between
from stream_metrics.clients.kafka.records import record_of
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.worker.keying import KeySample

RECORDS: Final = 2_000
"""About how many of a topic's latest records are read."""
_FETCH_BYTES: Final = 1 << 20


async def latest_keys(settings: KafkaSettings, counts: Mapping[str, int]) -> dict[str, KeySample]:
    """A sample of each topic's latest records; ``counts`` are the partition counts.

    Raises aiokafka's errors, ``RecordsGone`` included.
    """
    samples = {topic: KeySample(count, PARTITIONERS, RECORDS) for topic, count in counts.items()}
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    async with open_consumer(settings, _FETCH_BYTES) as consumer:
        logs = await extents(consumer, places)
        starts = {
            (topic, number): max(log.first, log.end - max(1, RECORDS // counts[topic]))
            for (topic, number), log in logs.items()
        }
        ends = {place: log.end for place, log in logs.items()}
        async for found in records_between(consumer, starts, ends):
            samples[found.topic].add(record_of(found, None))
    return samples
