"""Expiry by record time on real servers, after a weekend in which no worker ran."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.cli.runtime import Runtime
from stream_metrics.cli.settings import Settings
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from stream_metrics.live.ports import BatchWrite, WriteResult
from stream_metrics.live.worker.clock import Clock, wall_ms
from stream_metrics.live.worker.partition import EXPIRY_PAGE_SIZE
from tests.helpers import wait_until
from tests.services.live import LiveSystem, produce
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

WEEKEND_SECONDS = 216_000  # 2.5 days
OLD, NEW = 3_000, 300
SOON = 240


def traffic(seed: int, conversations: int, start_s: int) -> list[TrafficRecord]:
    """Short conversations within ten minutes; ids differ between seeds."""
    profile = TrafficProfile(
        seed=seed,
        conversations=conversations,
        start=start_s,
        duration_seconds=600,
        turns=(1, 1),
        iterations=(1, 2),
        results_per_search=3,
        invalid=0.0,
    )
    return list(generate(profile))


@asynccontextmanager
async def working(system: LiveSystem, behind_seconds: int = 0) -> AsyncIterator[Runtime]:
    """A worker in this process, with a clock that is behind."""
    runtime = Runtime(
        Settings.model_validate(
            {
                "kafka": {
                    "bootstrap_servers": system.kafka.bootstrap_servers,
                    "topics": system.topics,
                    "group_id": system.group,
                },
                "redis": {"url": system.redis.url},
                "state": {"digest_key": "a secret of the tests", "batch_records": 100},
            }
        ),
        Clock(lambda: wall_ms() - 1000 * behind_seconds),
    )
    work = asyncio.create_task(runtime.run())
    try:
        await wait_until(lambda: runtime.loop is not None, SOON, "the worker does not begin")
        yield runtime
    finally:
        runtime.stop()
        await asyncio.wait_for(work, SOON)


class Steps:
    """Records how many conversations each write of a worker deletes."""

    def __init__(self, runtime: Runtime) -> None:
        store = runtime.store
        assert store is not None
        self.steps: list[int] = []
        write = store.write

        async def noted(batch: BatchWrite) -> WriteResult:
            self.steps.append(sum(c.delete for c in batch.conversations))
            return await write(batch)

        store.write = noted  # type: ignore[method-assign]

    @property
    def deleted(self) -> int:
        """The total number of deleted conversations."""
        return sum(self.steps)


@pytest.mark.long
async def test_old_conversations_expire_in_steps_after_a_weekend(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """When records arrive 2.5 days after the last ones, all old conversations expire in bounded
    steps, and the figures equal a replay of the new records."""
    group = f"weekend-{os.getpid()}"
    topics = await new_topics(kafka, group)
    streams = {"events": topics[0], "labels": topics[1]}
    now_s = int(time.time())
    friday = traffic(21, OLD, now_s - WEEKEND_SECONDS - 1_800)
    system = LiveSystem(
        kafka, redis_server, tmp_path / group, group, topics, await produce(kafka, streams, friday)
    )
    system.folder.mkdir()
    async with working(system, WEEKEND_SECONDS):
        await system.reach(1.0, SOON)
        code, text = await system.command("export", "--out", str(tmp_path / "friday"))
        assert code == 0, text
    old = {line["conversation_id"] for line in rows(tmp_path / "friday")}
    assert len(old) == OLD

    late = await produce(kafka, streams, traffic(22, NEW, now_s - 1_800))
    ends = system.produced.ends | late.ends
    system.produced = late
    async with working(system) as runtime:
        steps = Steps(runtime)

        async def over() -> bool:
            return steps.deleted >= OLD and await system.read() == sum(ends.values())

        await wait_until(over, SOON, lambda: f"expired: {steps.deleted}")

    assert steps.deleted == OLD
    assert max(steps.steps) <= EXPIRY_PAGE_SIZE
    live, replayed = await system.compare(late.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
    assert not old & {line["conversation_id"] for line in rows(live)}
    code, said = await system.command("audit")
    assert code == 0, said


def rows(directory: Path) -> list[dict[str, str]]:
    """The exported rows."""
    return [json.loads(x) for x in (directory / "conversations.jsonl").read_text().splitlines()]
