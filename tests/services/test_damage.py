"""A partition whose state in Redis was damaged is halted, and the others continue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.live.layout import decode
from stream_metrics.live.redis.keys import OFFSET, Keys, PartitionKeys
from tests.helpers import wait_until
from tests.services.live import PARTITIONS, Worker
from tests.services.test_build import BUILT_SECONDS, begun
from tests.services.test_gaps import SOON, LiveGroup, live_group, reasons, traffic, until_held

pytestmark = pytest.mark.service

WHOLE = PARTITIONS - 1  # the partition that nobody touches
Damage = Callable[[Any, PartitionKeys, LiveGroup], Awaitable[None]]


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A Redis of the test's own."""
    async with RedisServer(tmp_path / "redis") as server:
        yield server


async def windows(raw: Any, keys: PartitionKeys, group: LiveGroup) -> None:
    """Replace a bucket's sums by invalid data."""
    [first, *_] = await raw.hkeys(keys.window("24h"))
    await raw.hset(keys.window("24h"), first, b"\xc1")


async def positions(raw: Any, keys: PartitionKeys, group: LiveGroup) -> None:
    """Replace an offset by text."""
    await raw.hset(keys.meta, OFFSET + group.events.encode(), b"many")


async def conversations(raw: Any, keys: PartitionKeys, group: LiveGroup) -> None:
    """Delete the header of every conversation."""
    for key in await raw.zrange(keys.idle, 0, -1):
        await raw.hdel(keys.hot(key), b"c")


async def fingerprints(raw: Any, keys: PartitionKeys, group: LiveGroup) -> None:
    """Delete the fingerprints of every conversation."""
    for key in await raw.zrange(keys.idle, 0, -1):
        await raw.delete(keys.fingerprints(key))


async def of_another_type(raw: Any, keys: PartitionKeys, group: LiveGroup) -> None:
    """Replace a conversation by a string."""
    for key in await raw.zrange(keys.idle, 0, -1):
        await raw.set(keys.hot(key), b"1")


async def lists_of_another_type(raw: Any, keys: PartitionKeys, group: LiveGroup) -> None:
    """Replace the list of conversations by a string."""
    await raw.set(keys.idle, b"1")


async def windows_of_another_type(raw: Any, keys: PartitionKeys, group: LiveGroup) -> None:
    """Replace a window by a string."""
    await raw.set(keys.window("24h"), b"1")


async def partitions(raw: Any, group: LiveGroup) -> dict[int, PartitionKeys]:
    """The keys of each state partition, by number."""
    names = Keys(group.system.group)
    document = await raw.hget(names.layout, "document")
    assert document is not None
    found = decode(document).in_force
    assert found is not None
    return dict(enumerate(map(names.partition, found.places)))


async def offsets(raw: Any, group: LiveGroup) -> dict[int, dict[bytes, bytes]]:
    """The stored offsets of each state partition, by number."""
    found = {}
    for number, keys in (await partitions(raw, group)).items():
        meta = await raw.hgetall(keys.meta)
        found[number] = {name: value for name, value in meta.items() if name.startswith(OFFSET)}
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "damages",
    [
        (windows, positions, conversations),
        (fingerprints, of_another_type, windows_of_another_type),
        (lists_of_another_type, lists_of_another_type, lists_of_another_type),
    ],
    ids=["content", "keys", "lists"],
)
async def test_damaged_partitions_are_halted(
    kafka: Kafka, redis: RedisServer, tmp_path: Path, damages: tuple[Damage, ...]
) -> None:
    """Workers and commands report the reason and the remedy for each damaged partition; the intact
    one continues, and the remedy restores all."""
    group = await live_group(kafka, redis, tmp_path, f"damage-{damages[0].__name__}", traffic(1))
    await group.start("halt")
    await group.at_ends()
    await group.stop()
    raw: Any = Redis.from_url(redis.url)
    keys = await partitions(raw, group)
    for number, damage in enumerate(damages):
        await damage(raw, keys[number], group)
    before = await offsets(raw, group)
    await group.produce(traffic(1))  # for the same conversations

    worker = await group.start("halt")
    await until_held(worker, range(WHOLE), "is damaged")

    ends = {
        OFFSET + topic.encode(): b"%d" % end
        for (topic, number), end in group.system.produced.ends.items()
        if number == WHOLE
    }

    async def read_on() -> bool:
        return (await offsets(raw, group))[WHOLE] == ends

    await wait_until(read_on, SOON, worker.log_tail)
    assert all("`stream-metrics build --again`" in why for why in (await reasons(worker)).values())
    assert (await worker.healthz())[0] == 200
    await group.stop()
    assert await offsets(raw, group) == {**before, WHOLE: ends}
    await raw.aclose()
    code, said = await group.system.command("export", "--out", str(tmp_path / "out"))
    assert (code, "`stream-metrics build --again`" in said) == (2, True), said
    building = await begun(group.system, "--again")
    built = Worker(group.system.folder, "built", group.system.environment, "--build")
    built.launch()
    group.system.workers.append(built)
    code, said = await asyncio.wait_for(building, BUILT_SECONDS)
    assert code == 0, said
    await group.at_ends()
    await group.same_as_replay()
    await group.stop()
