"""A transactional producer is given up while the brokers are away."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerClosed

from deploy.local.kafka.cluster import Kafka
from stream_metrics.adapters.kafka.produce import abandon
from tests.helpers import wait_until

pytestmark = pytest.mark.service

SOON = 60


async def test_a_batch_that_is_tried_again_fails_once_and_for_its_sender_only(
    kafka_factory: Callable[..., Awaitable[Kafka]],
) -> None:
    """Whoever waits for it is told that the producer is closed, and no error is left over that
    nobody takes."""
    left_over: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: left_over.append(found))

    await send_and_abandon(await kafka_factory())

    gc.collect()
    assert left_over == []


async def send_and_abandon(kafka: Kafka) -> None:
    """A transaction of which one record is taken, and one cannot be sent."""
    topic = await kafka.create_topic("output")
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id="abandoned"
    )
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"taken")
    kafka.kill9()
    answer = await producer.send(topic, b"tried again and again")
    accumulator = producer._message_accumulator
    await wait_until(
        lambda: any(batch.retry_count > 1 for batch in accumulator._pending_batches),
        SOON,
        "it is not tried again",
    )
    await abandon(producer, 1.0)

    with pytest.raises(ProducerClosed):
        await answer
    sender = producer._sender.sender_task
    assert sender.cancelled() or (sender.done() and sender.exception() is None)
