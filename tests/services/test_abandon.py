"""Kafka clients are stopped while the brokers are unavailable."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerClosed, ProducerFenced

from deploy.local.kafka.cluster import Kafka
from stream_metrics.clients.kafka.aiokafka_private import Consumer, abandon
from tests.helpers import wait_until

pytestmark = pytest.mark.service

SOON = 60


async def test_a_retried_batch_fails_once_and_only_for_its_sender(
    kafka_factory: Callable[..., Awaitable[Kafka]],
) -> None:
    """The sender gets an error that the producer is closed; no exception is left unretrieved."""
    await leaves_no_error(send_while_away(await kafka_factory()))


async def test_the_error_of_a_fenced_producer_is_raised_once(kafka: Kafka) -> None:
    """The sender gets an error about the other producer, and no exception is left unretrieved."""
    await leaves_no_error(send_behind_another(kafka))


async def test_a_sender_that_waits_for_metadata_ends(
    kafka_factory: Callable[..., Awaitable[Kafka]],
) -> None:
    """Neither is the caller cancelled, nor does anything of the producer go on."""
    await leaves_no_error(commit_while_suspended(await kafka_factory()))


async def test_a_consumer_that_waits_before_it_fetches_again_stops(
    kafka_factory: Callable[..., Awaitable[Kafka]],
) -> None:
    """Its caller is not cancelled, and nothing of the consumer goes on."""
    kafka = await kafka_factory()
    place = TopicPartition(await kafka.create_topic("input"), 0)
    before = asyncio.all_tasks()
    consumer = Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        request_timeout_ms=1_000,
        retry_backoff_ms=1_000 * SOON,
    )
    await consumer.start()
    consumer.assign([place])
    consumer.seek(place, 0)
    await consumer.getmany(timeout_ms=100)
    with messages("aiokafka.consumer.fetcher") as said:
        kafka.kill9()
        await wait_until(
            lambda: any("Failed fetch messages" in one for one in said),
            SOON,
            "the consumer fetches without a broker",
        )

    async with asyncio.timeout(SOON / 2):
        await consumer.stop()

    assert asyncio.all_tasks() <= before


@contextmanager
def messages(logger: str) -> Iterator[list[str]]:
    """What a logger logs meanwhile."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(logger).addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger(logger).removeHandler(handler)


async def leaves_no_error(work: Awaitable[None]) -> None:
    """Await it, and check that no exception was never retrieved."""
    left_over: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: left_over.append(found))

    await work

    gc.collect()
    assert left_over == []


async def send_behind_another(kafka: Kafka) -> None:
    """A transaction whose producer is fenced by another with the same transactional id."""
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
    """A transaction in which one record is stored and one cannot be sent."""
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


async def commit_while_suspended(kafka: Kafka) -> None:
    """A transaction that cannot be committed, because the brokers do not answer."""
    topic = await kafka.create_topic("output")
    producer = transactional(kafka, "suspended", request_timeout_ms=1_000)
    await producer.start()
    before = asyncio.all_tasks()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"taken")
    kafka.pause()
    try:
        commit = asyncio.create_task(producer.commit_transaction())
        await wait_until(
            waits_for_metadata,
            SOON,
            "the sender does not look for another coordinator",
        )
        commit.cancel()
        await abandon(producer, 1.0)
    finally:
        kafka.resume()

    assert producer._sender.sender_task.done()
    await wait_until(lambda: asyncio.all_tasks() <= before, SOON, "a task goes on")


def waits_for_metadata() -> bool:
    """Whether a commit looks for its coordinator, and waits for metadata to do so."""
    commits: list[Any] = [
        coroutine
        for coroutine in (task.get_coro() for task in asyncio.all_tasks())
        if "Sender._do_txn_commit" in repr(coroutine)
    ]
    searches = [
        commit.cr_await for commit in commits if "_find_coordinator" in repr(commit.cr_await)
    ]
    return any(not asyncio.iscoroutine(search.cr_await) for search in searches)


def transactional(kafka: Kafka, name: str, **options: int) -> AIOKafkaProducer:
    """A producer with this transactional id."""
    return AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=name, **options
    )
