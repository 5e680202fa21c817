"""The output topic on real servers ends with the rows of export, despite kills and pauses."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from deploy.local.kafka.cluster import Kafka, admin
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.kafka.output import VERSION
from tests.helpers import wait_until
from tests.services.live import LiveSystem, Worker, produce, stored
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

OUTPUTS = 3  # partitions of the output topic; state has 4
SOON = 60
Rows = dict[str, bytes]


class LiveGroup:
    """A system with an output topic."""

    def __init__(self, system: LiveSystem, topic: str) -> None:
        self.system, self.topic = system, topic

    async def records(self) -> list[Any]:
        """The records of the output topic."""
        return await stored(self.system.kafka, [self.topic])

    async def exported(self) -> Rows:
        """The rows of ``export``."""
        out = self.system.folder / "rows"
        code, text = await self.system.command("export", "--out", str(out))
        assert code == 0, text
        lines = (out / "conversations.jsonl").read_bytes().splitlines()
        return {json.loads(line)["conversation_id"]: line for line in lines}

    async def ends_with_export(self) -> Rows:
        """Check that both kinds of readers have the rows of ``export``, and return them."""
        expected = await self.exported()
        records = await self.records()
        assert by_largest_version(records) == expected
        assert by_last_record(records) == expected
        return expected

    async def reasons(self, worker: Worker) -> dict[str, str]:
        """The reasons on ``/readyz``."""
        found: dict[str, str] = (await worker.readyz())[1].get("reasons", {})
        return found

    async def until_said(self, worker: Worker, words: str) -> None:
        """Wait until the worker's reason for the output topic contains these words."""

        async def said() -> bool:
            return words in (await self.reasons(worker)).get("output", "")

        await wait_until(said, SOON, lambda: f"it does not say why:\n{worker.log_tail()}")


def version_of(record: Any) -> int:
    """The version of a message."""
    return int(dict(record.headers)[VERSION])


def by_largest_version(records: list[Any]) -> Rows:
    """The values of a reader that keeps the largest version of each key."""
    kept: dict[bytes, Any] = {}
    for record in records:
        if record.key not in kept or version_of(record) > version_of(kept[record.key]):
            kept[record.key] = record
    return {key.decode(): r.value for key, r in kept.items() if r.value is not None}


def by_last_record(records: list[Any]) -> Rows:
    """The values of a reader that keeps the last record of each key."""
    kept = {record.key.decode(): record.value for record in records}
    return {key: value for key, value in kept.items() if value is not None}


async def live_group(
    kafka: Kafka, redis: RedisServer, folder: Path, name: str, conversations: int
) -> LiveGroup:
    """A group with traffic of the last half hour in its topics, without workers."""
    group = f"{name}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    profile = TrafficProfile(
        seed=21,
        conversations=conversations,
        start=int(time.time()) - 1_800,
        duration_seconds=1_200,
        turns=(1, 2),
        iterations=(1, 6),
        results_per_search=4,
        documents=200,
    )
    streams = {"events": topics[0], "labels": topics[1]}
    produced = await produce(kafka, streams, generate(profile))
    output = f"{group}-rows"
    system = LiveSystem(kafka, redis, folder / group, group, topics, produced)
    system.settings["STREAM_METRICS_KAFKA__OUTPUT_TOPIC"] = output
    return LiveGroup(system, output)


async def test_a_killed_worker_leaves_the_rows_of_export(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """With one of two workers killed midway, both kinds of readers have the rows of export; a
    forget leaves null, also for an unknown conversation."""
    made = await live_group(kafka, redis_server, tmp_path, "rows-kill", conversations=800)
    system = made.system
    await kafka.create_topic(made.topic, OUTPUTS, {"cleanup.policy": "compact"})
    await system.start_workers(2)
    await system.reach(0.2)
    victim = system.workers[0]
    victim.kill9()
    assert await system.read() < system.total, "the kill must hit midway"
    await victim.start()
    await system.reach(1.0)

    rows = await made.ends_with_export()
    assert len(rows) > 700
    survivor = system.workers[1]
    assert await survivor.figure("streammetrics_output_messages_total") > 0

    gone = sorted(rows)[::3]
    code, text = await system.command("forget", *gone, "never-seen", "--yes")
    assert code == 0, text
    assert f"null is written to {made.topic}" in text
    assert "never-seen: not in the state" in text

    async def forgotten() -> bool:
        return not set(gone) & (await made.exported()).keys()

    await wait_until(forgotten, SOON, "they are not forgotten")
    await made.ends_with_export()
    last = {record.key.decode(): record.value for record in await made.records()}
    assert {last[name] for name in [*gone, "never-seen"]} == {None}
    assert await system.stop_workers() == [0, 0]


@pytest.mark.long
async def test_a_worker_that_wakes_late_writes_no_old_row_last(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A worker is paused midway until another one has read everything, and then resumes."""
    made = await live_group(kafka, redis_server, tmp_path, "rows-zombie", conversations=300)
    system = made.system
    await kafka.create_topic(made.topic, OUTPUTS, {"cleanup.policy": "compact"})
    await system.start_workers(1)
    await system.reach(0.3)
    asleep = system.workers[0]
    asleep.pause()
    try:
        await system.start_workers(1)
        await system.reach(1.0)
    finally:
        asleep.resume()
    await wait_until(asleep.ready, SOON, lambda: f"it is not ready:\n{asleep.log_tail()}")

    await made.ends_with_export()
    assert await system.stop_workers() == [0, 0]


async def test_a_worker_waits_for_a_missing_output_topic(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Without the topic reading stops and `/readyz` reports why; then reading resumes by itself."""
    made = await live_group(kafka, redis_server, tmp_path, "rows-none", conversations=30)
    system = made.system
    await system.start_workers(1)
    worker = system.workers[0]

    await made.until_said(worker, f"cannot write to the output topic {made.topic}")
    assert await system.read() == 0
    await kafka.create_topic(made.topic, OUTPUTS)
    await system.reach(1.0)

    await wait_until(worker.ready, SOON, "the worker is not ready again")
    await made.ends_with_export()
    assert await system.stop_workers() == [0]


async def test_a_worker_waits_if_a_row_is_too_large(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """If a row is too large for the topic, `/readyz` says what to raise; then reading resumes."""
    made = await live_group(kafka, redis_server, tmp_path, "rows-large", conversations=30)
    system = made.system
    await kafka.create_topic(made.topic, OUTPUTS, {"max.message.bytes": "300"})
    await system.start_workers(1)
    worker = system.workers[0]

    await made.until_said(worker, "max.message.bytes")
    async with admin(kafka.bootstrap_servers) as client:
        larger = {"max.message.bytes": "1000000"}
        topic = ConfigResource(ConfigResourceType.TOPIC, made.topic, larger)
        await client.alter_configs([topic])
    await system.reach(1.0)

    await made.ends_with_export()
    assert await system.stop_workers() == [0]
