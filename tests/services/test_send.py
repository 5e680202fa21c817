"""``stream-metrics send`` on real servers: from the README's events to figures on the page."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from tests.forked import COMMAND
from tests.helpers import wait_until
from tests.services.live import PARTITIONS, LiveSystem, Worker, recorded
from tests.services.test_live import empty_system, new_topics

pytestmark = pytest.mark.service

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```json\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
EXAMPLE = "\n".join(BLOCKS)
FIRST, _ = json.JSONDecoder().raw_decode(EXAMPLE)


@pytest.fixture
async def system(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> LiveSystem:
    """Empty topics."""
    group = f"send-{tmp_path.name}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    found = await empty_system(kafka, redis_server, tmp_path, group, topics)
    found.folder.mkdir()
    return found


async def send(system: LiveSystem, text: str, *arguments: str) -> tuple[int | None, str, str]:
    """Pipe text into the command; returns exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "send",
        *arguments,
        env={**os.environ, **system.environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate(text.encode())
    return process.returncode, out.decode(), error.decode()


async def page(worker: Worker) -> dict[str, Any]:
    """The worker's page with the last five minutes."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        session.get(f"http://{worker.address}/api/state?window=5m") as answer,
    ):
        found: dict[str, Any] = await answer.json()
        return found


async def test_the_example_of_the_readme_shows_on_the_page(system: LiveSystem) -> None:
    """Two searches and a label, dated long ago, count within seconds: SRR 25%, under the agent
    that the events name, or ``default`` if they name none."""
    await system.start_workers(1)
    worker = system.workers[0]
    await wait_until(worker.ready, 60, worker.log_tail)

    code, out, error = await send(system, EXAMPLE, "--now")

    assert (code, error) == (0, "")
    searches, labels = system.topics
    assert out == f"Sent 3 events to {searches} (2) and {labels} (1).\n"

    async def labelled() -> dict[str, Any] | None:
        shown = await page(worker)
        return shown if shown["figures"]["coverage"]["value"] else None

    shown = await wait_until(labelled, 10, worker.log_tail)
    (agent,) = (row for row in shown["agents"] if row["results"])
    assert (agent["agent"], agent["results"], agent["srr"]["value"]) == (
        FIRST.get("agent", "default"),
        4,
        0.25,
    )
    assert await system.stop_workers() == [0]


async def test_records_are_keyed_and_placed_as_javas_client_does(system: LiveSystem) -> None:
    """The key is the conversation; labels go to the last topic, all else to the first; the
    values are the input's, byte for byte."""
    code, out, error = await send(system, EXAMPLE, "--format", "json")

    searches, labels = system.topics
    assert (code, json.loads(out)) == (0, {"events": 3, "topics": {searches: 2, labels: 1}})
    assert "the latest event happened at 2025-03-18" in error
    found = await recorded(system.kafka, system.topics)
    key = FIRST["conversation_id"].encode()
    home = PARTITIONERS["murmur2"](key, PARTITIONS)
    assert {(record.key, record.partition) for record in found} == {(key, home)}
    assert [record.topic for record in found].count(labels) == 1
    assert sorted(EXAMPLE.count((record.value or b"").decode()) for record in found) == [1, 1, 1]


async def test_all_events_go_to_the_topic_that_is_asked_for(system: LiveSystem) -> None:
    """A single topic for all events is common."""
    code, out, _ = await send(system, EXAMPLE, "--topic", system.topics[0], "-")

    assert (code, out) == (0, f"Sent 3 events to {system.topics[0]} (3).\n")
    assert {r.topic for r in await recorded(system.kafka, system.topics)} == {system.topics[0]}


async def test_one_invalid_event_keeps_all_from_being_sent(system: LiveSystem) -> None:
    """Otherwise the rest of the file would have to be extracted to send it."""
    code, out, error = await send(system, EXAMPLE + '{"type": "relevance_label"}')

    assert (code, out) == (2, "")
    assert "unknown_type" in error
    assert await recorded(system.kafka, system.topics) == ()


async def test_missing_topics_are_named_with_the_command_that_creates_them(
    system: LiveSystem,
) -> None:
    """A new user has not created any."""
    system.settings["STREAM_METRICS_KAFKA__TOPICS"] = json.dumps(["nowhere-1", system.topics[1]])

    code, _, error = await send(system, EXAMPLE)

    assert code == 2
    assert "input topics do not exist: nowhere-1" in error
    assert "`stream-metrics topics create`" in error
