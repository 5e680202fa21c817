"""The watchdog of a worker on real servers distinguishes a stuck worker from an idle one."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import CorruptRecordException

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.cli.runtime import Runtime
from stream_metrics.cli.settings import Settings
from stream_metrics.live.health import WATCHDOG
from stream_metrics.live.worker.source import Commit, PartitionId
from tests.helpers import wait_until

pytestmark = pytest.mark.service

SECONDS = 3.0  # less than the settings allow, to be quick
MARKERS_SECONDS = 10.0  # markers are passed every five seconds
SOON = 30


@asynccontextmanager
async def working(
    kafka: Kafka, redis: RedisServer, name: str, seconds: float = SECONDS
) -> AsyncIterator[tuple[Runtime, str]]:
    """An idle worker in this process, and the name of its input topic."""
    group = f"{name}-{os.getpid()}"
    for topic in (group, f"{group}.dlq"):
        await kafka.create_topic(topic)
    runtime = Runtime(
        Settings.model_validate(
            {
                "kafka": {
                    "bootstrap_servers": kafka.bootstrap_servers,
                    "topics": (group,),
                    "group_id": group,
                    "rebalance_timeout_ms": 2_000,
                },
                "redis": {"url": redis.url},
            }
        ),
        watchdog_seconds=seconds,
    )
    work = asyncio.create_task(runtime.run())
    try:
        await wait_until(
            lambda: not runtime.health.unready_reasons(), SOON, "the worker is not ready"
        )
        yield runtime, group
    finally:
        runtime.stop()
        await asyncio.wait_for(work, SOON)


@asynccontextmanager
async def producer(kafka: Kafka, **options: Any) -> AsyncIterator[Any]:
    """A producer."""
    client = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **options)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


@asynccontextmanager
async def fetching(
    runtime: Runtime, fetch: Callable[[AIOKafkaConsumer], Awaitable[dict[Any, Any]]]
) -> AsyncIterator[None]:
    """Replace the fetch of the worker's client, and wait until the worker has called it."""
    assert runtime.source is not None
    client = runtime.source.consumer
    healthy = client.getmany
    asked = asyncio.Event()

    async def fetches(**_: Any) -> dict[Any, Any]:
        asked.set()
        return await fetch(client)

    client.getmany = fetches
    try:
        await asyncio.wait_for(asked.wait(), SOON)
        yield
    finally:
        client.getmany = healthy


def offset(runtime: Runtime) -> int:
    """The stored offset, for one partition with one topic."""
    assert runtime.loop is not None
    return sum(p.offset for state in runtime.loop.partitions for p in state.positions.values())


async def stays_alive(runtime: Runtime, seconds: float) -> None:
    """Check the probe continuously."""
    ends = time.monotonic() + seconds

    def over() -> bool:
        assert runtime.health.failures() == {}
        return time.monotonic() > ends

    await wait_until(over, seconds + 1, "time stands still")


async def alarm(runtime: Runtime) -> None:
    """Wait until the probe reports that the worker is stuck."""
    await wait_until(lambda: WATCHDOG in runtime.health.failures(), SOON, "there is no alarm")
    assert runtime.pages.healthz()[0] == 503
    assert "no progress" in runtime.health.failures()[WATCHDOG]


async def test_a_client_that_fetches_nothing_is_noticed(
    kafka: Kafka, redis_server: RedisServer
) -> None:
    """If records exist and none is returned, the probe fails until they are."""

    async def nothing(_: AIOKafkaConsumer) -> dict[Any, Any]:
        await asyncio.sleep(0.05)  # as the client, which waits for records
        return {}

    async with working(kafka, redis_server, "stuck-fetch") as (runtime, topic):
        async with fetching(runtime, nothing):
            async with producer(kafka) as sender:
                await sender.send_and_wait(topic, b"{}")
            await alarm(runtime)

        await wait_until(lambda: not runtime.health.failures(), SOON, "the alarm does not end")
        assert offset(runtime) == 1


async def test_records_that_cannot_be_fetched_are_noticed(
    kafka: Kafka, redis_server: RedisServer
) -> None:
    """If the client refuses what the brokers send, such as a batch whose checksum is wrong, the
    worker says so, and the probe fails although the brokers answer."""

    async def refuses(_: AIOKafkaConsumer) -> dict[Any, Any]:
        raise CorruptRecordException

    async with working(kafka, redis_server, "stuck-corrupt") as (runtime, topic):
        async with fetching(runtime, refuses):
            async with producer(kafka) as sender:
                await sender.send_and_wait(topic, b"{}")
            await alarm(runtime)
            assert "CorruptRecordException" in runtime.health.reasons["fetch"]

        await wait_until(
            lambda: not runtime.health.unready_reasons(), SOON, "the alarm does not end"
        )
        assert offset(runtime) == 1


