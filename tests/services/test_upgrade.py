"""A rolling upgrade to the schema of a later release, and back, on real servers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.core.engine.codec import SCHEMAS, stored_header
from stream_metrics.lab.traffic import generate
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.ownership.generations import state_in_force
from tests.services.live import LiveSystem, Worker, produce
from tests.services.test_build import BUILT_SECONDS, begun, layout
from tests.services.test_live import few, new_topics

pytestmark = pytest.mark.service

EARLIER, LATER = SCHEMAS[-2:]
WRITE_SCHEMA: Final = "STREAM_METRICS_STATE__WRITE_SCHEMA"
READY_SECONDS: Final = 120


@pytest.mark.long
async def test_workers_are_upgraded_one_by_one_and_go_back(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Until they are told otherwise workers write the earlier schema. Those of both schemas share
    a group and read what the other has written; with the earlier setting workers go back one by
    one, and a build leaves nothing of the later schema. The figures are a replay's throughout."""
    group = f"upgrade-{os.getpid()}"
    topics = await new_topics(kafka, group)
    streams = {"events": topics[0], "labels": topics[1]}
    traffic = list(generate(replace(few(seed=5), conversations=100)))
    part = len(traffic) // 5 + 1
    parts = [traffic[at : at + part] for at in range(0, len(traffic), part)]
    produced = await produce(kafka, streams, parts[0])
    system = LiveSystem(kafka, redis_server, tmp_path / group, group, topics, produced)
    await system.start_workers(2)
    await system.reach(1.0)
    assert await schemas(system) == ({EARLIER}, EARLIER)

    system.settings[WRITE_SCHEMA] = str(LATER)
    await replace_worker(system)
    system.produced += await produce(kafka, streams, parts[1])
    await system.reach(1.0)
    assert await schemas(system) == ({EARLIER, LATER}, LATER)
    await replace_worker(system)
    system.produced += await produce(kafka, streams, parts[2])
    await system.reach(1.0)

    system.settings[WRITE_SCHEMA] = str(EARLIER)
    for _ in range(2):
        await replace_worker(system)
    system.produced += await produce(kafka, streams, parts[3])
    await system.reach(1.0)
    assert await schemas(system) == ({EARLIER, LATER}, LATER)
    await same_as_replay(system)

    building = await begun(system)
    before = system.workers
    built = Worker(system.folder, f"{group}-built", system.environment, "--build")
    built.launch()
    system.workers = [built]
    code, said = await asyncio.wait_for(building, BUILT_SECONDS)
    assert code == 0, said
    for worker in before:
        await worker.ended(60)
    system.produced += await produce(kafka, streams, parts[4])
    await system.reach(1.0)
    assert await schemas(system) == ({EARLIER}, EARLIER)
    await same_as_replay(system)
    assert await system.stop_workers() == [0]


async def replace_worker(system: LiveSystem) -> None:
    """Stop the longest-running worker, which exits with 0, and start one with these settings."""
    await wait_until(system.workers[0].pages, READY_SECONDS, "the worker serves no pages")
    old = system.workers.pop(0)
    assert await old.stop() == 0, old.log_tail()
    new = Worker(system.folder, f"{old.name}-next", system.environment)
    new.launch()
    system.workers.append(new)
    for worker in system.workers:
        await wait_until(worker.ready, READY_SECONDS, worker.log_tail)


async def schemas(system: LiveSystem) -> tuple[set[int], int]:
    """The schemas of stored conversations, and the one that workers must know."""
    store = connect(RedisOptions(url=system.redis.url, namespace=system.group))
    try:
        state = await state_in_force(store)
        found = {
            stored_header(stored.hot).schema
            for number in await state.partitions()
            async for _, stored in state.conversations(number)
        }
    finally:
        await store.close()
    in_force = (await layout(system)).in_force
    assert in_force is not None
    return found, in_force.identity.schema_version


async def same_as_replay(system: LiveSystem) -> None:
    """Rows and windows are those of one pass, and the audit finds no difference."""
    live, replayed = await system.compare(system.produced.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
    code, said = await system.command("audit")
    assert code == 0, said
