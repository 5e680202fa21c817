"""Faults of workers: killed, stopped, replaced."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from tests.campaign.faults.fault import Extra, Fault
from tests.services.live import PARTITIONS

if TYPE_CHECKING:
    from tests.campaign.world import ObedientWorker, World

START_SECONDS: Final = 4.0  # from the start of a process on a busy machine to its JoinGroup
SESSION_SECONDS: Final = 6.0  # until the group removes a silent worker
JOIN_SECONDS: Final = 4.0  # members notice a rebalance at a heartbeat, join and take over


# The steps of a batch, each with the maximum number of passes before the worker dies there.
STEPS: Final = (
    ("load", 4), ("step", 60), ("dead", 1), ("output", 3), ("write", 4), ("commit", 2),
    ("export", 8),
)  # fmt: skip


class Kill(Fault):
    """SIGKILL at a random moment, and a new process a little later."""

    name = "worker_kill"
    hold = (0.0, 4.0)
    wait_seconds = SESSION_SECONDS
    work_seconds = START_SECONDS + JOIN_SECONDS
    quick = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        world.kill(rng.choice(world.workers))
        await asyncio.sleep(hold_seconds)
        world.start_worker()


class KillAtStep(Fault):
    """A worker sends itself SIGKILL right before or after a step of a batch."""

    hold = (0.0, 1.0)
    wait_seconds = SESSION_SECONDS
    work_seconds = START_SECONDS + JOIN_SECONDS
    quick = True

    def __init__(self, when: str, step: str, most: int) -> None:
        self.name = f"kill_{when}_{step}"
        if step == "output":
            self.extra, self.alone, self.quick = Extra.OUTPUT, True, False
        self._place = f"{when} {step}"
        self._most = most

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        victim = await obeyed(world, f"{self._place} {rng.randint(1, self._most)} KILL")
        world.killed(victim)
        await asyncio.sleep(hold_seconds)
        world.start_worker()


class KillAtClaim(Fault):
    """A worker sends itself SIGKILL right before or after it takes a partition over."""

    hold = (0.0, 1.0)
    wait_seconds = SESSION_SECONDS
    work_seconds = START_SECONDS + JOIN_SECONDS
    quick = True

    def __init__(self, when: str) -> None:
        self.name = f"kill_{when}_claim"
        self._when = when

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        if len(world.workers) == 4:
            await world.retire(rng.choice(world.workers))
        share = PARTITIONS // (len(world.workers) + 1)  # what the new one is given, at least
        claim = min(rng.randint(1, 2), share)
        world.orders.write_text(f"{self._when} claim {claim} KILL")
        world.start_worker()
        world.killed(await dead(world, "a claim"))
        await asyncio.sleep(hold_seconds)
        if not world.workers:
            world.start_worker()


class Zombie(Fault):
    """SIGSTOP for longer than the session: another worker takes over, then the first resumes."""

    name = "zombie"
    hold = (SESSION_SECONDS + 2, SESSION_SECONDS + 4)
    work_seconds = JOIN_SECONDS
    quick = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        if len(world.workers) == 1:
            world.start_worker()
            await world.all_ready()
        victim = rng.choice(world.workers)
        before = world.watcher.owners
        victim.pause()
        try:
            await asyncio.sleep(hold_seconds)
            await world.until(
                lambda: world.watcher.owners > before, "nobody took over from the stopped worker"
            )
        finally:
            victim.resume()


class LateClaimant(Fault):
    """A worker that is stopped right before it writes its token, until another has written one."""

    name = "late_claimant"
    hold = (SESSION_SECONDS + 2, SESSION_SECONDS + 4)
    work_seconds = JOIN_SECONDS
    quick = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        if len(world.workers) == 4:
            await world.retire(rng.choice(world.workers))
        while not world.workers:
            world.start_worker()
        world.orders.write_text("before claim 1 STOP")
        world.start_worker()
        victim = await stopped(world)
        try:
            before = world.watcher.owners
            await asyncio.sleep(hold_seconds)
            await world.until(
                lambda: world.watcher.owners > before, "nobody took over from the late claimant"
            )
        finally:
            victim.resume()


class Scale(Fault):
    """One worker, then four, then two."""

    name = "scale"
    hold = (2.0, 6.0)
    work_seconds = 2 * JOIN_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        while len(world.workers) > 1:
            await world.retire(rng.choice(world.workers))
        while len(world.workers) < 4:
            world.start_worker()
        await world.all_ready()
        await asyncio.sleep(hold_seconds)
        while len(world.workers) > 2:
            await world.retire(rng.choice(world.workers))


class RollingRestart(Fault):
    """Each worker in turn is stopped and replaced by a new one."""

    name = "rolling_restart"
    hold = (0.0, 1.0)
    work_seconds = START_SECONDS + JOIN_SECONDS
    quick = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        for worker in list(world.workers):
            await world.retire(worker)
            world.start_worker()
            await world.all_ready()
            await asyncio.sleep(hold_seconds)


async def obeyed(world: World, order: str) -> ObedientWorker:
    """Give the order, and return the worker that died by it."""
    world.orders.write_text(order)
    return await dead(world, order)


async def dead(world: World, place: str) -> ObedientWorker:
    """The worker that killed itself."""

    def found() -> bool:
        world.load.trickle()
        return any(worker.exit_code == -9 for worker in world.workers)

    await world.until(found, f"no worker came to: {place}")
    return next(worker for worker in world.workers if worker.exit_code == -9)


async def stopped(world: World) -> ObedientWorker:
    """The worker that stopped itself."""
    await world.until(
        lambda: any(worker.stopped for worker in world.workers), "no worker has stopped itself"
    )
    return next(worker for worker in world.workers if worker.stopped)


FAULTS: Final[tuple[Fault, ...]] = (
    Kill(),
    *(KillAtStep(when, step, most) for step, most in STEPS for when in ("before", "after")),
    KillAtClaim("before"),
    KillAtClaim("after"),
    Zombie(),
    LateClaimant(),
    Scale(),
    RollingRestart(),
)
