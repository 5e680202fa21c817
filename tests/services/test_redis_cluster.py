"""State in a real Redis Cluster with three masters, a replica of each, and a moving slot."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.crc import key_slot

from stream_metrics.live.layout import Identity
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationWrite,
    Position,
    StateStore,
    StoreUnavailable,
    Written,
)
from stream_metrics.live.redis.check import check
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.ownership.generations import admit
from tests.contract.conftest import redis_pair
from tests.contract.redis_process import RedisProcess

pytestmark = pytest.mark.asyncio

PARTITIONS = 12
IDENTITY = Identity("group", 1, "fingerprint", {"searches": PARTITIONS})
CONFIG = (
    "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
    "--cluster-node-timeout", "500", "--repl-diskless-sync-delay", "0",
    "--cluster-replica-validity-factor", "0",
)  # fmt: skip


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisProcess]]:
    """Six nodes of a Cluster; the first three are masters at first."""
    processes = []
    try:
        for _ in range(6):
            folder = tmp_path_factory.mktemp("node")
            processes.append(RedisProcess(folder, *CONFIG).start())
        places = [f"127.0.0.1:{process.port}" for process in processes]
        create = ["redis-cli", "--cluster", "create", *places, "--cluster-replicas", "1"]
        subprocess.run([*create, "--cluster-yes"], check=True, capture_output=True)
        yield processes
    finally:
        for process in processes:
            process.kill()


@pytest_asyncio.fixture
async def stores(nodes: list[RedisProcess]) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    """Two stores in an empty namespace of the Cluster, once all nodes agree."""
    async with asyncio.timeout(30):
        while not all([await agrees(node.port) for node in nodes if node.running]):
            await asyncio.sleep(0)
    alive = next(node for node in nodes if node.running)
    pair = await redis_pair(alive.url, cluster=True)
    assert isinstance(pair.one, RedisStore)
    assert isinstance(pair.two, RedisStore)
    yield pair.one, pair.two
    await pair.close()


async def agrees(port: int) -> bool:
    """Whether this node sees all slots served, and its replica or master connected."""
    async with Redis(port=port) as node:
        info = await node.cluster("INFO")
        role = await node.info("replication")
    linked = role.get("master_link_status", "up") == "up"
    return bool(linked and info["cluster_state"] == "ok")


async def run(node: Redis, *command: str | bytes | int) -> Any:
    """Run a command that the client lacks, or would send to another node."""
    return await node.execute_command(*command)  # type: ignore[no-untyped-call]


def batch(partition: int, offset: int = 1) -> BatchWrite:
    """A batch that reads one record and writes two conversations and a bucket."""
    parts = {b"p": b"%d" % offset}
    return BatchWrite(
        partition=partition,
        token=b"owner",
        batch_id=b"%d" % offset,
        expected={"searches": offset - 1},
        positions={"searches": Position(offset)},
        conversations=[ConversationWrite(bytes([n]) * 16, dict(parts)) for n in (1, 2)],
        buckets={("5m", offset, "agent"): b"1", ("1h", 1, "agent"): b"%d" % offset},
    )


async def until_written(store: StateStore, write: BatchWrite) -> None:
    """Repeat a write until the Cluster accepts it, as the worker does."""
    async with asyncio.timeout(60):
        while True:
            try:
                assert await store.write(write) == Written()
                return
            except StoreUnavailable:
                await asyncio.sleep(0)


async def until_loaded(store: StateStore, partition: int) -> list[bytes | None]:
    """Repeat a load until the Cluster answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                loaded = await store.load(partition, [(bytes([n]) * 16, True) for n in (1, 2)])
                return [found.hot.get(b"p") for found in loaded]
            except StoreUnavailable:
                await asyncio.sleep(0)


async def start(store: StateStore) -> None:
    """Claim all partitions, and write the first batch to each of them."""
    for partition in range(PARTITIONS):
        await store.claim(partition, b"owner", {"searches": Position(0)})
        assert await store.write(batch(partition)) == Written()


