"""The log lacks records that a generation needs, while it is built or just after: in the
simulation."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition

from stream_metrics.live.worker.ownership.generations import begin, change
from tests.simulation.building import OLD, BuildSystem, Process
from tests.simulation.system import TOPICS


async def started(system: BuildSystem, number: int) -> Process:
    """The only worker of a generation, which has taken over and read what there is."""
    generation = (await system.space.layout()).of(number)
    assert generation is not None
    system.processes.clear()
    process = await system.start(generation)
    process.client.max_records = 1_000
    system.rebalance(generation)
    for _ in range(3):
        await system.act(process, "read", None, 0)
    return process


@pytest.mark.parametrize("decided", [False, True])
async def test_only_a_generation_that_is_being_built_is_read_again_at_a_gap(decided: bool) -> None:
    """Once it has replaced another one, the policy of the settings applies, which is to halt here;
    also while the other one is being fenced."""
    system = BuildSystem(seed=1, batch_records=100)
    await begin(system.space, OLD, 0)
    system.produce(120)
    await started(system, 1)
    await system.register()
    worker = await started(system, 2)
    state = system.space.generation(worker.generation)
    read = (await state.describe(0)).positions
    system.produce(10_000)
    for place in (TopicPartition(topic, 0) for topic in TOPICS):
        system.brokers.firsts[place] = system.brokers.ends[place] - 1
    if decided:
        await change(system.space, lambda now: now.switched(2, system.now_ms))

    worker = await started(system, 2)

    assert [partition.number for partition in worker.loop.partitions] == [0, 1][decided:]
    assert ((await state.describe(0)).positions == read) is decided
