"""A worker whose connections to Kafka stall for a while."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import generate
from tests.campaign.servers import Brokers
from tests.services.live import PARTITIONS, LiveSystem, Worker, produce
from tests.services.test_live import profile

pytestmark = pytest.mark.service

LONGER_THAN_THE_SESSION = 9.0
LONGEST_WAIT_SECONDS = 60.0
OFFSET_COMMIT = 8


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    """A broker behind a proxy."""
    async with AsyncExitStack() as running:
        made = Brokers(tmp_path, 1)
        await made.start(running)
        yield made


@pytest.mark.long
async def test_a_commit_that_is_refused_late_is_handled(
    brokers: Brokers, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A commit in flight while the group removes the worker leaves no unretrieved exception."""
    group = f"stall-{os.getpid()}"
    topics = (f"{group}-events", f"{group}-labels")
    for topic in topics:
        await brokers.kafka.create_topic(topic, PARTITIONS)
        await brokers.kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    traffic = generate(replace(profile(8), conversations=1_500, invalid=0.0))
    produced = await produce(brokers.kafka, {"events": topics[0], "labels": topics[1]}, traffic)
    system = LiveSystem(brokers.kafka, redis_server, tmp_path, group, topics, produced)
    settings = {
        **system.environment,
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": brokers.outside,
        "STREAM_METRICS_KAFKA__COMMIT_INTERVAL_SECONDS": "0.05",
    }
    worker = Worker(tmp_path, "worker", settings)
    worker.launch()
    system.workers.append(worker)
    await system.reach(0.1)
    assert await system.read() < system.total, "the stall must hit midway"

    (proxy,) = brokers.proxies
    async with asyncio.timeout(LONGEST_WAIT_SECONDS):
        await proxy.stall_at(OFFSET_COMMIT).wait()
    await asyncio.sleep(LONGER_THAN_THE_SESSION)
    proxy.set("open")
    await system.reach(1.0)

    assert await system.stop_workers() == [0]
    said = worker.log.read_text()
    assert "offset commit failed" in said
    assert "never retrieved" not in said
