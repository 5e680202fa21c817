"""Clock jumps of the workers or of Redis, ahead or back, which are corrected later."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from tests.campaign.faults.fault import ANY, Extra, Fault, Need
from tests.campaign.watch import now

if TYPE_CHECKING:
    from tests.campaign.clock import Clock
    from tests.campaign.world import World

HOUR: Final = 3_600
JUMPS: Final = (90, 2 * HOUR, 36 * HOUR, 240 * HOUR)  # conversations expire after 24 hours
LAYOUT_CHECK_SECONDS: Final = (
    7.0  # workers look at the clock of Redis, and for what expires, every five
)


class Jump(Fault):
    """A clock jumps while workers read and expire conversations, and is then corrected."""

    hold = (1.0, 3.0)
    wait_seconds = 2.0

    def __init__(self, whose: str, direction: str) -> None:
        self.name = f"{whose}_clock_{direction}"
        self.needs = Need.PLAIN if whose == "redis" else ANY
        self.extra = Extra.REDIS_CLOCK if whose == "redis" else None
        self.quick = whose != "redis"
        self._sign = 1 if direction == "ahead" else -1

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        clock = self._clock(world)
        clock.set(self._sign * rng.choice(JUMPS))
        try:
            await asyncio.sleep(hold_seconds)
            await world.until(lambda: world.load.at_limit, "the producer does not get on")
            ends = await world.ends()
            await world.until(
                lambda: not world.watcher.looks[-1].behind(ends), "the state does not get on"
            )
            since = now()
            await world.until(lambda: now() > since + LAYOUT_CHECK_SECONDS, "time stands still")
        finally:
            clock.set(0)

    def _clock(self, world: World) -> Clock:
        return world.plain_redis.server.clock if self.extra else world.clock


FAULTS: Final[tuple[Fault, ...]] = (
    Jump("worker", "ahead"),
    Jump("worker", "back"),
    Jump("redis", "ahead"),
    Jump("redis", "back"),
)