async def test_a_batch_that_never_ends_is_noticed(kafka: Kafka, redis_server: RedisServer) -> None:
    """A call that hangs without an error makes the probe fail."""
    async with working(kafka, redis_server, "stuck-batch") as (runtime, topic):
        assert runtime.loop is not None
        [state] = runtime.loop.partitions
        release = asyncio.Event()
        healthy = state.process

        async def hangs(*arguments: Any) -> int:
            await release.wait()
            return await healthy(*arguments)

        state.process = hangs  # type: ignore[assignment, method-assign]
        async with producer(kafka) as sender:
            await sender.send_and_wait(topic, b"{}")
        await alarm(runtime)

        release.set()
        await wait_until(lambda: not runtime.health.failures(), SOON, "the alarm does not end")


async def test_a_take_over_that_never_ends_is_noticed(
    kafka: Kafka, redis_server: RedisServer
) -> None:
    """If an assigned partition is not taken over, the probe fails, even without lag."""
    async with working(kafka, redis_server, "stuck-take-over") as (runtime, _):
        source = runtime.source
        assert source is not None
        release = asyncio.Event()
        healthy = source.partition_counts

        async def hangs() -> dict[str, int]:
            await release.wait()
            return await healthy()

        source.partition_counts = hangs  # type: ignore[method-assign]
        assign_again(runtime)
        await alarm(runtime)

        release.set()
        await wait_until(
            lambda: not runtime.health.unready_reasons(), SOON, "it is not ready again"
        )


@pytest.mark.long
async def test_markers_alone_are_no_lag(kafka: Kafka, redis_server: RedisServer) -> None:
    """Aborted transactions after a record leave nothing to read."""
    async with working(kafka, redis_server, "markers", MARKERS_SECONDS) as (runtime, topic):
        async with producer(kafka) as sender:
            await sender.send_and_wait(topic, b"{}")
        await wait_until(lambda: offset(runtime) == 1, SOON, "the record is not read")
        async with producer(kafka, transactional_id=topic) as sender:
            for number in (1, 2):
                await sender.begin_transaction()
                await sender.send_and_wait(topic, b"{}")
                await sender.abort_transaction()
                end = 1 + 2 * number
                await wait_until(lambda: offset(runtime) == end, SOON, "they are not passed")  # noqa: B023
                # whoever takes over looks for the record before the offset, and there is a marker
                assign_again(runtime)
        await stays_alive(runtime, 1.5 * MARKERS_SECONDS)


async def test_an_open_transaction_is_no_lag(kafka: Kafka, redis_server: RedisServer) -> None:
    """Uncommitted records are not visible to the worker for any time."""
    async with (
        working(kafka, redis_server, "open") as (runtime, topic),
        producer(kafka, transactional_id=topic) as sender,
    ):
        await sender.begin_transaction()
        await sender.send_and_wait(topic, b"{}")
        await stays_alive(runtime, 2 * SECONDS)
        await sender.commit_transaction()
        await wait_until(lambda: offset(runtime) == 2, SOON, "the record is not read")


async def test_a_held_partition_is_no_alarm(kafka: Kafka, redis_server: RedisServer) -> None:
    """A partition that is halted because its state is lost does not make the probe fail."""
    async with working(kafka, redis_server, "held") as (runtime, topic):
        async with producer(kafka) as sender:
            await sender.send_and_wait(topic, b"{}")
            await wait_until(lambda: bool(committed(runtime)), SOON, "nothing is committed")
            assert runtime.store is not None
            await runtime.store.wipe(0)
            held = "partition-0"
            await wait_until(lambda: held in runtime.health.reasons, SOON, "it is not held")
            await sender.send_and_wait(topic, b"{}")
        await stays_alive(runtime, 2 * SECONDS)


def committed(runtime: Runtime) -> Mapping[PartitionId, Commit]:
    """The worker's commits."""
    assert runtime.source is not None
    return runtime.source.acknowledged


def assign_again(runtime: Runtime) -> None:
    """Repeat the assignment callback of the client, as after a rebalance."""
    assert runtime.source is not None
    client = runtime.source.consumer
    runtime.source.on_rebalance(client, client.assignment())
