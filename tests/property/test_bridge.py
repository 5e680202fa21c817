"""Bridges that crash anywhere produce the events of one pass over their topic."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.telemetry.assembly import Bounds
from tests.fuse import Crash, Fuse
from tests.helpers import examples
from tests.sessions import Sent, records, traces
from tests.simulation.bridges import BridgeMember, World

SETTLE_MS, LONGEST_MS = 5_000, 30_000
STEPS_MS = (0, 0, 0, 100, 900, 3_000, 4_999, 5_001, 9_000, 29_999, 60_000)


def sent(seed: int) -> list[Sent]:
    """Records of some traces, partitioned by key."""
    return list(records(traces(seed, 7, searches=2), seed, open_at_once=4))


def partition(record: Sent) -> int:
    """The partition of the record."""
    assert record.key is not None
    return int(record.key, 16) % 2


@settings(max_examples=examples(200))
@given(st.data())
def test_crashes_anywhere_give_the_same_events(data: st.DataObject) -> None:
    """With crashes at any step, rebalances, unavailable input topics and idle periods, the events
    equal those of one pass, byte for byte."""
    bounds = Bounds(
        SETTLE_MS,
        LONGEST_MS,
        2 * LONGEST_MS,
        data.draw(st.sampled_from([2, 1_000])),
        data.draw(st.sampled_from([9_000, 1 << 30])),
    )
    seed = data.draw(st.integers(1, 1_000))
    world = World(bounds)
    left = sent(seed)
    chance = random.Random(seed)

    async def run() -> None:
        members: list[BridgeMember] = []
        while left:
            match data.draw(st.sampled_from("ssssttttkrw"), "step"):
                case "s":
                    record = left.pop()
                    world.send(record, partition(record), chance.choice(STEPS_MS))
                case "w":
                    world.now_ms += chance.choice(STEPS_MS)
                case "k":
                    fuse = Fuse(data.draw(st.integers(0, 40), "lives"))
                    members = [BridgeMember(world, fuse)]
                    await members[0].inputs.fetch()
                    world.brokers.rebalance([one.source for one in members])
                case "r":
                    members = [*members[-1:], BridgeMember(world)]
                    await members[-1].inputs.fetch()
                    world.brokers.rebalance([one.source for one in members])
                case _:
                    world.refuses = data.draw(st.sampled_from([0, 0, 1]))
                    for one in list(members):
                        try:
                            await one.turn()
                        except Crash:
                            members.remove(one)
        last = BridgeMember(world)
        await last.inputs.fetch()
        world.brokers.rebalance([last.source])
        world.now_ms += 10 * LONGEST_MS
        idle = 0
        while idle < 3:
            idle = 0 if await last.turn() else idle + 1

    asyncio.run(run())

    assert set(world.produced) == world.expected()
    assert world.letters.letters == []
