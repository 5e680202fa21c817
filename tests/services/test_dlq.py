"""Records that a low limit rejected on real servers are re-submitted after it was raised."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import TopicPartition

from deploy.local.kafka.cluster import Kafka, admin
from deploy.local.servers import RedisServer
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from stream_metrics.live.kafka.dead_letter_producer import KafkaDeadLetters
from tests.services.live import LiveSystem, Produced, produce, recorded, stored
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

LONG = 12  # records with a long URL
LOW = {
    "STREAM_METRICS_LIMITS__URL_BYTES": "300",
    "STREAM_METRICS_KAFKA__DEAD_LETTER_MAX_BYTES": "3000",
}


def with_long_url(number: int, at_s: float, url_bytes: int) -> TrafficRecord:
    """A search that is valid only under the default limits."""
    results = [
        {"result_id": "r-1", "doc_id": "a", "url": "https://example.org/" + "x" * url_bytes},
        {"result_id": "r-2", "doc_id": "a"},
    ]
    event = {
        "type": "search_iteration",
        "event_id": f"long-{number}",
        "occurred_at": at_s,
        "conversation_id": f"long-{number}",
        "turn": 1,
        "iteration": 1,
        "searches": [{"search_id": "s-1", "results": results}],
    }
    key, value = f"long-{number}".encode(), json.dumps(event).encode()
    return TrafficRecord("events", key, value, int(at_s * 1000), False)


async def delete_before(kafka: Kafka, ends: dict[tuple[str, int], int]) -> None:
    """Delete the records before these offsets, as Kafka's retention does."""
    wanted = {TopicPartition(*place): RecordsToDelete(end) for place, end in ends.items()}
    async with admin(kafka.bootstrap_servers) as client:
        await client.delete_records(wanted)


async def test_a_wrong_clock_does_not_block_dead_letters(kafka: Kafka) -> None:
    """If brokers refuse a dead letter's timestamp, it is stored with that of its record."""
    topic, _ = await new_topics(kafka, f"clock-{os.getpid()}")
    days_ahead = int(1000 * (time.time() + 3 * 86_400))
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    letters = KafkaDeadLetters(settings, lambda: days_ahead)
    stamps = [int(1000 * time.time()) - ms for ms in (5_000, 0)]
    records = [Record(b"junk", b"c", stamp, topic, 0, at) for at, stamp in enumerate(stamps)]

    await letters.send([DeadLetter(record, "not_json", "no JSON") for record in records])
    await letters.stop()

    assert sorted(found.timestamp for found in await stored(kafka, [f"{topic}.dlq"])) == stamps


async def resubmit(system: LiveSystem, *options: str) -> str:
    """Run the command; returns its output."""
    code, text = await system.command("dlq", "resubmit", *options)
    assert code == 0, text
    return text


def places(records: list[Any]) -> set[str]:
    """The original topic, partition and offset of re-submitted records, from their header."""
    return {
        value.decode()
        for record in records
        for name, value in record.headers
        if name == "stream-metrics.resubmitted_from"
    }


async def shown(system: LiveSystem, whole: dict[str, Any], cut: dict[str, Any]) -> None:
    """`dlq list` has the time of each letter; `dlq show` prints one, or says it was truncated."""
    code, text = await system.command("dlq", "list")
    assert code == 0, text
    [line] = [line for line in text.splitlines() if line.split()[1:2] == ["over_limit"]]
    first, last = line.split()[3:]
    assert first <= whole["seen"] <= last
    place = [str(whole[name]) for name in ("topic", "partition", "offset")]
    code, text = await system.command("dlq", "show", *place, "--format", "json")
    assert code == 0, text
    letter = json.loads(text)
    [record] = [r for r in system.produced.records if place == [r.topic, *_numbers(r)]]
    assert record.key is not None
    assert record.value is not None
    assert (letter["key"], letter["value"]) == (record.key.decode(), record.value.decode())
    assert letter["headers"]["error.class"] == whole["error.class"]
    code, text = await system.command("dlq", "show", "/".join(place))
    assert (code, f"record     {'/'.join(place)}" in text) == (0, True), text
    place = [str(cut[name]) for name in ("topic", "partition", "offset")]
    code, text = await system.command("dlq", "show", *place)
    assert (code, "truncated: " in text) == (0, True), text
    code, text = await system.command("dlq", "show", place[0], "0", "99999999")
    assert (code, "there is no dead letter of" in text) == (2, True), text


