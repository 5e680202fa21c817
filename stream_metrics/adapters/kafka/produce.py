"""Producing, acknowledged by all: what commands send, and what producers have in common."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerClosed

from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.settings import KafkaSettings

PUT_BACK_SECONDS: Final = 0.5  # the client's pause before it sends a batch again is 0.1
LARGEST_BYTES: Final = 64 * 1024 * 1024  # the brokers' own limit is what counts


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


async def abandon(producer: AIOKafkaProducer, within_seconds: float) -> None:
    """Stop a producer without waiting for brokers; what it had not sent is dropped.

    Its own ``stop`` waits until everything is sent, which in a broken transaction is for ever.
    """
    sender = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
    await producer.client.close()
    if sender is not None:
        # A batch on its way is put back after a pause, for which it must not have failed yet.
        await asyncio.wait({sender}, timeout=PUT_BACK_SECONDS)
    accumulator = producer._message_accumulator
    # And one that was put back is looked for among those on their way once it has failed.
    accumulator._pending_batches.update(b for queue in accumulator._batches.values() for b in queue)
    accumulator.fail_all(ProducerClosed())
    if sender is not None:
        await asyncio.wait({sender}, timeout=within_seconds)
    with suppress(TimeoutError, KafkaError):
        await asyncio.wait_for(producer.stop(), within_seconds)
    _take_errors(producer)


def _take_errors(producer: AIOKafkaProducer) -> None:
    """Nobody waits for these any more; else each would be logged as an error that nobody took."""
    accumulator = producer._message_accumulator
    waiters = [batch._drain_waiter for batch in accumulator._pending_batches]
    waiters += [batch._drain_waiter for queue in accumulator._batches.values() for batch in queue]
    if producer._txn_manager is not None:
        waiters.append(producer._txn_manager._transaction_waiter)
    for waiter in waiters:
        if waiter is not None and waiter.done() and not waiter.cancelled():
            waiter.exception()
