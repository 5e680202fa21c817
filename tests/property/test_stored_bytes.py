"""What is stored of a conversation depends on its events, and not on their order.

All integers in it are signed ones of 64 bits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_metrics.core.engine.codec import (
    UnknownSchema,
    decode_conversation,
    decode_sums,
    encode_sums,
)
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.engine.windows import added_bucket
from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from tests.golden import SOURCES, path, read
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


BEYOND = st.integers(2**63, 2**64 - 1)
HELD = [
    {bytes.fromhex(name): bytes.fromhex(part) for name, part in stored["hot"].items()}
    for file in (path(1), path(2), SOURCES.with_suffix(".json"))
    for stored in read(file)["conversations"].values()
]


def with_another(value: Any, other: int) -> Iterator[Any]:
    """The value as often as it has integers, each time with ``other`` for one of them."""
    remade: Callable[[list[Any]], Any] = list
    children: list[Any] = []
    if type(value) is int:
        yield other
    elif isinstance(value, list):
        children = value
    elif isinstance(value, dict):
        children, remade = [list(pair) for pair in value.items()], dict
    for at, child in enumerate(children):
        for changed in with_another(child, other):
            yield remade([*children[:at], changed, *children[at + 1 :]])


@given(st.sampled_from(HELD), BEYOND)
def test_no_integer_of_a_conversation_is_read_beyond_64_signed_bits(
    hot: dict[bytes, bytes], beyond: int
) -> None:
    """Whichever it is: as damaged state, or as another schema if it stands for that."""
    for name, part in hot.items():
        for changed in with_another(msgspec.msgpack.decode(part), beyond):
            with pytest.raises((DamagedState, UnknownSchema)):
                decode_conversation("c", {**hot, name: msgspec.msgpack.encode(changed)}, "k")


@given(BEYOND)
@example(2**63)
def test_no_sum_is_written_or_read_beyond_64_signed_bits(beyond: int) -> None:
    """Neither in a bucket that is stored, nor in what is added to one."""
    with pytest.raises(OverflowError):
        encode_sums({"r": 1, "u": beyond})
    with pytest.raises(DamagedState):
        decode_sums(msgspec.msgpack.encode({"r": 1, "u": beyond}))
    with pytest.raises(OverflowError):
        added_bucket(encode_sums({"u": 2**63 - 1}), {"u": beyond - 2**63 + 1}, {"u"})
