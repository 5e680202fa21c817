"""Replays of a topic of OTLP traces, as the Collector's Kafka exporter writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from tests.otlp import RETRIEVER, SpanSpec, as_json, as_protobuf, documents, framed
from tests.services.live import LiveSystem, Produced, said

pytestmark = pytest.mark.service

OUTS = ("kafka", "recording", "file")
SPANS = [
    SpanSpec(
        trace,
        span,
        parent=0 if span == 1 else 1,
        start_ms=10 * trace + span,
        end_ms=10 * trace + span + 1,
        attributes={"session.id": f"s-{trace % 3}"}
        if span == 1
        else {**RETRIEVER, **documents("a", trace % 4)},
    )
    for trace in range(1, 40)
    for span in (1, 2, 3)
]


@pytest.fixture
async def system(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> LiveSystem:
    """A topic of records without keys, in both encodings, one of them damaged."""
    topic = f"otlp-{tmp_path.name}-{os.getpid()}"
    await kafka.create_topic(topic, 3)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(0, len(SPANS), 4):
            batch = SPANS[number : number + 4]
            value = as_json(batch) if number % 3 == 0 else as_protobuf(batch)
            await producer.send_and_wait(topic, value, partition=number % 3)
        await producer.send_and_wait(topic, as_protobuf(SPANS)[:-5], partition=0)
    return LiveSystem(kafka, redis_server, tmp_path, topic, (topic,), Produced((), frozenset(), 0))


async def test_topic_recording_and_file_give_the_same_rows(system: LiveSystem) -> None:
    """This holds for any distribution over partitions; only the damaged record is a bad record."""
    folder, topic = system.folder, system.topics[0]
    (folder / "traces.bin").write_bytes(framed([as_protobuf(SPANS[:9]), as_json(SPANS[9:])]))
    recording = folder / "recording.jsonl.zst"
    code, text = await said(system, "record", "--topic", topic, "--out", str(recording))
    assert code == 0, text

    sources = (f"kafka:{topic}", str(recording), str(folder / "traces.bin"))
    for out, source in zip(OUTS, sources, strict=True):
        to = ("--out", str(folder / out))
        code, text = await said(system, "replay", source, *to)
        assert code == 0, text
        assert "78 searches in 39 turns of 117 spans" in text

    for name in ("conversations.jsonl", "windows.json", "queries.jsonl"):
        assert len({(folder / out / name).read_bytes() for out in OUTS}) == 1, name
    counts = {out: json.loads((folder / out / "report.json").read_text())["counts"] for out in OUTS}
    assert counts["file"]["results"] == 156
    assert counts["kafka"] == counts["recording"] == {**counts["file"], "events": 79, "invalid": 1}
