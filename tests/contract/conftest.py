"""Fixtures: the same store in memory and in a real Redis, seen by two workers."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from stream_metrics.adapters.memory import MemoryStore
from stream_metrics.adapters.redis.connect import RedisOptions, connect
from stream_metrics.ports import StateStore
from tests.contract.redis_process import RedisProcess, running


@dataclass
class Pair:
    """Two handles on one namespace, and a way to lose its latest writes.

    ``remember`` returns a function that takes the whole namespace back to that moment.
    """

    one: StateStore
    two: StateStore
    remember: Callable[[], Awaitable[Callable[[], Awaitable[None]]]]


@pytest.fixture(scope="session")
def redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """A redis-server for the session; tests use namespaces of their own."""
    with running(tmp_path_factory.mktemp("redis")) as process:
        yield process


@pytest.fixture(params=["memory", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two stores."""
    return str(request.param)


@pytest.fixture
def make_pair(kind: str, request: pytest.FixtureRequest) -> Callable[[], Pair]:
    """Makes empty namespaces."""
    if kind == "memory":
        return memory_pair
    process: RedisProcess = request.getfixturevalue("redis_process")
    return lambda: redis_pair(process.url)


@pytest_asyncio.fixture
async def pair(make_pair: Callable[[], Pair]) -> AsyncIterator[Pair]:
    """An empty namespace."""
    made = make_pair()
    yield made
    await made.one.close()
    await made.two.close()


@pytest.fixture
def store(pair: Pair) -> StateStore:
    """One handle on an empty namespace."""
    return pair.one


def memory_pair() -> Pair:
    """Two handles on one store, which is its own second handle."""
    store = MemoryStore()

    async def remember() -> Callable[[], Awaitable[None]]:
        snapshot = store.snapshot()

        async def go_back() -> None:
            store.restore(snapshot)

        return go_back

    return Pair(store, store, remember)


def redis_pair(url: str, *, cluster: bool = False) -> Pair:
    """Two clients of one namespace that nobody else uses."""
    options = RedisOptions(url=url, namespace=f"t{uuid.uuid4().hex}", cluster=cluster)

    async def remember() -> Callable[[], Awaitable[None]]:
        async with Redis.from_url(url) as raw:
            pattern = f"sm:{options.namespace}:*"
            dumps = {key: await raw.dump(key) async for key in raw.scan_iter(pattern)}

        async def go_back() -> None:
            async with Redis.from_url(url) as raw:
                async for key in raw.scan_iter(pattern):
                    await raw.delete(key)
                for key, dump in dumps.items():
                    await raw.restore(key, 0, dump or b"")

        return go_back

    return Pair(connect(options), connect(options), remember)
