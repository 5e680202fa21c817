"""Bytes of Redis per result and per further value: the growth of ``used_memory``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from redis.asyncio import Redis

from benchmarks.figures import Figure
from benchmarks.inprocess import InProcess
from benchmarks.servers import settled_redis_bytes
from benchmarks.workload import Plain
from deploy.local.servers import RedisServer
from stream_metrics.core.events.record import Record
from stream_metrics.live.redis.connect import RedisOptions, connect

ITERATIONS, RESULTS = 4, 10
FURTHER = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """Conversations of one turn, by default four iterations of one search with ten results."""

    conversations: int
    further: int = 0
    labels: bool = False
    iterations: int = ITERATIONS
    each: int = RESULTS

    @property
    def results(self) -> int:
        """In all."""
        return self.conversations * self.iterations * self.each

    def records(self, seed: int) -> Iterator[Record]:
        """The events, conversations interleaved."""
        plain = Plain(seed)
        for iteration in range(self.iterations):
            numbers = range(iteration * self.each + 1, (iteration + 1) * self.each + 1)
            for serial in range(self.conversations):
                name = f"itd-{serial:06x}-{seed:04x}"
                results = [plain.result(n, further=self.further) for n in numbers]
                yield plain.search(name, iteration + 1, results)
                if self.labels:
                    yield plain.labels(name, numbers)


async def memory_figures(redis: RedisServer, client: Redis, *, quick: bool) -> list[Figure]:
    """The bytes of three workloads, each over a few seeds."""
    conversations, rounds = (300, 1) if quick else (1_000, 3)
    plain, further, labelled = [], [], []
    for seed in range(rounds):
        base = await _bytes(redis, client, Shape(conversations), seed)
        more = await _bytes(redis, client, Shape(conversations, further=FURTHER), seed)
        plain.append(base)
        further.append((more - base) / FURTHER)
        labelled.append(await _bytes(redis, client, Shape(conversations, labels=True), seed) - base)
    return [
        Figure("Redis a result with one id, URL, title, snippet", plain, "B", "≤ 160"),
        Figure("Redis a further value of a result", further, "B", "≤ 17"),
        Figure("Redis a label of a result", labelled, "B"),
    ]


async def _bytes(redis: RedisServer, client: Redis, shape: Shape, seed: int) -> float:
    """Bytes of Redis per result after the state of all conversations was written."""
    return await state_bytes(redis, client, shape, seed) / shape.results


async def state_bytes(redis: RedisServer, client: Redis, shape: Shape, seed: int = 0) -> int:
    """Bytes of Redis after the state of all conversations was written."""
    await client.flushall()
    store = connect(RedisOptions(url=redis.url, namespace="memory"))
    try:
        path = await InProcess(store).open()
        before = await settled_redis_bytes(client)
        await path.process(list(shape.records(seed)))
        return await settled_redis_bytes(client) - before
    finally:
        await store.close()