def _numbers(record: Any) -> list[str]:
    return [str(record.partition), str(record.offset)]


async def test_records_are_resubmitted_after_a_limit_was_raised(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Records that a low limit rejected, and that Kafka has deleted since, are read again from the
    dead-letter topic; with a higher limit the state equals a replay in which they are valid."""
    group = f"dlq-{os.getpid()}"
    topics = await new_topics(kafka, group)
    streams = {"events": topics[0], "labels": topics[1]}
    start_s = int(time.time()) - 1_500
    long = await produce(
        kafka, streams, [with_long_url(n, start_s + n, 1_000) for n in range(LONG)]
    )
    cut = await produce(kafka, streams, [with_long_url(99, start_s + 99, 4_000)])
    profile = TrafficProfile(
        seed=12, conversations=60, start=start_s, duration_seconds=900, invalid=0.05
    )
    usual = await produce(kafka, streams, generate(profile))
    everything = long + cut + usual
    strict = LiveSystem(
        kafka, redis_server, tmp_path / "low", f"{group}-low", topics, everything, settings=LOW
    )
    await strict.start_workers(1)
    await strict.reach(1.0)
    assert await strict.dead_letters() == everything.broken
    assert await strict.stop_workers() == [0]
    await delete_before(kafka, replace(cut, records=long.records + cut.records).ends)

    left = {(r.topic, r.partition, r.offset) for r in await recorded(kafka, topics)}
    assert not left & (long.broken | cut.broken)

    valid = Produced(long.records + usual.records, usual.broken, usual.searches)
    raised = LiveSystem(kafka, redis_server, tmp_path / "usual", group, topics, valid)
    await raised.start_workers(1)
    said = await resubmit(raised, "--reason", "over_limit", "--dry-run")
    assert f"to re-submit to {topics[0]}, rejected as over_limit: {LONG}" in said
    assert "skipped, cut" in said
    assert places(await stored(kafka, topics)) == set()
    said = await resubmit(raised, "--reason", "over_limit", "--yes")
    assert f"{LONG} re-submitted" in said

    sent = [r for r in await stored(kafka, topics) if r.headers]
    where = {f"{r.topic}/{r.partition}/{r.offset}": r for r in long.records}
    assert places(sent) == where.keys()
    for record in sent:
        original = where[places([record]).pop()]
        assert (record.topic, record.partition) == (original.topic, original.partition)
        assert (record.key, record.value) == (original.key, original.value)
        assert record.timestamp == original.timestamp_ms
    said = await resubmit(raised, "--reason", "over_limit", "--yes")
    assert f"skipped, re-submitted before (--again sends them too): {LONG}" in said
    assert len([r for r in await stored(kafka, topics) if r.headers]) == LONG
    await resubmit(raised, "--topic", topics[0], "--reason", "over_limit", "--again", "--yes")
    assert len([r for r in await stored(kafka, topics) if r.headers]) == 2 * LONG

    raised.produced = replace(valid, records=await recorded(kafka, topics))
    await raised.reach(1.0)
    raised.produced = valid
    live, replayed = await raised.compare(everything.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
    assert b'"long-0"' in (live / "conversations.jsonl").read_bytes()
    code, text = await raised.command("dlq", "list", "--format", "json")
    assert code == 0, text
    letters = [json.loads(line) for line in text.splitlines()]
    again = {(x["topic"], x["partition"], x["offset"]) for x in letters if x["resubmitted"]}
    assert again == long.broken
    refused = [x for x in letters if x["error.class"] == "over_limit"]
    await shown(
        raised,
        next(x for x in refused if "truncated" not in x),
        next(x for x in refused if "truncated" in x),
    )
    assert await raised.dead_letters() == everything.broken
    assert await raised.stop_workers() == [0]
