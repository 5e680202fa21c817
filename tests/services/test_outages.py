"""What is exported and alerted while Kafka or Redis is away."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.process import free_port
from deploy.local.servers import Prometheus, RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.core.alerts.obstacles import KAFKA, REDIS
from stream_metrics.live.worker.lag import KNOWN_SECONDS
from tests.rules.faster import FLAGS, faster
from tests.rules.parts import groups_for
from tests.services.live import PARTITIONS, LiveSystem, Produced, Worker

pytestmark = pytest.mark.service

LAG: Final = '{__name__=~"streammetrics_(consumer_lag_.*|complete_until_timestamp_seconds)"}'
MEMORY: Final = '{__name__=~"streammetrics_redis_memory_.*"}'
NOTHING: Final = Produced((), frozenset(), 0)


def alerting(prometheus: Prometheus, alert: str, reason: str) -> Callable[[], Awaitable[bool]]:
    """Whether an alert fires, and names the reason."""
    firing = f'ALERTS{{alertname="{alert}", alertstate="firing", reason="{reason}"}}'

    async def fires() -> bool:
        return bool(await prometheus.query(firing))

    return fires


def sampled(prometheus: Prometheus, selector: str) -> Callable[[], Awaitable[int]]:
    """The number of series that have a sample now."""

    async def found() -> int:
        return len(await prometheus.query(selector))

    return found


def unsampled(prometheus: Prometheus, selector: str) -> Callable[[], Awaitable[bool]]:
    """Whether no series has a sample now."""

    async def gone() -> bool:
        return not await prometheus.query(selector)

    return gone


async def rules_of_page(worker: Worker) -> dict[str, str]:
    """The level of each rule on the worker's page."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        session.get(f"http://{worker.address}/api/state") as answer,
    ):
        return {rule["name"]: rule["level"] for rule in (await answer.json())["rules"]}


@pytest.mark.long
async def test_an_outage_is_alerted_and_what_cannot_be_read_has_no_sample(
    kafka_factory: Callable[..., Awaitable[Kafka]],
    redis_factory: Callable[..., Awaitable[RedisServer]],
    prometheus_factory: Callable[..., Awaitable[Prometheus]],
    tmp_path: Path,
) -> None:
    """Without Kafka the alert about it fires and no lag is exported, without Redis the one about
    that and no memory; both alerts resolve, and the samples return, when the server is back."""
    kafka = await kafka_factory()
    group = f"outage-{uuid.uuid4().hex[:8]}"
    topics = (f"{group}-searches", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, PARTITIONS)
        await kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    (rules := tmp_path / "rules.json").write_text(
        json.dumps({"groups": faster(groups_for(KAFKA, REDIS))})
    )
    redis = await redis_factory()
    system = LiveSystem(kafka, redis, tmp_path / group, group, topics, NOTHING)
    await system.start_workers(1)
    (worker,) = system.workers
    await wait_until(worker.ready, 120, worker.log_tail)
    jobs = {"stream-metrics": [worker.address]}
    prometheus = await prometheus_factory(jobs, rule_files=[rules], interval="1s", flags=FLAGS)
    known = 2 * 2 * PARTITIONS + 1  # two topics, in records and seconds, and up to when all is read

    async def as_usual() -> bool:
        there = await sampled(prometheus, LAG)(), await sampled(prometheus, MEMORY)()
        return there == (known, 2) and not await prometheus.firing()

    await wait_until(as_usual, 60, worker.log_tail)

    for broker in kafka.brokers:
        broker.kill9()
    await wait_until(alerting(prometheus, KAFKA, "kafka"), 60, "no alert about Kafka")
    await wait_until(unsampled(prometheus, LAG), 60 + KNOWN_SECONDS, "lag is exported")
    assert await alerting(prometheus, KAFKA, "kafka")()
    levels = await rules_of_page(worker)
    assert (levels["kafka"], levels["lag"]) == ("critical", "unknown")
    for broker in kafka.brokers:
        await broker.start()
    await wait_until(as_usual, 60, worker.log_tail)

    redis.kill9()
    await wait_until(alerting(prometheus, REDIS, "redis"), 60, "no alert about Redis")
    await wait_until(unsampled(prometheus, MEMORY), 60, "memory is exported")
    assert (await rules_of_page(worker))["memory"] == "unknown"
    await redis.start()
    await wait_until(as_usual, 60, worker.log_tail)
    assert await system.stop_workers() == [0]


async def test_a_worker_that_starts_without_kafka_exports_why(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """The obstacle is on ``/metrics`` before there was any answer, and so it can be alerted."""
    group = f"away-{uuid.uuid4().hex[:8]}"
    worker = Worker(
        tmp_path, group,
        {
            "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
            "STREAM_METRICS_KAFKA__GROUP_ID": group,
            "STREAM_METRICS_REDIS__URL": redis_server.url,
            "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
        },
    )  # fmt: skip
    worker.launch()
    await wait_until(worker.pages, 60, worker.log_tail)

    async def exported() -> bool:
        return await worker.figure("streammetrics_obstacles") == 2  # it has no partitions either

    await wait_until(exported, 30, worker.log_tail)
    assert "kafka" in (await worker.readyz())[1]["reasons"]
    await worker.stop()
