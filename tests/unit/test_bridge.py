"""Rounds of the bridge over scripted brokers: what a session with the group needs, and bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from stream_metrics.telemetry.assembly import Assembly, Bounds
from tests.otlp import RETRIEVER, Made, as_protobuf, documents
from tests.sessions import Sent
from tests.simulation.bridges import BridgeMember, World
from tests.telemetry import agent, search

TURN = {"openinference.span.kind": "AGENT", "session.id": "s"}
LONG_AGO_S = 60.0


def sent(spans: Sequence[Made]) -> Sent:
    """A record of spans of one trace."""
    return Sent(spans[0].trace_id.hex().encode(), as_protobuf(spans))


def turn(trace: int, searches: int) -> list[Made]:
    """A turn with that many searches."""
    found = [
        Made(trace, 2 + at, 1, 10 * at, 10 * at + 5, {**RETRIEVER, **documents(at)})
        for at in range(searches)
    ]
    return [Made(trace, 1, 0, 0, 10 * searches, TURN), *found]


async def rounds_of_others(world: World) -> int:
    """How often another task had the loop while a bridge told all that there is."""
    member = BridgeMember(world)
    await member.join()
    world.brokers.rebalance([member.client])
    while await member.turn() or not member.inputs.next_offsets():
        pass
    world.now_ms += 10 * world.bounds.trace_max_ms
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    while sum(member.refused.values()) == 0 and not world.produced:
        await member.turn()
    other.cancel()
    return rounds


async def test_a_large_trace_leaves_the_loop_to_others() -> None:
    """Such as to heartbeats, without which the group takes the partition away, again and again."""
    world = World(Bounds())
    spans = turn(1, 3_000)
    for first in range(0, len(spans), 500):
        world.send(sent(spans[first : first + 500]), 0)

    assert await rounds_of_others(world) > 20


async def test_many_traces_that_are_closed_at_once_leave_the_loop_to_others() -> None:
    """Also where they tell nothing that would be produced."""
    world = World(Bounds())
    for trace in range(1, 10_000):
        world.send(sent([Made(trace, 2, 1, 0, 1, RETRIEVER)]), 0)

    assert await rounds_of_others(world) > 15


def test_spans_that_come_again_and_again_cost_no_more_than_new_ones() -> None:
    """Whatever is held of their trace by then; the last version of each counts."""
    number = 10_000
    assembly, began = Assembly(Bounds()), time.monotonic()
    versions = [
        [agent(end=10**6), *(search(f"s{at}", "agent", at, end=10**5 + version, found="a")
                             for at in range(number))]
        for version in range(2)
    ]  # fmt: skip
    for version in versions:
        for offset, span in enumerate(version):
            assert assembly.read(offset, 1_000, [span]) == []
            assert time.monotonic() - began < LONG_AGO_S

    [closed] = assembly.finish()
    assert closed.spans == number + 1
