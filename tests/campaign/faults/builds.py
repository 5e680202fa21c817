"""Faults of builds: new state for other settings, while processes die or sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

from stream_metrics.live.layout import Layout
from stream_metrics.live.ports import StoreRefused, StoreUnavailable
from tests.campaign.command import CommandFailed
from tests.campaign.faults import replicated
from tests.campaign.faults.fault import Extra, Fault
from tests.campaign.faults.workers import JOIN_SECONDS, SESSION_SECONDS, START_SECONDS

if TYPE_CHECKING:
    from tests.campaign.world import ObedientWorker, World

DECISION: Final = "decision"
SWITCH: Final = ("freeze", "begin", "layout", "wipe")  # the steps after it, in order
TRICKLE_SECONDS: Final = 0.2
RUNS: Final = 20  # maximum runs of the command during a failover of Redis
THRESHOLDS: Final = {2: 3, 3: 2}  # the other value of metrics.good_gain


class Build(Fault):
    """Build state for another `metrics.good_gain` while records arrive.

    The command is killed at its registration, at its decision and at every step of the switch, and
    a worker of the new generation at one of them; a worker of the old one is stopped before the
    decision and wakes when all is done. ``meanwhile`` is a fault that strikes at one of the steps.
    """

    extra = Extra.OUTPUT
    alone = first = True  # it reads what the topics hold: nothing of that may be gone
    hold = (0.0, 2.0)
    wait_seconds = SESSION_SECONDS
    work_seconds = START_SECONDS + JOIN_SECONDS

    def __init__(self, meanwhile: Fault | None = None) -> None:
        self.name = f"build+{meanwhile.name}" if meanwhile else "build"
        self._meanwhile = meanwhile
        if meanwhile is not None:
            self.needs, self.may_go_back = meanwhile.needs, meanwhile.may_go_back
            self.hold = meanwhile.hold
            self.wait_seconds += meanwhile.wait_seconds

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        beside = [asyncio.create_task(work(world)) for work in (_trickle, _start_again)]
        try:
            await self._build(world, hold_seconds, rng)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _build(self, world: World, hold_seconds: float, rng: Random) -> None:
        if len(world.workers) == 1:
            world.start_worker()
            await world.all_ready()
        old = list(world.workers)
        world.good_gain = THRESHOLDS[world.good_gain]
        goal = (await layout(world)).last + 1
        await _cut_off(world, f"{_when(rng)} layout 1")
        if (await layout(world)).building is None:
            await world.cut_off("after layout 1", "build", "--yes")
        for _ in range(rng.randint(1, 2)):
            world.start_worker()
        await world.all_ready()
        for worker in old:
            world.workers.remove(worker)
        sleeper = rng.choice(old)
        sleeper.pause()
        try:
            async with asyncio.TaskGroup() as group:
                moment, seed = rng.choice((DECISION, *SWITCH)), Random(rng.random())

                def at(step: str) -> None:
                    if step == moment and self._meanwhile is not None:
                        group.create_task(self._meanwhile.strike(world, hold_seconds, seed))

                await _switch(world, goal, hold_seconds, rng, at)
        finally:
            sleeper.resume()
        for worker in old:
            await _replaced(world, worker, goal)
        await world.all_ready()


async def _switch(
    world: World, goal: int, hold_seconds: float, rng: Random, at: Callable[[str], None]
) -> None:
    """Decide, die at every later step, and repeat until the switch is complete.

    ``at`` is called before each step.
    """
    at(DECISION)
    await _cut_off(world, f"{_when(rng)} layout 1")
    step = rng.choice(("freeze", "wipe"))  # an old worker comes to neither
    world.orders.write_text(f"{_when(rng)} {step} 1 KILL")
    for step in SWITCH:
        await asyncio.sleep(hold_seconds / len(SWITCH))
        at(step)
        await _cut_off(world, f"{_when(rng)} {step} 1")
    for _ in range(RUNS):
        if _is_done(await layout(world), goal):
            break
        with suppress(CommandFailed):
            await world.command("build", "--yes")
    assert _is_done(found := await layout(world), goal), f"the switch does not end: {found}"
    world.orders.unlink(missing_ok=True)


def _is_done(found: Layout, goal: int) -> bool:
    """Whether that generation is live, and nothing is left of its predecessor."""
    live = found.in_force
    return live is not None and (live.number, live.state) == (goal, "live") and not found.to_purge


def _when(rng: Random) -> str:
    return rng.choice(("before", "after"))


async def _cut_off(world: World, place: str) -> None:
    """Run the command until it dies at that step, is done, or finds Redis unavailable."""
    with suppress(CommandFailed):
        await world.cut_off(place, "build", "--yes")


async def _replaced(world: World, worker: ObedientWorker, goal: int) -> None:
    """Wait until a worker of the previous generation has exited with the reason."""
    await world.until(
        lambda: worker.exit_code is not None, f"{worker.name} works for a state that is gone"
    )
    why = f"has been replaced by generation {goal}"
    if worker.exit_code != 2 or why not in worker.log.read_text(errors="replace"):
        world.problems.append(
            f"{worker.name} ended with {worker.exit_code}, and not since it {why}"
        )


async def layout(world: World) -> Layout:
    """The generations, as soon as Redis is available."""
    while True:
        with suppress(StoreUnavailable, StoreRefused):
            return await world.watcher.layout()
        await asyncio.sleep(TRICKLE_SECONDS)


async def _start_again(world: World) -> None:
    """Start a new worker for each that killed itself on an order."""
    while True:
        for worker in [worker for worker in world.workers if worker.exit_code == -9]:
            world.killed(worker)
            world.start_worker()
        await asyncio.sleep(TRICKLE_SECONDS)


async def _trickle(world: World) -> None:
    """Keep records arriving."""
    while True:
        world.load.trickle()
        await asyncio.sleep(TRICKLE_SECONDS)


FAULTS: Final[tuple[Fault, ...]] = (Build(), *map(Build, replicated.FAIL_OVERS))
