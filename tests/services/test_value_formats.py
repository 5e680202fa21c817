"""Topics whose values are in the envelopes of other systems, on real servers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import TrafficRecord, generate
from tests.services.live import LiveSystem, Produced, produce
from tests.services.test_live import few, new_topics

pytestmark = pytest.mark.service

Wrap = Callable[[bytes], bytes]


def prefixed(value: bytes) -> bytes:
    """As a schema registry's serialiser writes it."""
    return b"\0\0\0\1\x2a" + value


def structured(value: bytes) -> bytes:
    """A CloudEvent in structured mode."""
    named = {"specversion": "1.0", "id": "1", "source": "/agents", "type": "event"}
    return json.dumps(named).encode()[:-1] + b', "data": ' + value + b"}"


def binary(value: bytes) -> bytes:
    """A CloudEvent in binary mode."""
    return value


CE_HEADERS = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/agents"))
CASES: dict[str, tuple[str, Wrap, tuple[tuple[str, bytes], ...]]] = {
    "prefixed": ("schema-registry", prefixed, ()),
    "structured": ("cloudevents", structured, ()),
    "binary": ("cloudevents", binary, CE_HEADERS),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
async def test_events_in_envelopes_have_the_figures_of_plain_events(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path, case: str
) -> None:
    """Workers, a replay of the topics, and one of a recording; what is invalid stays invalid."""
    value_format, wrap, headers = CASES[case]
    group = f"envelopes-{case}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    traffic = list(generate(replace(few(seed=5), conversations=200)))
    wrapped = (record._replace(value=wrap(record.value)) for record in traffic)
    sent = await produce(kafka, {"events": topics[0], "labels": topics[1]}, wrapped, headers)
    folder = tmp_path / "system"
    folder.mkdir()
    settings = {"STREAM_METRICS_KAFKA__VALUE_FORMAT": value_format}
    system = LiveSystem(
        kafka, redis_server, folder, group, topics, plain(sent, traffic), settings=settings
    )
    await system.start_workers(1)
    await system.reach(1.0)
    assert await system.stop_workers() == [0]

    live, replayed = await system.compare(sent.last_us)
    for arguments in (
        ("replay", "kafka:" + ",".join(topics), "--out", str(folder / "topics")),
        ("record", "--out", str(folder / "recorded.jsonl")),
        ("replay", str(folder / "recorded.jsonl"), "--out", str(folder / "recorded")),
    ):
        now = ("--now", str(sent.last_us)) if arguments[0] == "replay" else ()
        code, said = await system.command(*arguments, *now)
        assert code == 0, said

    for name in ("conversations.jsonl", "windows.json"):
        expected = (replayed / name).read_bytes()
        for found in (live, folder / "topics", folder / "recorded"):
            assert (found / name).read_bytes() == expected, (found, name)
    assert await system.dead_letters() == sent.broken


def plain(sent: Produced, traffic: list[TrafficRecord]) -> Produced:
    """What was sent, with the values that were wrapped."""
    records = tuple(
        structs.replace(record, value=of.value)
        for record, of in zip(sent.records, traffic, strict=True)
    )
    return replace(sent, records=records)
