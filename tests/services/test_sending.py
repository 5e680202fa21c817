"""A recording is sent again, and processed by live workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.files import record_line
from stream_metrics.lab.traffic import generate
from tests.forked import COMMAND
from tests.helpers import wait_until
from tests.services.live import LiveSystem, recorded, said
from tests.services.test_live import empty_system, few, new_topics

pytestmark = pytest.mark.service

NOON_S = 1_718_020_800


@pytest.fixture
async def system(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> LiveSystem:
    """Empty topics."""
    group = f"sending-{tmp_path.name}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    found = await empty_system(kafka, redis_server, tmp_path, group, topics)
    found.folder.mkdir()
    return found


def record(system: LiveSystem, conversations: int = 100) -> Path:
    """A recording of traffic from topics with other names and partition counts."""
    path = system.folder / "recording.jsonl"
    traffic = generate(replace(few(seed=12), conversations=conversations))
    topics = {"events": "elsewhere", "labels": "elsewhere-labels"}
    path.write_bytes(
        b"".join(
            record_line(Record(r.value, r.key, r.timestamp_ms, topics[r.stream], 0, n))
            for n, r in enumerate(traffic)
        )
    )
    return path


async def test_workers_make_the_same_of_a_recording_as_a_replay(system: LiveSystem) -> None:
    """Sent unchanged at full speed, it gives the state of a replay, byte for byte."""
    recording = record(system)
    code, text = await said(system, "replay", str(recording), "--into-kafka", "--speed", "max")
    assert code == 0, text
    sent = await recorded(system.kafka, system.topics)
    system.produced = replace(system.produced, records=sent)
    await system.start_workers(1)
    await system.reach(1.0)
    now = str(system.produced.last_us)
    for arguments in (("export",), ("replay", str(recording))):
        out = str(system.folder / arguments[0])
        code, text = await said(system, *arguments, "--now", now, "--out", out)
        assert code == 0, text
    assert await system.stop_workers() == [0]

    for name in ("conversations.jsonl", "windows.json"):
        exported = (system.folder / "export" / name).read_bytes()
        assert exported == (system.folder / "replay" / name).read_bytes(), name


async def test_records_go_to_the_topics_of_the_settings(system: LiveSystem) -> None:
    """Labels to the last one, all else to the first, where they were recorded from other topics;
    with key and timestamp as recorded."""
    recording = record(system)

    code, text = await said(system, "replay", str(recording), "--into-kafka", "--speed", "max")

    assert code == 0, text
    found = await recorded(system.kafka, system.topics)
    read = [json.loads(line) for line in recording.read_text().splitlines()]
    assert Counter((r.key, r.timestamp_ms) for r in found) == Counter(
        (None if r["key"] is None else r["key"].encode(), r["timestamp"]) for r in read
    )
    kinds = {
        (r.topic == system.topics[1], b'"relevance_labels"' in (r.value or b"")) for r in found
    }
    assert {labels for topic, labels in kinds if topic} == {True}
    assert f"{len(read):,} records sent in" in text


async def test_a_pace_is_kept_and_times_are_moved_to_now(system: LiveSystem) -> None:
    """At tenfold speed a second takes a tenth of one, and the first record has the current time."""
    recording = system.folder / "three.jsonl"
    recording.write_bytes(lines(system.topics[0], 0, 10, 20))
    before_ms = time.time_ns() // 1_000_000
    begun = time.monotonic()

    code, text = await said(
        system, "replay", str(recording), "--into-kafka", "--speed", "10x", "--shift"
    )

    assert code == 0, text
    assert time.monotonic() - begun >= 2.0
    found = await recorded(system.kafka, system.topics)
    stamps = [r.timestamp_ms or 0 for r in found]
    assert before_ms <= stamps[0] <= time.time_ns() // 1_000_000
    assert [stamp - stamps[0] for stamp in stamps] == [0, 1_000, 2_000]


def lines(topic: str, *seconds: int) -> bytes:
    """Searches of a conversation at these times after noon."""
    event = {"type": "search_iteration", "turn": 1, "conversation_id": "c"}
    recorded_at = [(n, NOON_S + second) for n, second in enumerate(seconds, start=1)]
    return b"".join(
        record_line(
            Record(
                json.dumps(
                    {**event, "event_id": f"e{n}", "iteration": n, "occurred_at": at}
                ).encode(),
                b"c",
                1000 * at,
                topic,
            )
        )
        for n, at in recorded_at
    )


async def test_an_interrupt_ends_a_pause(system: LiveSystem) -> None:
    """Records that were due are sent, and Ctrl-C prints no traceback."""
    recording = system.folder / "hour.jsonl"
    recording.write_bytes(lines(system.topics[0], 0, 3_600))
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "replay",
        str(recording),
        "--into-kafka",
        env={**os.environ, **system.environment},
        stderr=asyncio.subprocess.PIPE,
    )

    async def one_is_there() -> bool:
        return len(await recorded(system.kafka, system.topics)) == 1

    await wait_until(one_is_there, 60, "nothing was sent")
    process.send_signal(signal.SIGINT)
    _, error = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 130
    assert "Traceback" not in error.decode()
    assert await one_is_there()


async def test_topics_that_are_missing_are_named(system: LiveSystem) -> None:
    """The error comes before anything is sent."""
    recording = record(system, 1)
    system.topics = ("nobody", system.topics[1])

    code, text = await said(system, "replay", str(recording), "--into-kafka")

    assert code == 2
    assert "input topics do not exist: nobody" in text
