"""From traffic to the person on call, by Kafka, worker, Prometheus, Alertmanager and a webhook."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from aiohttp import web

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Alertmanager, Prometheus, RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.core.alerts.files import rule_groups
from stream_metrics.lab.traffic import Incident, TrafficProfile, generate
from tests.services.live import PARTITIONS, LiveSystem, Produced, produce
from tests.services.test_servers import webhook

pytestmark = pytest.mark.service

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
AGENTS: Final = ("spiking", "steady")
HOUR: Final = 3600
WITHIN_SECONDS: Final = 120


class ReceivedAlert(NamedTuple):
    """An alert as the webhook received it."""

    receiver: str
    alert: str
    agent: str
    status: str


def traffic(conversations: int, *, strength: float) -> TrafficProfile:
    """Five minutes of traffic until half a minute ago, in which one agent finds the same pages."""
    return TrafficProfile(
        seed=7, conversations=conversations, start=int(time.time()) - 330, duration_seconds=290,
        agents=AGENTS, iterations=(2, 5), duplicates=0.1, result_bytes=200, labels=False,
        invalid=0.0, relevant=0.0, gate_skips=0.0,
        incidents=(Incident("spiking", 0, HOUR, "same_pages", strength),),
    )  # fmt: skip


def fast_rules(folder: Path) -> list[Path]:
    """The rule files, with alerts that wait for seconds instead of minutes."""
    made = []
    for name, groups in rule_groups().items():
        for group in groups:
            for rule in group["rules"]:
                rule |= dict.fromkeys(rule.keys() & {"for", "keep_firing_for"}, "2s")
        made.append(folder / f"{name}.rules.json")
        made[-1].write_text(json.dumps({"groups": groups}), encoding="utf-8")
    return made


def fast_routes(url: str) -> str:
    """The Alertmanager file without delays, and with a webhook for both receivers."""
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8")
    text = text.replace("group_wait: 30s", "group_wait: 100ms")
    text = text.replace("group_interval: 5m", "group_interval: 1s")
    head, _, _ = text.rpartition("receivers:")
    hook = "webhook_configs: [{url: '" + url + "', send_resolved: true}]"
    return f"{head}receivers:\n  - {{name: page, {hook}}}\n  - {{name: message, {hook}}}\n"


def yesterday(promtool_path: str, folder: Path) -> None:
    """Samples of the last hours for the baselines, which have 15% duplicates."""
    now = int(time.time())
    lines = []
    for family, value in (("duplicate_results", 15_000), ("results", 100_000)):
        lines.append(f"# TYPE streammetrics_window_{family} gauge")
        for agent in AGENTS:
            labels = f'job="stream-metrics",instance="before:1",agent="{agent}",window="24h"'
            lines += [
                f"streammetrics_window_{family}{{{labels}}} {value} {at}"
                for at in range(now - 2 * HOUR, now - HOUR // 2, 60)
            ]
    samples = folder / "yesterday.om"
    samples.write_text("\n".join([*lines, "# EOF\n"]), encoding="utf-8")
    data = folder / "prometheus" / "data"
    data.mkdir(parents=True)
    subprocess.run(
        [promtool_path, "tsdb", "create-blocks-from", "openmetrics", str(samples), str(data)],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip


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


async def test_a_spike_pages_for_its_agent_and_resolves(
    kafka: Kafka,
    redis_server: RedisServer,
    alertmanager_factory: Callable[..., Awaitable[Alertmanager]],
    promtool_path: str,
    webhook_alerts: tuple[str, list[ReceivedAlert]],
    tmp_path: Path,
) -> None:
    """SRRSpike reaches the pager for the agent with repeats, for no other, and resolves."""
    url, heard = webhook_alerts
    group = f"spike-{uuid.uuid4().hex[:8]}"
    topics = (f"{group}-searches", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, PARTITIONS)
        await kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    streams = {"events": topics[0], "labels": topics[1]}
    nothing = Produced((), frozenset(), 0)
    system = LiveSystem(kafka, redis_server, tmp_path / group, group, topics, nothing)
    await system.start_workers(1)
    (worker,) = system.workers
    await wait_until(worker.ready, 120, "the worker is not ready")
    yesterday(promtool_path, tmp_path)
    alertmanager = await alertmanager_factory(config=fast_routes(url))
    prometheus = Prometheus(
        tmp_path / "prometheus",
        {"stream-metrics": [worker.address]},
        rule_files=fast_rules(tmp_path),
        alertmanagers=[alertmanager.address],
        interval="1s",
    )
    async with prometheus:
        await produce(kafka, streams, generate(traffic(60, strength=0.9)))
        page = ReceivedAlert("page", "SRRSpike", "spiking", "firing")
        await wait_until(
            lambda: page in heard, WITHIN_SECONDS, lambda: f"nobody was paged; heard: {heard}"
        )

        await produce(kafka, streams, generate(traffic(600, strength=0.0)))
        resolved = page._replace(status="resolved")
        await wait_until(
            lambda: resolved in heard, WITHIN_SECONDS, lambda: f"it does not resolve: {heard}"
        )

    assert {one.agent for one in heard if one.agent} == {"spiking"}
    assert {one.alert for one in heard} == {"SRRSpike"}
    assert await system.stop_workers() == [0]
