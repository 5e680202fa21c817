"""From traffic to the person on call: Kafka, two workers, Prometheus, Alertmanager and a webhook.

Durations of the rules are those of seconds, not of minutes, so that an alert ends soon.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from heapq import merge
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from aiohttp import web
from aiokafka import AIOKafkaProducer

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Alertmanager, Prometheus, RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.core.alerts.evidence import TOLD
from stream_metrics.core.alerts.quality import QUALITY
from stream_metrics.lab.traffic import Incident, TrafficProfile, TrafficRecord, generate
from tests.rules.faster import FLAGS, faster
from tests.rules.parts import groups_for
from tests.services.live import PARTITIONS, LiveSystem, Produced
from tests.services.test_servers import webhook

pytestmark = pytest.mark.service

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
PACES: Final = {"quiet": 0.4, "steady": 3.0}  # turns a minute
HISTORY_MINUTES: Final = 240
INCIDENT_MINUTES: Final = 25
WITHIN_SECONDS: Final = 240  # a minute is told once it is over, and an alert ends ten seconds later


class ReceivedAlert(NamedTuple):
    """An alert as the webhook received it."""

    receiver: str
    alert: str
    agent: str
    status: str


def traffic(
    start: int, minutes: int, *, pace: float = 1.0, incident: int = 0
) -> Iterator[TrafficRecord]:
    """The records of both agents in the order of time.

    In the last minutes of an ``incident``, the quiet one finds the same pages again and again.
    """
    seconds = 60.0 * minutes
    return merge(
        *(
            generate(
                TrafficProfile(
                    seed=start % 1_000 + at, conversations=int(turns * pace * minutes), start=start,
                    duration_seconds=seconds, agents=(agent,), iterations=(2, 5),
                    duplicates=0.1, result_bytes=200, labels=False, invalid=0.0, relevant=0.0,
                    gate_skips=0.0, redelivered=0.0, turns=(1, 1),
                    incidents=(
                        Incident(
                            agent, seconds - 60 * (incident if agent == "quiet" else 0), seconds,
                            "same_pages", 0.9,
                        ),
                    ),
                )
            )
            for at, (agent, turns) in enumerate(PACES.items())
        ),
        key=lambda record: record.timestamp_ms,
    )  # fmt: skip


async def send(kafka: Kafka, streams: dict[str, str], records: Iterable[TrafficRecord]) -> None:
    """Send records, each with its own time, as far as that has come."""
    now_ms = 1_000 * time.time()
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for record in records:
            if record.timestamp_ms <= now_ms:
                await producer.send(
                    streams[record.stream], record.value, key=record.key,
                    timestamp_ms=record.timestamp_ms,
                )  # fmt: skip


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
    webhook_alerts: tuple[str, list[ReceivedAlert]],
    tmp_path: Path,
) -> None:
    """SRRSpike pages once for the agent with four turns in ten minutes, for no other, and resolves.

    Workers read the hours before, too, and the one that tells is killed meanwhile.
    """
    url, heard = webhook_alerts
    group = f"spike-{uuid.uuid4().hex[:8]}"
    topics = (f"{group}-searches", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, PARTITIONS)
        await kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    streams = {"events": topics[0], "labels": topics[1]}
    nothing = Produced((), frozenset(), 0)
    system = LiveSystem(kafka, redis_server, tmp_path / group, group, topics, nothing)
    start = int(time.time()) - 60 * HISTORY_MINUTES
    await send(kafka, streams, traffic(start, HISTORY_MINUTES, incident=INCIDENT_MINUTES))
    await system.start_workers(2)
    for worker in system.workers:
        await wait_until(worker.ready, 120, "the worker is not ready")
    alertmanager = await alertmanager_factory(config=fast_routes(url))
    prometheus = Prometheus(
        tmp_path / "prometheus",
        {"stream-metrics": [worker.address for worker in system.workers]},
        rule_files=rules(tmp_path),
        alertmanagers=[alertmanager.address],
        interval="1s",
        flags=FLAGS,
    )
    page = ReceivedAlert("page", "SRRSpike", "quiet", "firing")
    async with prometheus:
        await wait_until(
            lambda: page in heard, WITHIN_SECONDS, lambda: f"nobody was paged; heard: {heard}"
        )
        (told,) = await prometheus.query(TOLD)
        by_address = {worker.address: worker for worker in system.workers}
        killed = by_address.pop(told["metric"]["instance"])
        (other,) = by_address.values()
        killed.kill9()

        async def taken_over() -> bool:
            tell = await prometheus.query(TOLD)
            return [one["metric"]["instance"] for one in tell] == [other.address]

        await wait_until(taken_over, 120, other.log_tail)
        recovers = traffic(int(time.time()) - 60, 1, pace=60.0)
        await send(kafka, streams, recovers)
        resolved = page._replace(status="resolved")
        await wait_until(
            lambda: resolved in heard, WITHIN_SECONDS, lambda: f"it does not resolve: {heard}"
        )

    assert {one.agent for one in heard} == {"quiet"}
    assert {one.alert for one in heard} == {"SRRSpike"}
    assert (await system.stop_workers()).count(0) == 1
