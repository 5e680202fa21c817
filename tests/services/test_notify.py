"""What fires and ends, told to a real Alertmanager, which tells a webhook."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Alertmanager, RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.lab.traffic import TrafficRecord
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.notify.delivery import Recipient
from stream_metrics.live.notify.episodes import Found, Key, State, Timing
from stream_metrics.live.notify.notifier import Look, Notifier
from stream_metrics.live.page.notices import Charges
from tests.helpers import ran
from tests.services.live import produce
from tests.services.test_live import empty_system, new_topics
from tests.unit.test_worst import searched

pytestmark = pytest.mark.service

Start = Callable[..., Awaitable[Alertmanager]]


class Told:
    """How often Alertmanager tells a webhook of each status and severity."""

    def __init__(self) -> None:
        self.url = ""
        self.heard: Counter[tuple[str, str]] = Counter()
        self.last: dict[str, Any] = {}

    def has(self, heard: set[tuple[str, str]]) -> Callable[[], bool]:
        """Whether exactly this was heard."""
        return lambda: self.heard.keys() == heard

    async def take(self, request: web.Request) -> web.Response:
        """Count the alerts of a message."""
        for one in (await request.json())["alerts"]:
            self.last = one
            self.heard[one["status"], one["labels"]["severity"]] += 1
        return web.Response()


def fault(level: str) -> list[Found]:
    """An agent that repeats itself."""
    return [Found(Key("srr_spike", "support"), State.FAULT, "36%; usually it is 12%", level)]


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    """A webhook, which listens."""
    found = Told()
    app = web.Application()
    app.router.add_post("/", found.take)
    async with TestServer(app) as server:
        found.url = str(server.make_url("/"))
        yield found


async def test_alertmanager_is_told_what_begins_gets_worse_and_ends(
    alertmanager_factory: Start, told: Told
) -> None:
    """It passes each of these on once, although the notifier restarts after every look."""
    alertmanager, store = await alertmanager_factory(told.url), MemoryStore()
    about = Charges().about("agent", "https://runbooks.example.org/{alert}")
    recipient = Recipient(alertmanager.url, "alertmanager", about, "https://page.example.org/")
    now = time.time() - 900.0  # a look a minute

    async def look(found: list[Found]) -> None:
        async def looked() -> Look:
            return Look(found, ["srr_spike"])

        nonlocal now
        now += 60.0
        notifier = Notifier(
            "it", looked, recipient.deliver, store, lambda *_: Timing(), lambda: now,
            alone=True,
        )  # fmt: skip
        await notifier.step()

    steps: list[tuple[list[Found], list[tuple[str, str]]]] = [
        (fault(WARNING), [("firing", "warning")]),
        (fault(CRITICAL), [("firing", "critical"), ("resolved", "warning")]),
        ([], [("resolved", "critical")]),
    ]
    heard: set[tuple[str, str]] = set()
    for found, news in steps:
        await look(found)
        await look(found)
        heard |= set(news)
        await wait_until(told.has(heard), 30, lambda: str(told.heard))

    assert [told.heard["resolved", level] for level in (WARNING, CRITICAL)] == [1, 1]
    one = told.last
    assert one["labels"] == {
        "alertname": "SRRSpike", "job": "stream-metrics", "severity": "critical",
        "agent": "support",
    }  # fmt: skip
    assert one["annotations"]["runbook_url"] == "https://runbooks.example.org/SRRSpike"


async def test_the_test_of_the_command_reaches_people(
    alertmanager_factory: Start, told: Told
) -> None:
    """Alertmanager accepts an alert that begins and ends."""
    alertmanager = await alertmanager_factory(told.url)
    environment = {"STREAM_METRICS_NOTIFY__URL": alertmanager.url}

    done = await asyncio.to_thread(ran, "notify", "--test", environment=environment)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{alertmanager.url} has accepted a test")


async def test_a_worker_tells_of_the_agents_of_its_group(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """From its settings alone: an agent that repeats itself is told once, with what is usual."""
    posted: list[str] = []

    async def take(request: web.Request) -> web.Response:
        posted.append((await request.json())["text"])
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_post("/hook", take)
    group = f"notify-{tmp_path.name}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    system = await empty_system(kafka, redis_server, tmp_path, group, topics)
    system.folder.mkdir()
    now = int(time.time())
    day = [searched(f"d-{n}", 1, "abcde", now - 4_000 - 120 * n) for n in range(600)]
    hour = [searched(f"h-{n}", 1, "aaaaa", now - 10 * n) for n in range(300)]
    async with TestServer(app) as server:
        system.settings |= {
            "STREAM_METRICS_NOTIFY__URL": str(server.make_url("/hook")),
            "STREAM_METRICS_NOTIFY__FORMAT": "slack",
            "STREAM_METRICS_NOTIFY__PAGE_URL": "https://page.example.org/",
        }
        records = [
            TrafficRecord(
                "events",
                one["conversation_id"].encode(),
                json.dumps(one).encode(),
                1_000 * one["occurred_at"],
                True,
            )
            for one in sorted([*day, *hour], key=itemgetter("occurred_at"))
        ]
        await produce(kafka, {"events": topics[0]}, records)
        await system.start_workers(1)
        worker = system.workers[0]
        await wait_until(lambda: posted, 90, worker.log_tail)
        assert await system.stop_workers() == [0]

    (message,) = posted
    assert message.startswith("*SRR spike*\n")
    assert "usually it is 0%" in message
    assert "https://page.example.org/?agent=" in message
