"""A producer for commands, which waits until all in-sync replicas have each record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from stream_metrics.clients.kafka.options import client_options
from stream_metrics.clients.kafka.records import OutgoingRecord
from stream_metrics.clients.kafka.settings import KafkaSettings

MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024  # so high that the brokers' own limit decides
TRANSACTION_TIMEOUT_MS: Final = 30_000  # after which Kafka aborts the transaction of a dead worker


def transactional_prefix(group: str) -> str:
    """The common prefix of the transactional ids of a group's state partitions."""
    return f"{group}-output-"


def transactional_id(group: str, partition: int) -> str:
    """The transactional id of a state partition, which its current owner uses."""
    return f"{transactional_prefix(group)}{partition}"


@asynccontextmanager
async def open_producer(settings: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    """A connected producer; raises aiokafka's errors.

    It compresses, because a topic's size limit applies to compressed batches.
    """
    producer = AIOKafkaProducer(
        **client_options(settings),
        acks="all",
        linger_ms=5,
        compression_type="gzip",
        enable_idempotence=False,
        max_request_size=MAX_REQUEST_BYTES,
    )
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


async def send_all(
    producer: AIOKafkaProducer, records: Iterable[OutgoingRecord]
) -> list[KafkaError | None]:
    """Send records and wait for all answers: for each record its error, or None if stored."""
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
