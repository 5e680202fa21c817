"""Redis is restored from a backup taken during writes, and workers resume from its offsets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from tests.helpers import wait_until
from tests.services.live import LiveSystem, produce
from tests.services.test_forget import traffic
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

SOON = 120


async def back_up(redis: RedisServer, to: Path) -> None:
    """Run ``BGSAVE``, and copy the file when it is complete."""
    async with Redis.from_url(redis.url) as client:
        before = await client.info("persistence")
        await client.bgsave()

        async def saved() -> bool:
            now = await client.info("persistence")
            return not now["rdb_bgsave_in_progress"] and now["rdb_saves"] > before["rdb_saves"]

        await wait_until(saved, SOON, "the snapshot is not written")
        assert (await client.info("persistence"))["rdb_last_bgsave_status"] == "ok"
    shutil.copy(redis.folder / "dump.rdb", to)


async def restore(redis: RedisServer, backup: Path) -> None:
    """As docs/guides/redis.md says: start from the snapshot, then enable the append-only file.

    The Redis of this test has ``appendonly no``, so that a start reads the snapshot.
    """
    await redis.stop()
    shutil.rmtree(redis.folder / "appendonlydir")
    shutil.copy(backup, redis.folder / "dump.rdb")
    await redis.start()
    await append(redis)


async def append(redis: RedisServer) -> None:
    """Enable the append-only file, and wait until it is complete."""
    async with Redis.from_url(redis.url) as client:
        await client.config_set("appendonly", "yes")

        async def whole() -> bool:
            now = await client.info("persistence")
            return not (now["aof_rewrite_in_progress"] or now["aof_rewrite_scheduled"])

        await wait_until(whole, SOON, "the append-only file is not written")


async def test_a_backup_taken_live_is_restored(
    kafka: Kafka, redis_factory: Callable[..., Awaitable[RedisServer]], tmp_path: Path
) -> None:
    """The workers resume from the snapshot's offsets, and the figures equal a replay's."""
    redis = await redis_factory(options={"appendonly": "no"})
    await append(redis)
    group = f"backup-{os.getpid()}"
    topics = await new_topics(kafka, group)
    streams = {"events": topics[0], "labels": topics[1]}
    records = traffic()
    most = 3 * len(records) // 4
    produced = await produce(kafka, streams, records[:most])
    system = LiveSystem(kafka, redis, tmp_path / group, group, topics, produced)
    await system.start_workers(2)
    await system.reach(0.3)
    await back_up(redis, tmp_path / "backup.rdb")
    system.produced += await produce(kafka, streams, records[most:])
    await system.reach(1.0)

    await restore(redis, tmp_path / "backup.rdb")

    await system.reach(1.0)
    live, replayed = await system.compare(system.produced.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
    code, said = await system.command("audit")
    assert code == 0, said
    assert await system.stop_workers() == [0, 0]
