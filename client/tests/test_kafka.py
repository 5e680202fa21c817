"""The Kafka sinks by each client, with a real broker whose address is in KAFKA_BROKERS."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from stream_metrics_client import Recorder
from stream_metrics_client.murmur2 import partition

CLIENTS = ["confluent", "aiokafka", "kafka-python"]
PARTITIONS = 8


async def create(brokers: str, *topics: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    finally:
        await admin.close()


async def read(brokers: str, topic: str) -> list[Any]:
    places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers)
    await consumer.start()
    found: list[Any] = []
    try:
        consumer.assign(places)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += records
    finally:
        await consumer.stop()
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_places_keys_by_murmur2(client: str) -> None:
    brokers = os.environ["KAFKA_BROKERS"]
    searches, labels = (f"{client}-{kind}-{secrets.token_hex(4)}" for kind in ("s", "l"))
    asyncio.run(create(brokers, searches, labels))
    with Recorder(f"kafka://{brokers}/{searches},{labels}?client={client}") as recorder:
        for n in range(300):
            turn = recorder.turn(f"conversation-{n}")
            turn.label({turn.iteration().search("q", ["T"]).result_ids[0]: 3})
        assert recorder.flush(60)
        assert (recorder.sent, recorder.failed, recorder.dropped) == (600, 0, 0)

    for topic, kind in ((searches, "search_iteration"), (labels, "relevance_labels")):
        records = asyncio.run(read(brokers, topic))
        assert len(records) == 300
        for record in records:
            event = json.loads(record.value)
            assert (event["type"], event["conversation_id"].encode()) == (kind, record.key)
            assert record.partition == partition(record.key, PARTITIONS)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_event_that_is_too_large_fails_alone(client: str) -> None:
    brokers = os.environ["KAFKA_BROKERS"]
    topic = f"{client}-large-{secrets.token_hex(4)}"
    asyncio.run(create(brokers, topic))
    with Recorder(f"kafka://{brokers}/{topic}?client={client}") as recorder:
        turn = recorder.turn("c")
        for text in ("small", "x" * 3_000_000, "small"):
            turn.completed(text)
        assert recorder.flush(60)
        assert (recorder.sent, recorder.failed) == (2, 1), recorder.last_error


@pytest.mark.parametrize("client", CLIENTS)
def test_a_program_that_ends_at_once_loses_nothing(client: str) -> None:
    brokers = os.environ["KAFKA_BROKERS"].replace("127.0.0.1", "localhost")
    topic = f"{client}-end-{secrets.token_hex(4)}"
    asyncio.run(create(brokers, topic))
    script = (
        "import sys\n"
        "from stream_metrics_client import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "for n in range(100): recorder.forget(f'c-{n}')\n"
    )
    url = f"kafka://{brokers}/{topic}?client={client}"
    done = subprocess.run(
        [sys.executable, "-c", script, url], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(asyncio.run(read(brokers, topic))) == 100


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_is_missing_keeps_no_other_events_back(client: str) -> None:
    brokers = os.environ["KAFKA_BROKERS"]
    searches = f"{client}-only-{secrets.token_hex(4)}"
    asyncio.run(create(brokers, searches))
    url = f"kafka://{brokers}/{searches},not a topic?client={client}"
    recorder = Recorder(url)
    for n in range(20):
        recorder.label("c", 1, {"r": 3})
        recorder.forget(f"c-{n}")
    deadline = time.monotonic() + 100
    while recorder.sent < 20 and time.monotonic() < deadline:
        recorder.flush(0.1)
    assert (recorder.sent, recorder.pending) == (20, 20), recorder.last_error
    assert not recorder.close(0)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broker_that_is_away_blocks_no_client(client: str) -> None:
    recorder = Recorder(f"kafka://127.0.0.1:1?client={client}", max_events=100)
    begun = time.monotonic()
    for _ in range(1_000):
        recorder.forget("c")
    assert time.monotonic() - begun < 1
    assert recorder.dropped == 900
    assert not recorder.close(1)
    assert (recorder.sent, recorder.dropped) == (0, 1_000)
    assert time.monotonic() - begun < 5
