"""From traffic to the person on call: Kafka, two workers, Prometheus, Alertmanager and a webhook.

A minute of the rules is a second here, so an hour is a minute.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from heapq import merge
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest
from aiohttp import web
from aiokafka import AIOKafkaProducer

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Alertmanager, Prometheus, RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.core.alerts.evidence import CUSUM
from stream_metrics.core.alerts.quality import QUALITY
from stream_metrics.lab.traffic import Incident, TrafficProfile, TrafficRecord, generate
from tests.rules.faster import FLAGS, faster
from tests.rules.parts import groups_for
from tests.rules.past import USUAL_SECONDS, Counted, record
from tests.services.live import PARTITIONS, LiveSystem, Produced
from tests.services.test_servers import webhook

pytestmark = pytest.mark.service

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
PACES: Final = {"quiet": 0.4, "steady": 3.0}  # turns a second, which is a minute of the rules
SHARE: Final = 0.07  # of results that repeat others, as in this traffic without an incident
HEALTHY_SECONDS: Final = 60
WITHIN_SECONDS: Final = 120
DAY: Final = 86_400


class ReceivedAlert(NamedTuple):
    """An alert as the webhook received it."""

    receiver: str
    alert: str
    agent: str
    status: str


def traffic(start: int, seed: int, *, incident: float = 0.0) -> Iterator[TrafficRecord]:
    """The records of both agents in the order of time; the quiet one may find the same pages."""
    strengths = {"quiet": incident, "steady": 0.0}
    return merge(
        *(
            generate(
                TrafficProfile(
                    seed=2 * seed + at, conversations=int(pace * WITHIN_SECONDS), start=start,
                    duration_seconds=WITHIN_SECONDS, agents=(agent,), iterations=(2, 5),
                    duplicates=0.1, result_bytes=200, labels=False, invalid=0.0, relevant=0.0,
                    gate_skips=0.0, redelivered=0.0, turns=(1, 1),
                    incidents=(Incident(agent, 0, DAY, "same_pages", strengths[agent]),),
                )
            )
            for at, (agent, pace) in enumerate(PACES.items())
        ),
        key=lambda record: record.timestamp_ms,
    )  # fmt: skip


@asynccontextmanager
async def played(
    kafka: Kafka, streams: dict[str, str], records: Iterator[TrafficRecord]
) -> AsyncIterator[None]:
    """Send each record when its time has come, until the end of the block."""

    waiting, over = deque(records), asyncio.Event()
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)

    async def play() -> None:
        while not over.is_set():
            while waiting and waiting[0].timestamp_ms <= 1_000 * time.time():
                record = waiting.popleft()
                await producer.send(
                    streams[record.stream], record.value, key=record.key,
                    timestamp_ms=record.timestamp_ms,
                )  # fmt: skip
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 0.2)

    async with producer, asyncio.TaskGroup() as tasks:
        tasks.create_task(play())
        try:
            yield
        finally:
            over.set()


def rules(folder: Path) -> list[Path]:
    """The file with the alerts about what agents find, a second for each minute."""
    groups = groups_for(*(alert.name for alert in QUALITY))
    (file := folder / "rules.json").write_text(json.dumps({"groups": faster(groups)}))
    return [file]


def fast_routes(url: str) -> str:
    """The Alertmanager file without delays, and with a webhook for both receivers."""
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8")
    text = text.replace("group_wait: 30s", "group_wait: 100ms")
    text = text.replace("group_interval: 5m", "group_interval: 1s")
    head, _, _ = text.rpartition("receivers:")
    hook = "webhook_configs: [{url: '" + url + "', send_resolved: true}]"
    return f"{head}receivers:\n  - {{name: page, {hook}}}\n  - {{name: message, {hook}}}\n"


def usual(promtool_path: str, folder: Path) -> None:
    """What rules would have recorded of both agents in the time before."""
    rng = np.random.default_rng(3)
    agents = {}
    for agent, pace in PACES.items():
        results = 35.0 * rng.poisson(pace, USUAL_SECONDS).astype(float)
        duplicates = rng.binomial(results.astype(int), SHARE).astype(float)
        agents[agent] = Counted(results, duplicates)
    record(promtool_path, folder / "prometheus" / "data", agents)


@pytest.fixture
async def webhook_alerts() -> AsyncIterator[tuple[str, list[ReceivedAlert]]]:
    """A webhook and the alerts it received."""
    heard: list[ReceivedAlert] = []

    async def receive(request: web.Request) -> web.Response:
        message = await request.json()
        heard.extend(
            ReceivedAlert(
                message["receiver"],
                one["labels"]["alertname"],
                one["labels"].get("agent", ""),
                one["status"],
            )
            for one in message["alerts"]
        )
        return web.Response()

    async with webhook(receive) as url:
        yield url, heard


@pytest.mark.long
async def test_an_incident_of_a_quiet_agent_pages_and_a_killed_worker_pages_nobody(
    kafka: Kafka,
    redis_server: RedisServer,
    alertmanager_factory: Callable[..., Awaitable[Alertmanager]],
    promtool_path: str,
    webhook_alerts: tuple[str, list[ReceivedAlert]],
    tmp_path: Path,
) -> None:
    """SRRSpike pages for the agent with four turns in ten minutes, for no other, and resolves."""
    url, heard = webhook_alerts
    group = f"spike-{uuid.uuid4().hex[:8]}"
    topics = (f"{group}-searches", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, PARTITIONS)
        await kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    streams = {"events": topics[0], "labels": topics[1]}
    nothing = Produced((), frozenset(), 0)
    system = LiveSystem(kafka, redis_server, tmp_path / group, group, topics, nothing)
    await system.start_workers(2)
    killed, other = system.workers
    for worker in system.workers:
        await wait_until(worker.ready, 120, "the worker is not ready")
    usual(promtool_path, tmp_path)
    alertmanager = await alertmanager_factory(config=fast_routes(url))
    prometheus = Prometheus(
        tmp_path / "prometheus",
        {"stream-metrics": [worker.address for worker in system.workers]},
        rule_files=rules(tmp_path),
        alertmanagers=[alertmanager.address],
        interval="1s",
        flags=FLAGS,
    )
    async with prometheus:
        began = int(time.time())
        async with played(kafka, streams, traffic(began, 1)):

            async def judged() -> bool:
                return len(await prometheus.query(f'{CUSUM}{{figure="srr"}}')) == 2 * len(PACES)

            await wait_until(judged, 60, "the agents are not judged")
            killed.kill9()

            async def taken_over() -> bool:
                return await other.owned() == PARTITIONS

            await wait_until(taken_over, 60, other.log_tail)
            await wait_until(lambda: time.time() >= began + HEALTHY_SECONDS, 120, "time stands")
        assert heard == []

        async with played(kafka, streams, traffic(int(time.time()), 2, incident=0.9)):
            page = ReceivedAlert("page", "SRRSpike", "quiet", "firing")
            await wait_until(
                lambda: page in heard, WITHIN_SECONDS, lambda: f"nobody was paged; heard: {heard}"
            )
        resolved = page._replace(status="resolved")
        await wait_until(
            lambda: resolved in heard, WITHIN_SECONDS, lambda: f"it does not resolve: {heard}"
        )

    assert {one.agent for one in heard} == {"quiet"}
    assert {one.alert for one in heard} == {"SRRSpike"}
    assert (await system.stop_workers())[1] == 0
