"""``stream_metrics_client`` on a real Kafka, with the worker's Kafka client."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from stream_metrics_client import AsyncRecorder

from deploy.local.kafka.cluster import Kafka
from stream_metrics.core.events import Event, Limits, decode
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from tests.helpers import wait_until
from tests.services.live import PARTITIONS, recorded
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service


def recorder(kafka: Kafka, topics: tuple[str, str]) -> AsyncRecorder:
    """A recorder that counts turns from 1."""
    numbers = itertools.count(1)
    return AsyncRecorder(
        f"kafka://{kafka.bootstrap_servers}/{','.join(topics)}?client=aiokafka",
        turn_numbers=lambda _: next(numbers),
        strict=True,
    )


async def test_a_live_worker_accepts_every_record(kafka: Kafka, tmp_path: Path) -> None:
    """Searches and labels are on their topics, with their keys, on the partitions of murmur2."""
    searches, labels = topics = await new_topics(kafka, f"client-{tmp_path.name}")
    async with recorder(kafka, topics) as recording:
        for n in range(200):
            turn = recording.turn(f"conversation-{n}")
            found = turn.iteration().search("leave", [{"doc_id": "a"}, "T"], route="handbook")
            turn.label({found.result_ids[0]: 3})
            turn.completed("30 days")
        assert await recording.flush(60)
        assert (recording.sent, recording.failed, recording.dropped) == (600, 0, 0)

    records = await recorded(kafka, topics)
    for record in records:
        event = decode(
            record.value,
            key=record.key,
            timestamp_ms=record.timestamp_ms,
            limits=Limits(),
            require_key=True,
        )
        assert isinstance(event, Event), event
        assert record.key is not None
        assert record.partition == PARTITIONERS["murmur2"](record.key, PARTITIONS)
    assert sum(record.topic == searches for record in records) == 400
    assert sum(record.topic == labels for record in records) == 200


async def test_events_recorded_during_an_outage_arrive_later(
    kafka_factory: Callable[..., Awaitable[Kafka]], tmp_path: Path
) -> None:
    """When the broker is killed and restarted, no event is lost, and the agent never waits."""
    kafka = await kafka_factory()
    topics = await new_topics(kafka, "away")
    recording = recorder(kafka, topics)
    for n in range(50):
        recording.forget(f"before-{n}")
    assert await recording.flush(60)
    kafka.kill9()
    for n in range(50):
        recording.forget(f"while-{n}")
    assert not await recording.flush(2)
    assert recording.pending == 50

    await kafka.start()

    async def settled() -> bool:
        return recording.pending == 0

    await wait_until(settled, 120, lambda: str(recording.last_error))
    recording.forget("after")
    assert await recording.close(60)
    assert (recording.sent, recording.failed, recording.dropped) == (101, 0, 0)
    records = await recorded(kafka, topics)
    said = {json.loads(record.value or b"")["conversation_id"] for record in records}
    expected = {f"{when}-{n}" for when in ("before", "while") for n in range(50)}
    assert said == {*expected, "after"}
