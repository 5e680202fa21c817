"""The store goes back to before a switch that is complete: scheduled cases of the simulation.

The random schedules of ``tests/property/test_build.py`` come upon these rarely.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from stream_metrics.live.layout import Generation
from stream_metrics.live.worker.ownership.generations import begin
from tests.simulation.building import OLD, BuildSystem, Process

ALL = 10_000  # more entries than there are
ROUNDS = 40  # until everything is read and announced


@dataclass
class Replaced:
    """A namespace whose second generation has taken the place of the first, after ``remember``."""

    system: BuildSystem
    old: Generation
    new: Generation
    worker: Process  # of the new one

    @classmethod
    async def made(cls, *, finished: bool = True) -> Replaced:
        """Part of the traffic is read; unless ``finished``, the first one is not purged."""
        system = BuildSystem(seed=1, batch_records=100)
        old = await begin(system.space, OLD, 0)
        before = await started(system, old)
        system.produce(120)
        await read(system, before, 2)
        await system.register()
        new = (await system.space.layout()).building
        assert new is not None
        [worker] = [p for p in system.processes if p.generation.mark == new.mark]
        worker.client.max_records = 1_000
        await read(system, worker, 3)
        await system.remember()
        await system.command("decide", None, 0)
        await system.act(worker, "look", None, 0)
        if finished:
            await read(system, worker, ROUNDS)
            await system.command("finish", None, 0)
            await system.act(worker, "look", None, 0)
        await system.act(before, "look", None, 0)
        return cls(system, old, new, worker)

    async def check(self) -> None:
        """Let the worker do what remains; every output then has what one pass gives."""
        for _ in range(4):
            await self.system.act(self.worker, "look", None, 0)
            await read(self.system, self.worker, ROUNDS)
        self.system.sent = len(self.system.topic.messages)
        await self.system.check()


async def started(system: BuildSystem, generation: Generation) -> Process:
    """Another worker of a generation, which has read nothing yet."""
    process = await system.start(generation)
    process.client.max_records = 1_000
    system.rebalance(generation)
    return process


async def read(system: BuildSystem, process: Process, times: int) -> None:
    """Let a worker read, unless it has ended."""
    for _ in range(times):
        if process in system.processes:
            await system.act(process, "read", None, 0)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("wakes", ["before the worker looks", "at the end"])
async def test_an_old_worker_that_starts_while_the_switch_is_lost_does_no_harm(
    finished: bool, wakes: str
) -> None:
    """It reads and sends until it looks at the layout, or is suspended and sends one more batch
    after the new generation has sent everything; all of its rows are replaced."""
    world = await Replaced.made(finished=finished)
    system = world.system
    await system.go_back()
    late = await started(system, world.old)
    system.produce(40)
    await read(system, world.worker, 3)
    await read(system, late, 3)
    if wakes == "before the worker looks":
        system.produce(ALL)
        await read(system, late, 3)
    await system.act(world.worker, "look", None, 0)
    system.produce(ALL)
    await read(system, world.worker, ROUNDS)
    sent = len(system.topic.messages)
    await read(system, late, 4)
    if late in system.processes:  # there was nothing to write
        await system.act(late, "look", None, 0)

    assert late not in system.processes
    assert len(system.topic.messages) == sent
    await world.check()


async def test_rows_that_a_new_worker_reads_while_the_switch_is_lost_are_sent() -> None:
    """It takes its generation for one that is being built, and sends nothing."""
    world = await Replaced.made()
    system = world.system
    await system.go_back()
    fresh = await system.start(world.new)
    fresh.client.max_records = 1_000
    system.processes.remove(world.worker)  # is suspended
    system.rebalance(world.new)
    system.produce(ALL)
    await read(system, fresh, 4)
    assert fresh.publication.muted
    system.processes.append(world.worker)
    await system.act(world.worker, "look", None, 0)
    await system.act(fresh, "look", None, 0)

    system.processes.remove(world.worker)
    world.worker = fresh
    await world.check()


async def test_rows_that_a_worker_reads_before_it_hears_that_its_generation_is_live_are_sent() -> (
    None
):
    """The old generation is purged by then, and the partition was announced by its last owner."""
    world = await Replaced.made()
    system = world.system
    await system.go_back()
    fresh = await system.start(world.new)
    fresh.client.max_records = 1_000
    system.processes.remove(fresh)  # is suspended
    system.rebalance(world.new)
    for _ in range(2):
        await system.act(world.worker, "look", None, 0)
        await read(system, world.worker, ROUNDS)
    assert not (await system.space.layout()).to_purge

    system.produce(ALL)
    system.processes[:] = [fresh]
    system.rebalance(world.new)
    await read(system, fresh, 4)
    assert fresh.publication.muted

    world.worker = fresh
    await world.check()
