"""The log of one process is moved to a cluster, and workers go on from there."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import generate
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.folder import database_of
from stream_metrics.live.local.log import Entry, Log
from stream_metrics.live.local.tables import SPANS
from stream_metrics.live.worker.clock import wall_ms
from tests.helpers import wait_until
from tests.otlp import RETRIEVER, SpanSpec, as_json, documents
from tests.services.bridged import NOW, bridged, rows
from tests.services.live import LiveSystem, recorded, said
from tests.services.test_live import empty_system, few, new_topics
from tests.serving import serving
from tests.sessions import Sent, traces

pytestmark = pytest.mark.service

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
async def system(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LiveSystem:
    """Empty topics; one process has the same settings."""
    group = f"outgrowing-{tmp_path.name}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    found = await empty_system(kafka, redis_server, tmp_path, group, topics)
    found.folder.mkdir()
    found.settings = {"STREAM_METRICS_METRICS__TURN_SCOPE": "all"}
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    return found


async def served(system: LiveSystem) -> Path:
    """A folder in which one process has counted traffic, a conversation of which is forgotten."""
    folder = system.folder / "data"
    values = [record.value for record in generate(few(seed=14)) if record.value]
    lines = [value for value in values if b"\n" not in value and b"\r" not in value]
    with serving(folder) as one:
        accepted = one.post(b"\n".join(lines))["accepted"]
        code, text = await said(system, "forget", "--data", str(folder), first_id(lines), "--yes")
        assert code == 0, text

        async def read() -> bool:
            _, text = await said(system, "check", "--data", str(folder))
            return f"{accepted + 1:,} records" in text and " 0 events are not read yet" in text

        await wait_until(read, 60, lambda: "the process does not read its log")
        assert await asyncio.to_thread(one.stop) == 0
    return folder


def first_id(lines: list[bytes]) -> str:
    """The conversation of the first event that is not broken."""
    for line in lines:
        _, _, rest = line.partition(b'"conversation_id":"')
        name = rest.partition(b'"')[0]
        if name:
            return name.decode()
    raise AssertionError("no event names a conversation")


async def exported(system: LiveSystem, name: str, *options: str) -> list[bytes]:
    """The rows and the window sums of a state."""
    out = system.folder / name
    code, text = await said(system, "export", "--out", str(out), *options)
    assert code == 0, text
    return [(out / file).read_bytes() for file in ("conversations.jsonl", "windows.json")]


async def test_workers_go_on_from_a_log_with_the_same_rows(system: LiveSystem) -> None:
    """Rows and windows are the same byte for byte; a log that is sent twice counts once."""
    folder = await served(system)
    for _ in range(2):
        code, text = await said(system, "replay", str(folder), "--into-kafka")
        assert code == 0, text
    sent = await recorded(system.kafka, system.topics)
    system.produced = replace(system.produced, records=sent)
    now = ("--now", str(system.produced.last_us))
    before = await exported(system, "before", "--data", str(folder), *now)
    assert before[0]
    await system.start_workers(2)
    await system.reach(1.0)

    assert await exported(system, "after", *now) == before
    assert await system.stop_workers() == [0, 0]


async def test_spans_of_open_traces_go_to_the_topic_of_traces(system: LiveSystem) -> None:
    """Keyed by trace, as a bridge reads them; without that topic, nothing is sent."""
    folder = system.folder / "data"
    with serving(folder) as one:
        assert await asyncio.to_thread(one.stop) == 0
    payload = as_json([SpanSpec(1, 2, attributes=RETRIEVER | documents("a"))])
    database = Database(database_of(folder))
    await Log(database).append(SPANS, [Entry(TRACE.encode(), payload)], wall_ms())
    await database.close()
    topic = f"{system.group}-spans"
    system.settings["STREAM_METRICS_BRIDGE__TOPIC"] = topic

    code, text = await said(system, "replay", str(folder), "--into-kafka")

    assert code == 2
    assert f"no topic {topic} for them" in text
    code, text = await said(system, "topics", "create", "--traces", "--partitions", "4")
    assert code == 0, text
    code, text = await said(system, "replay", str(folder), "--into-kafka")
    assert code == 0, text
    [record] = await recorded(system.kafka, [topic])
    assert (record.key, record.value) == (TRACE.encode(), payload)


async def test_traces_that_the_move_cuts_count_once(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some spans of a trace are in the log, and the others come to the cluster: rows are those of a
    replay of all spans."""
    system = await bridged(kafka, redis_server, tmp_path)
    for name, value in system.environment.items():
        monkeypatch.setenv(name, value)
    made = traces(seed=5, number=30)
    folder, whole = tmp_path / "data", tmp_path / "whole.jsonl"
    with serving(folder) as one:
        for number, spans in enumerate(made):
            await asyncio.to_thread(post, one.receiver, as_json(spans[: len(spans) // 2]))
            if number % 2 and number > 2:
                before = made[number - 3]
                await asyncio.to_thread(post, one.receiver, as_json(before[len(before) // 2 :]))

        async def told() -> bool:
            _, text = await said(system, "check", "--data", str(folder))
            return "log events" in text and "log events ok 0 records" not in text

        await wait_until(told, 60, "no trace is told")
        assert await asyncio.to_thread(one.stop) == 0

    code, text = await said(system, "replay", str(folder), "--into-kafka")
    assert code == 0, text
    await system.bridge()
    await system.start_workers(1)
    later = [spans for n, spans in enumerate(made) if n % 2 or n >= len(made) - 2]
    rest = [as_json(spans[len(spans) // 2 :]) for spans in later]
    keys = [spans[0].trace_id.hex().encode() for spans in later]
    await system.send(map(Sent, keys, rest))
    await system.interpreted(len(await system.in_traces()), 120)
    await system.counted()

    whole.write_bytes(b"\n".join(map(as_json, made)))
    for out, arguments in (("live", ["export"]), ("replayed", ["replay", str(whole)])):
        code, text = await said(system, *arguments, "--out", str(tmp_path / out), "--now", NOW)
        assert code == 0, text
    assert rows(tmp_path / "live") == rows(tmp_path / "replayed")
    assert await system.stop_workers() == [0]
    assert await system.bridges[0].stop() == 0


def post(receiver: str, payload: bytes) -> None:
    """Send spans to one process."""
    kind = "application/json" if payload.startswith(b"{") else "application/x-protobuf"
    request = urllib.request.Request(  # noqa: S310
        f"{receiver}/v1/traces", payload, {"Content-Type": kind}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        assert answer.status == 200
