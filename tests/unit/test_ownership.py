"""A worker whose partitions others have taken, before the group has told it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiokafka import TopicPartition

from tests.simulation.brokers import ScriptedConsumer
from tests.simulation.system import PARTITIONS, Process, System


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
    assert len(owner.live.partitions) == PARTITIONS
    return system, before, owner


class Unanswered:
    """In the place of a client's method: notes that it was asked, and never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __call__(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Wait for good."""
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_worker_that_was_fenced_shows_none_of_what_others_may_own() -> None:
    """Cut off from Kafka alone, it sees in the store that one partition is another's; its windows
    are not exported a second time while it waits for brokers that do not answer."""
    system, before, _ = await taken_away()
    silent = Unanswered()
    before.client.beginning_offsets = silent  # type: ignore[method-assign]
    assert len(before.live.partitions) == PARTITIONS

    async def work() -> None:
        await before.live._look_after()
        await before.live._turn()

    working = asyncio.create_task(work())
    async with asyncio.timeout(10):
        await silent.asked.wait()

    assert before.live.partitions == []
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert isinstance(before.client, ScriptedConsumer)
    assert not system.breaches
