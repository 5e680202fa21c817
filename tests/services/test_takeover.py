"""A takeover so slow that the group reassigns the partition meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from redis.asyncio import Redis

from deploy.local.kafka.cluster import Kafka
from deploy.local.process import free_port
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import generate
from tests.campaign.proxy import Proxy
from tests.helpers import wait_until
from tests.services.live import LiveSystem, Worker, produce
from tests.services.test_live import few

pytestmark = pytest.mark.service

SLOW_SECONDS = 4.0


@pytest.mark.long
async def test_a_partition_given_away_during_a_slow_take_over_is_let_go(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """If another member gets it before the state is loaded, both workers become ready."""
    group = f"handed-{os.getpid()}"
    topics = (f"{group}-events", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic)
        await kafka.create_topic(f"{topic}.dlq")
    traffic = generate(few(seed=9))
    produced = await produce(kafka, {"events": topics[0], "labels": topics[1]}, traffic)
    system = LiveSystem(kafka, redis_server, tmp_path, group, topics, produced)
    async with Proxy(free_port(), ("127.0.0.1", redis_server.port)) as proxy:
        proxy.delay_seconds = SLOW_SECONDS
        slow = Worker(
            tmp_path,
            "slow",
            {
                **system.environment,
                "STREAM_METRICS_KAFKA__CLIENT_ID": "b",
                "STREAM_METRICS_REDIS__URL": f"redis://{proxy.address}/0",
                "STREAM_METRICS_REDIS__SOCKET_TIMEOUT_SECONDS": "30",
            },
        )
        # members get partitions in the order of their names
        quick_settings = {**system.environment, "STREAM_METRICS_KAFKA__CLIENT_ID": "a"}
        quick = Worker(tmp_path, "quick", quick_settings)
        system.workers += [slow, quick]
        slow.launch()
        await wait_until(lambda: claiming(redis_server, group), 180, "the claim has not begun")
        quick.launch()
        await wait_until(quick.ready, 60, "the new owner is not ready")
        proxy.delay_seconds = 0.0

        await wait_until(slow.ready, 60, lambda: f"still not ready:\n{slow.log_tail()}")
        await system.reach(1.0)
        assert await system.stop_workers() == [0, 0]


async def claiming(redis: RedisServer, group: str) -> bool:
    """Whether the first of a claim's calls has arrived."""
    async with Redis.from_url(redis.url) as client:
        return bool(await client.exists(f"sm:{group}:2:layout"))
