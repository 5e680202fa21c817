"""The live path without Kafka: state partitions over a store equal the reference."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.local.servers import RedisServer
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.ranking.live import live_metrics
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import Output, Position, StateStore
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import PartitionOptions
from stream_metrics.live.worker.ownership.generations import begin
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.telemetry import NoTelemetry, Telemetry
from tests import oracle
from tests.helpers import examples
from tests.oracle.retrieval import METRICS
from tests.strategies import arrivals, streams

TOPIC = "events"
IDENTITY = Identity("group", 1, "fingerprint", {TOPIC: 1})


def options() -> PartitionOptions:
    """The options of a worker with default settings."""
    return PartitionOptions(
        IDENTITY, EngineConfig(), "k", {"k": b"secret"}, DEFAULT_WINDOWS, require_key=True
    )


async def once(call: Callable[[], Awaitable[Any]]) -> Any:
    """No retries: the memory store never fails."""
    return await call()


async def opened(
    store: StateStore,
    letters: MemoryDeadLetters,
    cache_results: int,
    output: Output | None = None,
    number: int = 0,
    telemetry: Telemetry | None = None,
    **changes: Any,
) -> StatePartition:
    """A state partition that a new owner has just claimed."""
    shared = replace(options(), **changes)
    partition = StatePartition(
        number,
        shared,
        store,
        letters,
        ConversationCache(cache_results),
        SharedNames(store, shared),
        telemetry or NoTelemetry(),
        b"token",
        output,
    )
    partition.adopt(await store.claim(number, b"token", {TOPIC: Position(0)}))
    return partition


async def live(
    store: StateStore,
    batches: list[list[tuple[bytes, bytes, int | None]]],
    cache_results: int,
    reopen: set[int],
    engine: EngineConfig,
) -> tuple[list[str], str, MemoryDeadLetters]:
    """Rows and windows of the store, and dead letters, after ``batches``."""
    letters = MemoryDeadLetters()
    partition = await opened(store, letters, cache_results, engine=engine)
    offset = 0
    for number, batch in enumerate(batches):
        if number in reopen:
            partition = await opened(store, letters, cache_results, engine=engine)
        records = [
            Record(value, key, timestamp_ms, TOPIC, 0, offset + at)
            for at, (key, value, timestamp_ms) in enumerate(batch)
        ]
        offset += len(records)
        await partition.process(records, once)
    export = await export_state(store, engine, DEFAULT_WINDOWS, "all")
    windows = canonical(export.windows_document(None)) + "\n"
    return [canonical(row) for row in export.rows], windows, letters


def agrees(
    data: st.DataObject, run: Callable[..., tuple[list[str], str, MemoryDeadLetters]]
) -> None:
    """Draw a stream and its order of arrival, run it, and compare with the reference."""
    drawn = data.draw(streams())
    stream: list[tuple[bytes, bytes, int | None]] = [(key, value, None) for key, value, _ in drawn]
    batches = data.draw(arrivals(stream))
    cache_results = data.draw(st.sampled_from([0, 20, 100_000]))
    reopen = data.draw(st.sets(st.integers(0, 6)))
    retrieval = data.draw(st.sampled_from([(), tuple(METRICS)]))
    taken = [record for batch in batches for record in batch]
    reference = [oracle.Record(value, key, None) for key, value, _ in taken]
    expected = oracle.evaluate(reference, turn_scope="all", keyed=True, retrieval=retrieval)
    engine = EngineConfig(retrieval=live_metrics(retrieval))

    rows, windows, letters = run(batches, cache_results, reopen, engine)

    assert rows == expected.rows
    assert windows == expected.windows()
    assert [letter.record.offset for letter in letters.letters] == [n for n, _ in expected.invalid]


@given(st.data())
def test_the_live_path_over_the_memory_store(data: st.DataObject) -> None:
    """Batches, the size of the cache and changes of owner do not affect the state, with or without
    ranked metrics."""
    agrees(data, lambda *drawn: asyncio.run(live(MemoryStore(), *drawn)))


@settings(max_examples=examples(60))
@given(st.data())
def test_the_live_path_over_redis(redis_server: RedisServer, data: st.DataObject) -> None:
    """The same holds on a real Redis."""

    async def run(*drawn: Any) -> tuple[list[str], str, MemoryDeadLetters]:
        space = connect(RedisOptions(url=redis_server.url, namespace=f"property-{uuid4()}"))
        try:
            store = space.generation(await begin(space, IDENTITY, 0))
            return await live(store, *drawn)
        finally:
            await space.close()

    agrees(data, lambda *drawn: asyncio.run(run(*drawn)))
