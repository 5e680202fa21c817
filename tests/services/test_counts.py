"""An event costs no more Redis commands, round trips and bytes than recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import pytest
from redis.asyncio import Connection, Redis

from benchmarks.inprocess import InProcess
from benchmarks.memory import FURTHER, Shape
from deploy.local.servers import RedisServer
from stream_metrics.live.redis.connect import RedisOptions, make_client
from stream_metrics.live.redis.connections import connection_class
from stream_metrics.live.redis.store import RedisStore
from tests.counts import hold, records

NAMESPACE: Final = "counted"
COUNTED: Final = 2_000
BATCH: Final = 500
CONVERSATIONS: Final = 50
SEED: Final = 1


class Counting(Connection):
    """A connection that counts sends, each of one command or a pipeline."""

    sends = 0

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        """Count, and send."""
        Counting.sends += 1  # over all subclasses
        await super().send_packed_command(command, check_health)


@pytest.fixture
async def raw(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """A separate client, on an empty server."""
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
        yield client


def counting(redis_server: RedisServer) -> RedisStore:
    """The store of a worker, over a counting connection."""
    client, closers = make_client(RedisOptions(url=redis_server.url, namespace=NAMESPACE))
    assert isinstance(client, Redis)
    client.connection_pool.connection_class = connection_class(Counting)
    return RedisStore(client, NAMESPACE, closers)


class Spent:
    """The server's counters since ``begin``, without the commands that read the counters."""

    def __init__(self, raw: Redis) -> None:
        self._raw = raw

    async def begin(self) -> None:
        """Start counting."""
        first = await self._raw.info("stats")
        self._start = await self._raw.info("stats")
        self._asking = {name: self._start[name] - first[name] for name in BYTES.values()}
        self._commands = await self._calls()
        self._start = await self._raw.info("stats")
        self._sends = Counting.sends

    async def counts(self, events: int, phase: str) -> dict[str, float]:
        """Each count per record."""
        end = await self._raw.info("stats")
        commands = await self._calls() - self._commands
        found = {
            what: end[name] - self._start[name] - self._asking[name] for what, name in BYTES.items()
        }
        found |= {"Redis commands": commands, "round trips": Counting.sends - self._sends}
        return {f"{what}, {phase}": value / events for what, value in found.items()}

    async def _calls(self) -> int:
        """Commands, including those in scripts, without the commands that read the counters."""
        found: dict[str, Any] = await self._raw.info("commandstats")
        return sum(one["calls"] for name, one in found.items() if name != "cmdstat_info")


BYTES: Final = {
    "bytes to Redis": "total_net_input_bytes",
    "bytes from Redis": "total_net_output_bytes",
}


async def test_an_event_costs_redis_no_more_than_recorded(
    redis_server: RedisServer, raw: Redis
) -> None:
    """Commands, round trips and bytes in both directions stay within the recorded ones, for a
    running worker and for its successor, which first reads the stored state."""
    sent = records(3 * COUNTED)
    found: dict[str, float] = {}
    spent = Spent(raw)
    for phase, start in (("going on", COUNTED), ("taking over", 2 * COUNTED)):
        store = counting(redis_server)
        try:
            path = await InProcess(store).open()
            if phase == "going on":
                await path.process(sent[:start])
            await spent.begin()
            for at in range(start, start + COUNTED, BATCH):
                await path.process(sent[at : at + BATCH])
            found |= await spent.counts(COUNTED, phase)
        finally:
            await store.close()

    hold(found)


async def stored(redis_server: RedisServer, raw: Redis, shape: Shape) -> float:
    """Bytes of state per result: keys, fields and values, without the server's overhead."""
    await raw.flushall()
    store = counting(redis_server)
    try:
        path = await InProcess(store).open()
        await path.process(list(shape.records(SEED)))
    finally:
        await store.close()
    size = 0
    async for key in raw.scan_iter(count=1_000):
        size += len(key) + await content(raw, key)
    return size / shape.results


async def content(raw: Redis, key: bytes) -> int:
    """Bytes of a key's fields and values."""
    kind = await raw.type(key)
    if kind == b"hash":
        fields = await raw.hgetall(key)
        return sum(len(name) + len(value) for name, value in fields.items())
    if kind == b"string":
        return int(await raw.strlen(key))
    if kind == b"zset":
        return sum(len(member) + 8 for member in await raw.zrange(key, 0, -1))
    assert kind == b"set", kind
    return sum(map(len, await raw.smembers(key)))


async def test_a_result_takes_no_more_state_than_recorded(
    redis_server: RedisServer, raw: Redis
) -> None:
    """Bytes of a result, of each additional value and of a label stay within the recorded ones."""
    plain = await stored(redis_server, raw, Shape(CONVERSATIONS))
    more = await stored(redis_server, raw, Shape(CONVERSATIONS, further=FURTHER))
    labelled = await stored(redis_server, raw, Shape(CONVERSATIONS, labels=True))

    hold(
        {
            "state bytes a result": plain,
            "state bytes a further value": (more - plain) / FURTHER,
            "state bytes a label": labelled - plain,
        }
    )
