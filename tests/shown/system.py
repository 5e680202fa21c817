"""A worker that has read the last hour, traffic that goes on, and a Prometheus that scrapes."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Prometheus, RedisServer
from deploy.local.stack import DEPLOY, RETRIEVAL, Command, generator_command
from deploy.local.waiting import wait_until
from stream_metrics.traffic import TrafficProfile, TrafficRecord, generate
from tests.services.live import PARTITIONS, LiveSystem, Produced, produce

JOB: Final = "stream-metrics"
HOUR_SECONDS: Final = 3_600
WITHIN_SECONDS: Final = 120
CONVERSATIONS: Final = 300
SEED: Final = 2  # another than the generator's: its conversations are others
LIVE_CONVERSATIONS_PER_HOUR: Final = 7_200
# What panels show that nobody has unless it is asked for.
SETTINGS: Final = {"STREAM_METRICS_METRICS__RETRIEVAL": RETRIEVAL}


class Shown(NamedTuple):
    """A system at work, and who watches it."""

    system: LiveSystem
    prometheus: Prometheus


@asynccontextmanager
async def shown(kafka: Kafka, folder: Path) -> AsyncIterator[Shown]:
    """One worker, whose Redis has the memory limit of ours, scraped each second from its start on.

    It has read the traffic of the last hour, up to now; nothing more comes.
    """
    group = f"shown-{uuid.uuid4().hex[:8]}"
    topics = (f"{group}-events", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, PARTITIONS)
        await kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    async with RedisServer(folder / "redis", config=DEPLOY / "redis" / "redis.conf") as redis:
        nothing = Produced((), frozenset(), 0)
        system = LiveSystem(kafka, redis, folder, group, topics, nothing, settings=SETTINGS)
        await system.start_workers(1)
        (worker,) = system.workers
        try:
            await wait_until(worker.ready, WITHIN_SECONDS, "the worker is not ready")
            jobs = {JOB: [worker.address]}
            async with Prometheus(folder / "prometheus", jobs, interval="1s") as prometheus:
                await wait_until(
                    partial(prometheus.query, "streammetrics_ready == 1"),
                    WITHIN_SECONDS,
                    "Prometheus has not scraped the worker",
                )
                streams = {"events": topics[0], "labels": topics[1]}
                system.produced = await produce(kafka, streams, last_hour())
                await system.reach(1.0)
                yield Shown(system, prometheus)
        finally:
            await system.stop_workers()


@asynccontextmanager
async def live_traffic(system: LiveSystem) -> AsyncIterator[None]:
    """What ``make stack`` and the containers have for traffic, two conversations a second."""
    much = ["--conversations", str(LIVE_CONVERSATIONS_PER_HOUR)]
    command = [*generator_command(), *much]
    async with Command(system.folder / "generator", command, system.environment):
        yield


def last_hour() -> list[TrafficRecord]:
    """The records of the last hour, as they would have come until now."""
    now_s = int(time.time())
    profile = TrafficProfile(
        seed=SEED,
        conversations=CONVERSATIONS,
        start=now_s - HOUR_SECONDS,
        duration_seconds=HOUR_SECONDS,
    )
    return [record for record in generate(profile) if record.timestamp_ms <= now_s * 1_000]
