"""The promise of docs/delivery.md, held against any order of troubles.

Fifty seeds, 100 in CI; ``HYPOTHESIS_PROFILE=thorough`` plays 2500.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from aiokafka import TopicPartition
from hypothesis import settings

from tests.simulation.schedule import play, system_of
from tests.simulation.system import System
from tests.simulation.troubled import KINDS

SEEDS = settings().max_examples // 2
SEEN_WITHIN = 50  # seeds


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_the_figures_are_those_of_one_pass(seed: int) -> None:
    """Crashes, rebalances, lost answers, roll-backs and wrong clocks, in any order and mix."""
    system, actions = system_of(seed)

    asyncio.run(play(system, actions))


def test_the_schedules_hold_every_trouble() -> None:
    """A few seeds have workers die at every call, refused writes, and conversations expire."""
    seen: Counter[str] = Counter()
    for seed in range(SEEN_WITHIN):
        system, actions = system_of(seed)
        asyncio.run(play(system, actions))
        seen += system.seen

    calls = {"load", "write", "claim", "describe", "admit", "send", "idle", "time_ms"}
    wanted = {"Written", "Fenced", "Moved", "expired", "store went back", *KINDS}
    assert wanted | {f"died at {call}" for call in calls} <= seen.keys()


async def test_a_number_held_for_some_topics_only_is_halted_alone() -> None:
    """It is not started, the worker says why, and the numbers that it holds whole go on."""
    system = System(seed=1)
    worker = await system.start()
    system.rebalance()
    system.produce(100)
    worker.client.due.remove(TopicPartition("labels", 0))
    system.brokers.generation += 1
    worker.client.notice()

    await system.act(worker, "read")

    assert [partition.number for partition in worker.live.partitions] == [1]
    assert worker.health.reasons["partition-0"] == "held for some of the input topics only"
