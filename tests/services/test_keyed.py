"""Records that are too large for their topics, on a real broker."""

from __future__ import annotations

import os
import secrets

import pytest

from deploy.local.kafka.cluster import Kafka
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.live.kafka.keyed_producer import KeyedProducer, KeyedRecord
from tests.services.live import recorded

pytestmark = pytest.mark.service

LIMIT = 300_000  # more than one batch of the producer


async def sent(kafka: Kafka, name: str, limit: int, sizes: list[int]) -> tuple[list[int], int]:
    """The sizes of the records that are refused, and the number of stored records."""
    topic = f"{name}-{os.getpid()}"
    await kafka.create_topic(topic, 1, {"max.message.bytes": str(limit)})
    producer = KeyedProducer(
        KafkaSettings(bootstrap_servers=kafka.bootstrap_servers, topics=(topic,))
    )
    try:
        large = await producer.send(
            [KeyedRecord(topic, b"key", secrets.token_hex(size // 2).encode()) for size in sizes]
        )
        assert await producer.send([KeyedRecord(topic, b"key", b"another")]) == []
    finally:
        await producer.stop()
    stored = await recorded(kafka, (topic,))
    assert len({one.value for one in stored}) == len(stored)
    return [len(one.value or b"") for one in large], len(stored) - 1


async def test_a_record_that_is_too_large_blocks_no_other(kafka: Kafka) -> None:
    """This holds for other batches of its partition before and after it."""
    sizes = [*[6_000] * 60, 700_000, *[15_000] * 200, 800_000, *[15_000] * 40]

    assert await sent(kafka, "one-too-large", LIMIT, sizes) == ([700_000, 800_000], 300)


async def test_records_are_stored_even_if_their_batch_is_too_large(kafka: Kafka) -> None:
    """A topic's limit applies to batches, and our batches may exceed it."""
    assert await sent(kafka, "small-limit", 20_000, [6_000] * 12) == ([], 12)
