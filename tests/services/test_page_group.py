"""The pages of two workers: each shows the partitions of both, also after one was killed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import TrafficProfile, generate
from tests.helpers import wait_until
from tests.services.live import LiveSystem, Worker, produce
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

SESSION_MS = 90_000  # for so long the group waits for a worker that was killed


async def state(worker: Worker) -> dict[str, Any]:
    """What the worker's page shows of the last day."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
        session.get(f"http://{worker.address}/api/state", params={"window": "24h"}) as answer,
    ):
        found: dict[str, Any] = await answer.json()
        return found


async def own_results(worker: Worker) -> float:
    """The results of the last day on ``/metrics``: those of the worker's own partitions."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
        session.get(f"http://{worker.address}/metrics") as answer,
    ):
        lines = (await answer.text()).splitlines()
    series = [line for line in lines if line.startswith("streammetrics_window_results{")]
    return sum(float(line.rpartition(" ")[2]) for line in series if 'window="24h"' in line)


@pytest.mark.long
async def test_each_page_shows_both_workers_and_names_a_killed_one(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Both show the same figures; after kill -9 the other names partitions without owner."""
    group = f"paged-{os.getpid()}"
    topics = await new_topics(kafka, group)
    profile = TrafficProfile(
        seed=3, conversations=60, duration_seconds=600, start=int(time.time()) - 900
    )
    produced = await produce(kafka, {"events": topics[0], "labels": topics[1]}, generate(profile))
    session = {"STREAM_METRICS_KAFKA__SESSION_TIMEOUT_MS": str(SESSION_MS)}
    system = LiveSystem(kafka, redis_server, tmp_path, group, topics, produced, settings=session)
    await system.start_workers(2)
    one, two = system.workers

    async def halves() -> bool:
        return [await worker.owned() for worker in (one, two)] == [2, 2]

    await wait_until(halves, 180, lambda: f"not two partitions each:\n{one.log_tail()}")
    await system.reach(1.0)

    async def agree() -> bool:
        pages = [await state(worker) for worker in (one, two)]
        shown = {page["sums"]["results"] for page in pages}
        return len(shown) == 1 and not any(page["partitions"]["problems"] for page in pages)

    await wait_until(agree, 60, lambda: f"the pages differ:\n{one.log_tail()}")
    own = [await own_results(worker) for worker in (one, two)]
    pages = [await state(worker) for worker in (one, two)]

    assert all(own)
    assert [page["sums"]["results"] for page in pages] == [sum(own)] * 2
    assert pages[0]["figures"] == pages[1]["figures"]
    for page, worker, other in zip(pages, (one, two), (two, one), strict=True):
        mine, theirs = page["partitions"]["shares"]
        assert mine["worker"].endswith(f":{worker.port}")
        assert theirs["worker"].endswith(f":{other.port}")
        assert len(mine["partitions"]) == len(theirs["partitions"]) == 2
        assert theirs["age_seconds"] <= 20

    two.kill9()

    async def named() -> bool:
        return bool((await state(one))["partitions"]["problems"])

    await wait_until(named, 60, "the page does not say that a worker is gone")
    page = await state(one)

    (problem,) = page["partitions"]["problems"]
    assert "no worker has worked on it for " in problem
    assert problem.endswith(f":{two.port}")
    assert page["sums"]["results"] == sum(own)
    levels = {f["level"] for rule in page["rules"] for f in rule["findings"] if f["agent"]}
    assert "ok" not in levels
    assert (await one.readyz())[0] == 200
    assert await one.stop() == 0
