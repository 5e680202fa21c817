"""A service that sends bad traces beside three that send good ones, through a real Collector."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Collector, RedisServer
from deploy.local.traces import COLLECTOR_CONFIG
from tests.services.bridged import bridged
from tests.services.neighbours import SETTINGS, Hostile, Turns, run

pytestmark = pytest.mark.service

SETTLE_SECONDS = 2
SEEN_WITHIN_SECONDS = 30


async def test_a_hostile_service_changes_nothing_for_three_others(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Their rows and windows equal a replay without its traces, they stay fresh, and the bridge
    runs on."""
    system = await bridged(kafka, redis_server, tmp_path, **SETTINGS)
    server = Collector(
        tmp_path / "collector", COLLECTOR_CONFIG, kafka.bootstrap_servers, topic=system.traces
    )
    async with server as collector:
        done = await run(system, collector, seed=1, seconds=10, pause=0.5)

    assert (done.differences, done.restarts) == ([], 0)
    assert done.rows == done.good_turns > 20
    assert done.hostile.keys() >= Hostile(Turns(1)).kinds().keys()
    assert done.freshness.percentile(0.99) < SETTLE_SECONDS + SEEN_WITHIN_SECONDS
