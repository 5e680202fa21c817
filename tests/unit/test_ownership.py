"""A worker whose partitions others have taken, before the group has told it."""

from __future__ import annotations

import pytest

from tests.simulation.system import PARTITIONS, Process, System


def numbers(process: Process) -> list[int]:
    """The partitions whose windows a worker shows."""
    return sorted(partition.number for partition in process.loop.partitions)


async def taken_away() -> tuple[System, Process, Process]:
    """A system, a worker that does not know yet that another has all, and that other."""
    system = System(seed=3)
    before = await system.start()
    system.rebalance()
    system.produce(20)
    await system.act(before, "read")
    owner = await system.start()
    system.brokers.rebalance([owner.client], unaware=[before.client])
    await system.act(owner, "read")
    assert len(owner.loop.partitions) == PARTITIONS
    return system, before, owner


async def test_a_worker_that_was_fenced_shows_none_of_what_others_may_own() -> None:
    """One refused write tells it that the group has gone on without it; its windows of the other
    partitions are not exported a second time until the brokers have answered."""
    system, before, owner = await taken_away()

    for _ in range(50):
        system.produce(1)
        await before.loop.turn()
        if len(before.loop.partitions) < PARTITIONS:
            break

    assert before.loop.partitions == []
    assert len(owner.loop.partitions) == PARTITIONS
    assert not system.breaches


async def test_a_worker_that_was_fenced_goes_on_with_what_is_its_own() -> None:
    """Once the brokers have answered it shows what it has, and reads on."""
    system, before, owner = await taken_away()
    system.produce(20)
    await before.loop.turn()

    system.rebalance()
    for process in (before, owner, before, owner):
        await system.act(process, "read")

    shown = [number for process in (before, owner) for number in numbers(process)]
    assert sorted(shown) == list(range(PARTITIONS))
    assert numbers(before)
    assert not system.breaches


@pytest.mark.parametrize("over_kafka", [False, True])
async def test_a_worker_that_may_not_read_keeps_and_shows_what_it_has(over_kafka: bool) -> None:
    """It reads nothing, also of what it takes over meanwhile, and says why; it goes on where it
    was, and its figures are those of one pass."""
    system = System(seed=3, over_kafka=over_kafka)
    worker = await system.start()
    system.rebalance()
    system.produce(100)
    await system.act(worker, "read")
    before = [partition.positions for partition in worker.loop.partitions]

    worker.stopped = "no room"
    await system.act(worker, "read")
    await system.act(worker, "look after")
    system.rebalance()
    await system.act(worker, "read")
    assert numbers(worker) == list(range(PARTITIONS))
    assert [partition.positions for partition in worker.loop.partitions] == before
    assert worker.health.reasons["reading"] == "no room"

    worker.stopped = None
    await system.settle()
    await system.check()
    assert worker.health.reasons == {}