async def test_partitions_live_on_all_masters(
    stores: tuple[RedisStore, RedisStore], nodes: list[RedisProcess]
) -> None:
    """Every master has a third of the partitions, and any client finds all of them."""
    one, two = stores
    await start(one)
    held = []
    for node in nodes[:3]:
        async with Redis.from_url(node.url) as raw:
            held.append(len([key async for key in raw.scan_iter(f"{one.keys.prefix}:*:meta")]))

    assert held == [4, 4, 4]
    assert await two.partitions() == list(range(PARTITIONS))
    for partition in range(PARTITIONS):
        assert await until_loaded(two, partition) == [b"1", b"1"]
        assert len([found async for found in two.conversations(partition)]) == 2
        assert await two.buckets(partition) == {
            ("5m", 1, "agent"): b"1",
            ("1h", 1, "agent"): b"1",
        }
        assert len(await two.by_age(partition, 0, 1, 10)) == 2
    assert await admit(two, "agents", ["a", "b"], [], 1) == {"a"}


async def test_check_looks_at_every_master(
    stores: tuple[RedisStore, RedisStore], nodes: list[RedisProcess]
) -> None:
    """A single master that evicts is a fatal problem, which names it."""
    async with Redis.from_url(nodes[1].url) as raw:
        await raw.config_set("maxmemory-policy", "allkeys-lru")
        problems = await check(stores[0])
        await raw.config_set("maxmemory-policy", "noeviction")

    assert [str(nodes[1].port) in problem.message for problem in problems if problem.fatal] == [
        True
    ]
    assert len([problem for problem in problems if not problem.fatal]) == 3


async def test_a_slot_moves_under_its_writer(
    stores: tuple[RedisStore, RedisStore], nodes: list[RedisProcess]
) -> None:
    """Writes wait while a partition's keys are on two nodes, and succeed after the move."""
    store, _ = stores
    await start(store)
    assert store.bound is not None
    tag = store.bound.places[0]
    slot = key_slot(tag.encode())
    source, target = nodes[0], nodes[1]
    async with Redis.from_url(source.url) as old, Redis.from_url(target.url) as new:
        ids = [(await run(raw, "CLUSTER MYID")).decode() for raw in (old, new)]
        await run(new, "CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        await run(old, "CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
        keys = await run(old, "CLUSTER GETKEYSINSLOT", slot, 100)
        meta = store.keys.partition(tag).meta
        moves: list[str | int] = ["MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS"]
        await run(old, *moves, meta)
        with pytest.raises(StoreUnavailable):
            await store.write(batch(0, 2))
        await run(old, *moves, *(key for key in keys if key != meta))
        for node in nodes[:3]:
            async with Redis.from_url(node.url) as raw:
                await run(raw, "CLUSTER SETSLOT", slot, "NODE", ids[1])
    await until_written(store, batch(0, 2))

    assert await until_loaded(store, 0) == [b"2", b"2"]
    assert len(await store.buckets(0)) == 3


async def test_a_lost_master_is_replaced(
    stores: tuple[RedisStore, RedisStore], nodes: list[RedisProcess]
) -> None:
    """After a master has died its replica answers loads and accepts writes with the same state."""
    one, two = stores
    await start(one)
    assert await until_loaded(two, PARTITIONS - 1) == [b"1", b"1"]
    async with Redis.from_url(nodes[2].url) as raw, asyncio.timeout(30):
        while True:
            found = await raw.info("replication")
            if found["slave0"]["offset"] >= found["master_repl_offset"]:
                break
    nodes[2].kill()

    assert await until_loaded(two, PARTITIONS - 1) == [b"1", b"1"]
    for partition in range(PARTITIONS):
        await until_written(one, batch(partition, 2))
    assert await until_loaded(two, PARTITIONS - 1) == [b"2", b"2"]
