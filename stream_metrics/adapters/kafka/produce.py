"""Producing, acknowledged by all: what commands send, and what producers have in common."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.settings.kafka import KafkaSettings

LARGEST_BYTES: Final = 64 * 1024 * 1024  # the brokers' own limit is what counts
TRANSACTION_TIMEOUT_MS: Final = 30_000  # then Kafka undoes what a worker left behind that died


def transactional_prefix(group: str) -> str:
    """What the names begin with under which a group's state partitions write."""
    return f"{group}-output-"


def transactional_id(group: str, partition: int) -> str:
    """The name under which a state partition writes; whoever owns the partition uses it."""
    return f"{transactional_prefix(group)}{partition}"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to produce; without a timestamp it gets the present one."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@asynccontextmanager
async def producing(settings: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    """A connected producer; raises aiokafka's errors. Compressed: a topic's limit is on that."""
    producer = AIOKafkaProducer(
        **client_options(settings),
        acks="all",
        linger_ms=5,
        compression_type="gzip",
        enable_idempotence=False,
        max_request_size=LARGEST_BYTES,
    )
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


async def send_all(
    producer: AIOKafkaProducer, records: Iterable[Outgoing]
) -> list[KafkaError | None]:
    """Send all, and wait for every answer: None for a record that is stored for good."""
    answers = await asyncio.gather(
        *(
            producer.send_and_wait(
                record.topic,
                record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            for record in records
        ),
        return_exceptions=True,
    )
    errors: list[KafkaError | None] = []
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, KafkaError):
            raise answer
        errors.append(answer if isinstance(answer, KafkaError) else None)
    return errors
