"""Fixtures: the stores in memory, in a file, and on real Redis servers, seen by two workers."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis, RedisCluster

from deploy.local.process import blocking
from deploy.local.waiting import wait_until
from stream_metrics.live.layout import Generation, Identity
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.database import connect as connect_file
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.ports import StateStore
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.ownership.generations import begin
from tests.contract.redis_process import RedisProcess, running

SENTINEL = """port {port}
sentinel monitor state 127.0.0.1 {master} 1
"""


IDENTITY = Identity("group", 1, "fingerprint", {"searches": 12, "labels": 12})

Remember = Callable[[], Awaitable[Callable[[], Awaitable[None]]]]


@dataclass
class Pair:
    """Two handles on the first generation of one namespace, and a way to lose its latest writes.

    ``spaces`` are the handles on the namespace that they come from. ``remember`` returns a function
    that takes the whole namespace back to that moment.
    """

    one: StateStore
    two: StateStore
    spaces: tuple[StateStore, StateStore]
    generation: Generation
    remember: Remember

    files: Sequence[Database] = ()

    async def close(self) -> None:
        """Close the connections."""
        for space in self.spaces:
            await space.close()
        for file in self.files:
            await file.close()


async def begun(one: StateStore, two: StateStore, remember: Remember) -> Pair:
    """The handles on a new namespace, whose first generation is registered here."""
    for space in (one, two):
        await space.layout()  # a Cluster's client fails if its first calls come at once
    generation = await begin(one, IDENTITY, 1)
    return Pair(
        one.generation(generation), two.generation(generation), (one, two), generation, remember
    )


@pytest.fixture(scope="session")
def redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """A redis-server for the session; each test uses its own namespace."""
    with running(tmp_path_factory.mktemp("redis")) as process:
        yield process


@pytest.fixture(scope="session")
def sentinel_process(
    tmp_path_factory: pytest.TempPathFactory, redis_process: RedisProcess
) -> Iterator[RedisProcess]:
    """A Sentinel that monitors ``redis_process``."""
    process = RedisProcess(tmp_path_factory.mktemp("sentinel"))
    config = process.folder / "sentinel.conf"
    config.write_text(SENTINEL.format(port=process.port, master=redis_process.port))
    try:
        yield process.start(str(config), "--sentinel")
    finally:
        process.kill()


@pytest.fixture(scope="session")
def cluster_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """One of the three masters of a Redis Cluster."""
    config = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
    processes = []
    try:
        for _ in range(3):
            processes.append(RedisProcess(tmp_path_factory.mktemp("node"), *config).start())
        places = [f"127.0.0.1:{process.port}" for process in processes]
        create = ["redis-cli", "--cluster", "create", *places, "--cluster-yes"]
        subprocess.run(create, check=True, capture_output=True)
        blocking(wait_until(lambda: all(map(serves, processes)), 30, "the Cluster is down"))
        yield processes[0]
    finally:
        for process in processes:
            process.kill()


def serves(node: RedisProcess) -> bool:
    """Whether this Cluster node sees every slot served."""
    ask = ["redis-cli", "-p", str(node.port), "cluster", "info"]
    return b"cluster_state:ok" in subprocess.run(ask, check=True, capture_output=True).stdout


REAL_KINDS = [
    pytest.param(kind, marks=pytest.mark.service) for kind in ("redis", "sentinel", "cluster")
]


@pytest.fixture(params=["memory", "local", *REAL_KINDS])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    return str(request.param)


@pytest.fixture
def make_pair(kind: str, request: pytest.FixtureRequest) -> Callable[[], Coroutine[Any, Any, Pair]]:
    """A function that makes an empty namespace."""
    if kind == "memory":
        return memory_pair
    if kind == "local":
        folder = request.getfixturevalue("tmp_path")
        return lambda: local_pair(folder / uuid.uuid4().hex)
    process: RedisProcess = request.getfixturevalue("redis_process")
    if kind == "cluster":
        url = request.getfixturevalue("cluster_process").url
        return lambda: redis_pair(url, cluster=True)
    if kind == "sentinel":
        place = f"127.0.0.1:{request.getfixturevalue('sentinel_process').port}"
        return lambda: redis_pair(process.url, sentinel=place)
    return lambda: redis_pair(process.url)


@pytest_asyncio.fixture
async def pair(make_pair: Callable[[], Coroutine[Any, Any, Pair]]) -> AsyncIterator[Pair]:
    """An empty generation."""
    made = await make_pair()
    yield made
    await made.close()


@pytest.fixture
def store(pair: Pair) -> StateStore:
    """One handle on an empty generation."""
    return pair.one


async def memory_pair() -> Pair:
    """The same memory store as both handles."""
    store = MemoryStore()

    async def remember() -> Callable[[], Awaitable[None]]:
        snapshot = store.snapshot()

        async def go_back() -> None:
            store.restore(snapshot)

        return go_back

    return await begun(store, store, remember)


def copy_file(source: Path, target: Path) -> None:
    """Make a file of SQLite the same as another one, as its users see them."""
    with closing(connect_file(source)) as old, closing(connect_file(target)) as new:
        old.backup(new)


async def local_pair(path: Path) -> Pair:
    """Two processes' connections to a new file."""
    files = [Database(path), Database(path)]

    async def remember() -> Callable[[], Awaitable[None]]:
        copy = path.with_suffix(".copy")
        copy_file(path, copy)

        async def go_back() -> None:
            copy_file(copy, path)

        return go_back

    made = await begun(LocalStore(files[0]), LocalStore(files[1]), remember)
    made.files = files
    return made


async def redis_pair(url: str, *, cluster: bool = False, sentinel: str | None = None) -> Pair:
    """Two clients of a new namespace."""
    options = RedisOptions(
        url="redis://" if sentinel else url,
        namespace=f"t{uuid.uuid4().hex}",
        cluster=cluster,
        sentinels=(sentinel,) if sentinel else (),
        sentinel_service="state",
    )
    client: Any = RedisCluster if cluster else Redis
    pattern = f"sm:{options.namespace}:*"

    async def remember() -> Callable[[], Awaitable[None]]:
        async with client.from_url(url) as raw:
            dumps = {key: await raw.dump(key) async for key in raw.scan_iter(pattern)}

        async def go_back() -> None:
            async with client.from_url(url) as raw:
                async for key in raw.scan_iter(pattern):
                    await raw.delete(key)
                for key, dump in dumps.items():
                    await raw.restore(key, 0, dump or b"")

        return go_back

    return await begun(connect(options), connect(options), remember)
