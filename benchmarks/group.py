"""Measures a group of workers that reads full topics, from their assignment to lag 0."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer
from redis.asyncio import Redis

from benchmarks.machine import ROOT
from benchmarks.processes import cpu_seconds
from benchmarks.ran import RAN, inherited
from benchmarks.servers import DIGEST_KEY, redis_cpu_seconds
from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.live.prometheus.catalogue import CONVERSATION_SOURCES

DEADLINE_SECONDS = 1_800
WARM = 10  # the first 1/WARM of the records are read before the measurement
# All workers of a group join before its first generation; without the delay, one would begin alone.
JOIN_TOGETHER = {"group.initial.rebalance.delay.ms": "3000"}


@dataclass(frozen=True, slots=True)
class Run:
    """A run: CPU seconds of all workers together, of Redis and of the broker.

    ``records`` and ``cpu`` exclude the workers' starts (``start_cpu``); ``total`` and the servers'
    seconds include them. ``wall`` is from the end of the first worker's start to the last write of
    any worker, ``rss_bytes`` the peak of the largest worker. ``opened`` counts the conversations
    that batches needed, by where they were found.
    """

    records: int
    total: int
    cpu: float
    start_cpu: float
    wall: float
    batches: int
    sends: int
    rss_bytes: int
    redis_cpu: float
    broker_cpu: float
    opened: Mapping[str, float]

    @property
    def us(self) -> float:
        """CPU µs per event of the workers."""
        return 1e6 * self.cpu / self.records

    @property
    def by_clock(self) -> float:
        """Events per second."""
        return self.records / self.wall

    @property
    def redis_us(self) -> float:
        """CPU µs per event of Redis, including the workers' starts."""
        return 1e6 * self.redis_cpu / self.total

    @property
    def broker_us(self) -> float:
        """CPU µs per event of the broker, including the workers' starts."""
        return 1e6 * self.broker_cpu / self.total

    @property
    def touched(self) -> float:
        """Conversations that a batch needs, per event."""
        return sum(self.opened.values()) / self.total

    @property
    def loaded(self) -> float:
        """Conversations that a batch loads from Redis, per event."""
        return (self.opened["store"] + self.opened["nowhere"]) / self.total

    @property
    def batch(self) -> float:
        """Events per batch."""
        return self.records / self.batches


async def sizes(bootstrap: str, topics: Iterable[str]) -> Counter[int]:
    """How many records each partition number has, of all topics."""
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        found: Counter[int] = Counter()
        for place, end in (await consumer.end_offsets(consumer.assignment())).items():
            found[place.partition] += end
    finally:
        await consumer.stop()
    return found


async def run_group(
    kafka: Kafka,
    redis: Sequence[RedisServer],
    settings: Mapping[str, str],
    left: Mapping[int, int],
    workers: int = 1,
) -> Run:
    """Run workers until they have read the records ``left`` on each partition number.

    The workers' starts include the first tenth of the records. ``settings`` are named as in the
    environment, without the common prefix.
    """
    environment = _environment(kafka, settings)
    arguments = [json.dumps(left), str(sum(left.values()) // WARM // workers)]
    children: list[asyncio.subprocess.Process] = []
    before = (await _redis_cpu(redis), cpu_seconds(kafka.brokers))
    try:
        for _ in range(workers):
            children.append(await _start(arguments, environment))
        found = await asyncio.wait_for(
            asyncio.gather(*map(_measured, children)), timeout=DEADLINE_SECONDS
        )
        after = (await _redis_cpu(redis), cpu_seconds(kafka.brokers))
        for child in children:
            assert child.stdin is not None
            child.stdin.close()
        await asyncio.gather(*(child.wait() for child in children))
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                child.kill()
    return Run(
        records=sum(one["records"] for one in found),
        total=sum(left.values()),
        cpu=sum(one["cpu"] for one in found),
        start_cpu=sum(one["start_cpu"] for one in found),
        wall=max(one["ended"] for one in found) - min(one["began"] for one in found),
        batches=sum(one["batches"] for one in found),
        sends=sum(one["sends"] for one in found),
        rss_bytes=max(one["rss_bytes"] for one in found),
        redis_cpu=after[0] - before[0],
        broker_cpu=after[1] - before[1],
        opened={
            where: sum(one["opened"][where] for one in found) for where in CONVERSATION_SOURCES
        },
    )


async def _redis_cpu(servers: Iterable[RedisServer]) -> float:
    """CPU seconds that all Redis servers have used so far."""
    spent = 0.0
    for server in servers:
        async with Redis.from_url(server.url) as client:
            spent += await redis_cpu_seconds(client)
    return spent


def _environment(kafka: Kafka, settings: Mapping[str, str]) -> dict[str, str]:
    ours = {
        "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STATE__DIGEST_KEY": DIGEST_KEY,
        "LOG__LEVEL": "WARNING",
        **settings,
    }
    return inherited() | {f"STREAM_METRICS_{name}": value for name, value in ours.items()}


async def _start(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.member", *arguments,
        cwd=ROOT,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def _measured(child: asyncio.subprocess.Process) -> dict[str, Any]:
    """The JSON object that a worker prints when it has read its partitions."""
    assert child.stdout is not None
    assert child.stderr is not None
    line = await child.stdout.readline()
    if not line:
        said = (await child.stderr.read()).decode()
        raise RuntimeError(f"a worker failed:\n{said[-4000:]}")
    found: dict[str, Any] = json.loads(line)
    RAN.note(found["engine"])
    return found
