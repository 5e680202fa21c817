"""Scores joined with a topic of traces, and the resulting labels in live workers."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from tests.otlp import RETRIEVER, SpanSpec, as_json, as_protobuf, documents
from tests.services.bridged import bridged
from tests.services.live import LiveSystem, recorded, said
from tests.services.test_live import empty_system, new_topics
from tests.sessions import Sent

pytestmark = pytest.mark.service

TRACES = range(1, 60)
SPANS = [
    SpanSpec(
        trace,
        100 * trace + span,
        parent=0 if span == 1 else 100 * trace + 1,
        start_ms=10 * trace + span,
        end_ms=10 * trace + span + 1,
        attributes={"session.id": f"s-{trace % 20}"}
        if span == 1
        else {**RETRIEVER, **documents("a", "b", trace % 4)},
    )
    for trace in TRACES
    for span in (1, 2, 3)
]


@pytest.fixture
async def system(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> LiveSystem:
    """Empty topics, and settings that map scores to gains."""
    group = f"labels-{tmp_path.name}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    found = await empty_system(kafka, redis_server, tmp_path, group, topics)
    found.folder.mkdir()
    found.settings["STREAM_METRICS_LABELS__CUTOFFS"] = '{"1": 0.2, "3": 0.8}'
    return found


async def test_labels_of_a_topic_of_traces_reach_workers_once(system: LiveSystem) -> None:
    """Labels that are sent twice, keyed by conversation, give the export of a replay."""
    folder, searches, labels = system.folder, *system.topics
    topic = f"{system.group}-spans"
    await system.kafka.create_topic(topic, 3)
    async with AIOKafkaProducer(bootstrap_servers=system.kafka.bootstrap_servers) as producer:
        for number in range(0, len(SPANS), 4):
            value = as_protobuf(SPANS[number : number + 4])
            await producer.send_and_wait(topic, value, partition=number % 3)
    (folder / "traces.json").write_bytes(as_json(SPANS))
    rows = [
        f"{100 * trace + span:016x},{place},{(trace + place) % 11 / 10}"
        for trace in TRACES
        for span in (2, 3)
        for place in (0, 1, 2)
    ]
    (folder / "scores.csv").write_text("span_id,position,score\n" + "\n".join(rows) + "\n")

    code, text = await said(system, "replay", f"kafka:{topic}", "--into-kafka", "--speed", "max")
    assert code == 0, text
    for _ in range(2):
        scores = str(folder / "scores.csv")
        code, text = await said(
            system, "labels", scores, "--traces", f"kafka:{topic}", "--into-kafka"
        )
        assert code == 0, text
        assert f"Sent 59 events to {labels} (59)." in text
        assert "354 of 354 scores are used" in text

    sent = await recorded(system.kafka, system.topics)
    partitions = defaultdict(set)
    for record in sent:
        partitions[record.key].add(record.partition)
    assert {len(each) for each in partitions.values()} == {1}
    assert len({each.pop() for each in partitions.values()}) > 1
    given = [record.value for record in sent if record.topic == labels]
    assert len(given) == 2 * len(set(given)) == 118
    assert {record.topic for record in sent} == {searches, labels}

    (folder / "labels.jsonl").write_bytes(b"\n".join(one or b"" for one in given) + b"\n")
    system.produced = replace(system.produced, records=sent)
    await system.start_workers(1)
    await system.reach(1.0)
    sources = (str(folder / "traces.json"), str(folder / "labels.jsonl"))
    for arguments in (("export",), ("replay", *sources, "--turn-scope", "last")):
        out = ("--now", str(system.produced.last_us), "--out", str(folder / arguments[0]))
        code, text = await said(system, *arguments, *out)
        assert code == 0, text
    assert await system.stop_workers() == [0]
    for name in ("conversations.jsonl", "windows.json"):
        exported = (folder / "export" / name).read_bytes()
        assert exported == (folder / "replay" / name).read_bytes(), name
    rows = (folder / "export" / "conversations.jsonl").read_text().splitlines()
    assert [json.loads(row)["labelled"] > 0 for row in rows] == [True] * 20


async def test_scores_in_traces_reach_workers_through_the_bridge(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Annotations of spans become events on the topic of labels, and count as in a replay."""
    chosen = {"labels__cutoffs": '{"1": 0.2, "3": 0.8}', "labels__position": '["place"]'}
    system = await bridged(kafka, redis_server, tmp_path, **chosen)
    sent = []
    for trace in TRACES:
        judged = {
            "annotations.0.annotation.name": "relevance",
            "annotations.0.annotation.score": trace % 11 / 10,
            "place": trace % 3,
        }
        spans = [
            one if one.parent == 0 else replace(one, attributes={**one.attributes, **judged})
            for one in SPANS
            if one.trace == trace
        ]
        sent.append(Sent(spans[0].trace_id.hex().encode(), as_protobuf(spans)))
    number = await system.send(sent)
    bridge = await system.bridge()
    await system.start_workers(1)
    await system.interpreted(number)
    await system.counted()

    given = [one for one in system.produced.records if one.topic == system.topics[-1]]
    assert len(given) == 2 * len(TRACES)  # each search ended at a time of its own
    for name, arguments in (("export", ()), ("replay", (f"kafka:{system.traces}",))):
        now = ("--now", "1800000000000000", "--out", str(system.folder / name))
        code, text = await said(system, name, *arguments, *now)
        assert code == 0, text
        assert name == "export" or "118 relevance labels of evaluations in the traces" in text
    for name in ("conversations.jsonl", "windows.json"):
        exported = (system.folder / "export" / name).read_bytes()
        assert exported == (system.folder / "replay" / name).read_bytes(), name
    rows = (system.folder / "export" / "conversations.jsonl").read_text().splitlines()
    assert [json.loads(row)["labelled"] > 0 for row in rows] == [True] * len(TRACES)
    assert await bridge.stop() == 0
    assert await system.stop_workers() == [0]


async def test_log_records_on_a_topic_are_joined_with_traces_on_another(
    system: LiveSystem,
) -> None:
    """This holds for both encodings of the Collector's Kafka exporter; other records are listed."""
    logs, spans = f"{system.group}-logs", f"{system.group}-spans"
    system.settings["STREAM_METRICS_LABELS__POSITION"] = '["place"]'
    for topic in (logs, spans):
        await system.kafka.create_topic(topic, 2)
    async with AIOKafkaProducer(bootstrap_servers=system.kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(spans, as_protobuf(SPANS))
        for number, trace in enumerate((1, 2)):
            found = LogsData()
            record = found.resource_logs.add().scope_logs.add().log_records.add()
            record.trace_id, record.span_id = (
                bytes(15) + bytes([trace]),
                (100 * trace + 2).to_bytes(8),
            )
            record.time_unix_nano = 1_795_405_320_000_000_000
            record.event_name = "gen_ai.evaluation.result"
            record.attributes.add(key="place").value.int_value = 1
            record.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = 0.9
            value = bytes(found.SerializeToString())
            await producer.send_and_wait(logs, MessageToJson(found).encode() if number else value)
        await producer.send_and_wait(logs, b"\x00nothing", partition=0)

    code, text = await said(system, "labels", f"kafka:{logs}", "--traces", f"kafka:{spans}")

    assert code == 0, text
    assert "2 of 3 scores are used" in text
    assert text.count('"gain":3') == 2
    assert f"{logs}/0 offset" in text
    assert "label_malformed" in text
