"""Runs Kafka, filled with the workload, and Redis during a measurement."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaProducer
from redis.asyncio import Redis

from benchmarks.ran import inherited
from benchmarks.workload import TOPICS, Traffic
from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer

PARTITIONS = 4
DIGEST_KEY = "a key for measurements"
SETTLE_SECONDS = 1.5  # the append-only file's buffer is part of used_memory
JVM = ("-Xms768m", "-Xmx768m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")


@dataclass(frozen=True, slots=True)
class Servers:
    """The running servers, and a client that reads Redis' statistics."""

    kafka: Kafka
    redis: RedisServer
    client: Redis


@asynccontextmanager
async def redis_server() -> AsyncIterator[tuple[RedisServer, Redis]]:
    """A Redis that writes its append-only file to disk every second."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        async with RedisServer(Path(folder) / "redis", fsync="everysec") as redis:
            client = Redis.from_url(redis.url)
            try:
                yield redis, client
            finally:
                await client.aclose()


async def redis_cpu_seconds(client: Redis) -> float:
    """CPU seconds that Redis has used so far."""
    info = await client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


async def redis_bytes(client: Redis) -> int:
    """The present ``used_memory``."""
    return int((await client.info("memory"))["used_memory"])


async def settled_redis_bytes(client: Redis) -> int:
    """``used_memory`` after the append-only file's buffer was written."""
    await asyncio.sleep(SETTLE_SECONDS)
    return await redis_bytes(client)


@asynccontextmanager
async def servers(traffic: Traffic) -> AsyncIterator[Servers]:
    """Both servers, the topics of the worker and the dead letters, and the traffic in them."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        async with (
            Kafka(Path(folder) / "kafka", jvm=JVM) as kafka,
            redis_server() as (redis, client),
        ):
            await create_topics(kafka)
            await produce(kafka.bootstrap_servers, traffic)
            yield Servers(kafka, redis, client)


async def create_topics(kafka: Kafka, partitions: int = PARTITIONS, prefix: str = "") -> list[str]:
    """Create the worker's topics and those of its dead letters; the names of the former."""
    topics = [prefix + topic for topic in TOPICS.values()]
    for topic in topics:
        for name in (topic, f"{topic}.dlq"):
            await kafka.create_topic(name, partitions, {"retention.ms": "-1"})
    return topics


async def produce(bootstrap: str, traffic: Traffic, prefix: str = "") -> None:
    """Send every record, in its order, to the partition of its key."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        linger_ms=20,
        max_batch_size=512 * 1024,
        max_request_size=16 * 1024 * 1024,
    )
    await producer.start()
    try:
        sent: list[asyncio.Future[object]] = []
        for record in traffic.records:
            sent.append(
                await producer.send(
                    prefix + TOPICS[record.stream],
                    record.value,
                    key=record.key,
                    timestamp_ms=record.timestamp_ms,
                )
            )
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def send(bootstrap: str, records: Iterable[tuple[str, bytes, bytes, int]]) -> None:
    """Send records (topic, key, value, timestamp in ms), no faster than Kafka takes them."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=256 * 1024
    )
    await producer.start()
    try:
        for topic, key, value, timestamp_ms in records:
            await producer.send(topic, value, key=key, timestamp_ms=timestamp_ms)
        await producer.flush()
    finally:
        await producer.stop()


def worker_environment(servers: Servers, group: str) -> dict[str, str]:
    """The settings of a worker with a group and a namespace of its own."""
    ours = {
        "KAFKA__BOOTSTRAP_SERVERS": servers.kafka.bootstrap_servers,
        "KAFKA__GROUP_ID": group,
        "REDIS__URL": servers.redis.url,
        "STATE__DIGEST_KEY": DIGEST_KEY,
        "LOG__LEVEL": "WARNING",
    }
    return inherited() | {f"STREAM_METRICS_{name}": value for name, value in ours.items()}
