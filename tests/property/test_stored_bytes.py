"""What is stored of a conversation depends on its events, and not on their order."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from tests.property.test_partition import IDENTITY, TOPIC, once, opened
from tests.strategies import KeyedRecord, arrivals, streams

Parts = dict[bytes, bytes]


async def stored(
    batches: list[list[KeyedRecord]], schema: int, cache_results: int
) -> dict[bytes, tuple[Parts, Parts]]:
    """The hot parts and the fingerprints of every conversation after ``batches``."""
    store = MemoryStore()
    identity = replace(IDENTITY, schema_version=schema)
    partition = await opened(store, MemoryDeadLetters(), cache_results, identity=identity)
    for batch in batches:
        first = partition.positions[TOPIC].offset
        records = [Record(v, k, t, TOPIC, 0, first + n) for n, (k, v, t) in enumerate(batch)]
        await partition.process(records, once)
    keys = [key async for key, _ in store.conversations(0)]
    held = await store.load(0, [(key, True) for key in keys])
    return {
        key: (dict(one.hot), dict(one.fingerprints or {}))
        for key, one in zip(keys, held, strict=True)
    }


@given(st.data(), st.sampled_from([1, 2]), st.sampled_from([0, 100_000]))
def test_any_order_of_arrival_leaves_the_same_bytes(
    data: st.DataObject, schema: int, cache_results: int
) -> None:
    """Labels of both sources, random samples and forgets included, whether loaded or cached."""
    stream: list[KeyedRecord] = [(key, value, None) for key, value, _ in data.draw(streams())]

    first = asyncio.run(stored(data.draw(arrivals(stream)), schema, cache_results))
    second = asyncio.run(stored([stream], schema, 100_000))

    assert first == second
