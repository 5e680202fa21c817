"""Two faults at once: a server is unavailable while workers come and go."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from tests.campaign.faults import kafka, network, redis, upgrade, workers
from tests.campaign.faults.fault import ANY, Fault

if TYPE_CHECKING:
    from tests.campaign.world import World

LONGEST_SECONDS: Final = 20.0


class Both(Fault):
    """A fault of workers and one of a server, which lasts at least as long."""

    def __init__(self, first: Fault, second: Fault) -> None:
        self.name = f"{first.name}+{second.name}"
        self.needs = second.needs if first.needs is ANY else first.needs
        longest = min(LONGEST_SECONDS, max(first.hold[1], second.hold[1]))
        self.hold = (max(first.hold[0], second.hold[0]), longest)
        self.wait_seconds = first.wait_seconds + second.wait_seconds
        self.work_seconds = first.work_seconds + second.work_seconds
        self.may_go_back = first.may_go_back or second.may_go_back
        self._parts = (first, second)

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        first, second = self._parts
        seeds = [Random(rng.random()) for _ in self._parts]
        async with asyncio.TaskGroup() as group:
            # It may hold several times, such as once for each worker.
            shorter = min(hold_seconds, first.hold[1])
            group.create_task(first.strike(world, shorter, seeds[0]))
            group.create_task(second.strike(world, hold_seconds, seeds[1]))


FAULTS: Final[tuple[Fault, ...]] = (
    Both(workers.RollingRestart(), redis.Kill()),
    Both(workers.RollingRestart(), redis.Paused()),
    Both(workers.RollingRestart(), network.Broken("kafka", "stall")),
    Both(upgrade.RollingUpgrade(), redis.RollBack()),
    Both(workers.Kill(), redis.RollBack()),
    Both(workers.KillAtStep("after", "write", 4), kafka.Restart()),
    Both(workers.Zombie(), redis.RollBack()),
    Both(workers.Zombie(), redis.Full()),
    Both(workers.LateClaimant(), redis.Slow()),
    Both(workers.Scale(), network.Broken("redis", "cut")),
    Both(workers.Scale(), network.Broken("kafka", "cut")),
)
