"""What one sender writes to the topic of traces changes nothing of the others' events."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.telemetry.assembly import Bounds
from tests.helpers import examples
from tests.otlp import as_protobuf, document
from tests.sessions import Sent, records, trace, traces
from tests.simulation.bridges import BridgeMember, World

HOSTILE_EVENT = f'"event_id":"{2**40:032x}'[:-2].encode()
SERVICES = ("support", "shop", "desk")
NESTED: list[Any] = []
for _ in range(200):
    NESTED = [NESTED]
HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, "", "x", "\x00", "é" * 300, "__REDACTED__", "9" * 5_000, -1, 2**31, 2**63, 2**70,
    10**400, 1e308, [], {}, [None], NESTED, {"stringValue": "y"}, {"intValue": "z"},
    {"doubleValue": "NaN"}, {"arrayValue": {"values": [None]}}, {"kvlistValue": NESTED},
    {"stringValue": json.dumps(NESTED)}, {"stringValue": "{" * 5_000},
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every part of a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


@st.composite
def damaged(draw: st.DrawFn) -> Sent:
    """A record of a trace of which some parts are replaced or missing, as JSON or cut off."""
    spans = trace(
        draw(st.integers(2**40, 2**40 + 3)), random.Random(1), sessions=1, searches=2, start_ms=0
    )
    scope = draw(st.sampled_from([spans[0].scope, "langfuse-sdk", "mine"]))
    service = draw(st.sampled_from(["hostile", *SERVICES]))
    found: Any = document(
        replace(one, scope=scope, resource={"service.name": service}) for one in spans
    )
    for _ in range(draw(st.integers(0, 3))):
        paths = [path for path in places(found) if path] or [("resourceSpans",)]
        *outer, last = draw(st.sampled_from(paths))
        inside = found
        for key in outer:
            inside = inside[key]
        if draw(st.booleans()):
            inside[last] = deepcopy(draw(st.sampled_from(HOSTILE_VALUES)))
        else:
            inside.pop(last, None) if isinstance(inside, dict) else inside.pop(last)
    value = json.dumps(found).encode()
    if draw(st.integers(0, 3)) == 0:
        binary = bytearray(as_protobuf(replace(one, scope=scope) for one in spans))
        for _ in range(draw(st.integers(0, 3))):
            binary[draw(st.integers(0, len(binary) - 1))] = draw(st.integers(0, 255))
        value = bytes(binary)
    if draw(st.integers(0, 5)) == 0:
        value = value[: draw(st.integers(0, len(value)))]
    key = draw(st.sampled_from([None, b"", b"session", f"{2**40:032x}".encode()]))
    return Sent(key, draw(st.one_of(st.just(value), st.binary(max_size=60))))


def good(seed: int) -> list[Sent]:
    """Records of traces of three services."""
    made = [
        [replace(one, resource={"service.name": SERVICES[at % 3]}) for one in spans]
        for at, spans in enumerate(traces(seed, 5, searches=2))
    ]
    return list(records(made, seed, open_at_once=3))


def produced(log: Sequence[tuple[Sent, int]], bounds: Bounds) -> tuple[set[Any], int]:
    """The events that a bridge writes of other traces than the damaged, and how many records it
    read."""

    async def run() -> tuple[set[Any], int]:
        world = World(bounds, partitions=1)
        for record, after_ms in log:
            world.send(record, 0, after_ms)
        member = BridgeMember(world)
        await member.join()
        world.brokers.rebalance([member.source])
        read = idle = 0
        while idle < 3:
            number = await member.turn()
            read += number
            idle = 0 if number else idle + 1
            world.now_ms += bounds.known_ms if not number else 0
        return {one for one in world.produced if HOSTILE_EVENT not in one[1]}, read

    return asyncio.run(run())


@settings(max_examples=examples(150))
@given(st.integers(1, 500), st.lists(st.tuples(st.integers(0, 40), damaged()), max_size=8))
def test_no_record_of_one_sender_stops_or_changes_another(
    seed: int, hostile: list[tuple[int, Sent]]
) -> None:
    """Whatever its records hold, each is read, and the events of the others are the same bytes."""
    bounds = Bounds(5_000, 30_000, 60_000)
    log = [(record, 500) for record in good(seed)]
    expected, _ = produced(log, bounds)
    for at, record in hostile:
        log.insert(at, (record, 0))

    assert produced(log, bounds) == (expected, len(log))


@settings(max_examples=examples(50))
@given(st.integers(1, 500), st.integers(30, 60))
def test_a_service_whose_traces_never_end_leaves_room_for_others(seed: int, number: int) -> None:
    """Its own oldest traces are refused, and the events of the others are the same."""
    bounds = Bounds(5_000, 30_000, 60_000, open_traces=5)
    log = [(record, 500) for record in good(seed)]
    expected, _ = produced(log, bounds)
    endless = [
        [replace(one, resource={"service.name": "endless"}) for one in spans[:-1]]
        for spans in traces(2**21 + seed, number, searches=1)
    ]
    flood = [(Sent(record.key, record.value), 0) for record in records(endless, 1, open_at_once=1)]
    chance = random.Random(seed)
    for one in flood:
        log.insert(chance.randrange(len(log)), one)

    assert {one for one in produced(log, bounds)[0] if b"endless" not in one[1]} >= expected
