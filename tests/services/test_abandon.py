"""A transactional producer is given up while the brokers are away."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerClosed, ProducerFenced

from deploy.local.kafka.cluster import Kafka
from stream_metrics.clients.kafka.aiokafka_private import abandon
from tests.helpers import wait_until

pytestmark = pytest.mark.service

SOON = 60


async def test_a_batch_that_is_tried_again_fails_once_and_for_its_sender_only(
    kafka_factory: Callable[..., Awaitable[Kafka]],
) -> None:
    """Whoever waits for it is told that the producer is closed, and no error is left over that
    nobody takes."""
    await leaves_no_error(send_while_away(await kafka_factory()))


async def test_the_error_of_a_fenced_producer_is_told_once(kafka: Kafka) -> None:
    """Whoever sends is told that there is another producer, and no error is left over."""
    await leaves_no_error(send_behind_another(kafka))


async def leaves_no_error(work: Awaitable[None]) -> None:
    """Do it, and look for errors that nobody has taken."""
    left_over: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: left_over.append(found))

    await work

    gc.collect()
    assert left_over == []


async def send_behind_another(kafka: Kafka) -> None:
    """A transaction whose producer is followed by another of its name."""
    topic = await kafka.create_topic("fenced")
    first, second = transactional(kafka, "fenced"), transactional(kafka, "fenced")
    await first.start()
    await first.begin_transaction()
    await second.start()

    with pytest.raises(ProducerFenced):
        await first.send_and_wait(topic, b"too late")
    await abandon(first, 1.0)
    await second.stop()


async def send_while_away(kafka: Kafka) -> None:
    """A transaction of which one record is taken, and one cannot be sent."""
    topic = await kafka.create_topic("output")
    producer = transactional(kafka, "abandoned")
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


def transactional(kafka: Kafka, name: str) -> AIOKafkaProducer:
    """A producer with this transactional id."""
    return AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name)
