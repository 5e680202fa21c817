"""Faults of the network between workers and servers."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final, Literal

from tests.campaign.faults.fault import ANY, Fault, Need
from tests.campaign.faults.workers import JOIN_SECONDS, SESSION_SECONDS

if TYPE_CHECKING:
    from tests.campaign.proxy import Proxy
    from tests.campaign.world import World


class Broken(Fault):
    """All connections are reset and refused (``cut``), or open but silent (``stall``)."""

    hold = (1.0, 60.0)

    def __init__(self, to: Literal["redis", "kafka"], mode: Literal["cut", "stall"]) -> None:
        self.name = f"{to}_{mode}"
        self.needs = Need.PLAIN if to == "redis" else ANY
        # Redis: the call in flight and the longest pause. Kafka: the group may have given the
        # partitions away meanwhile, to a member that is as cut off and has to be given up too.
        self.wait_seconds = 4.0 if to == "redis" else SESSION_SECONDS
        self.work_seconds = 1.0 if to == "redis" else 2 * JOIN_SECONDS
        self._to, self._mode = to, mode

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        await self._hold(world, hold_seconds, None)

    async def _hold(self, world: World, hold_seconds: float, pid: int | None) -> None:
        proxies = self._proxies(world)
        for proxy in proxies:
            proxy.set(self._mode, pid)
        try:
            await asyncio.sleep(hold_seconds)
        finally:
            for proxy in proxies:
                proxy.set("open")

    def _proxies(self, world: World) -> list[Proxy]:
        return [world.plain_redis.proxy] if self._to == "redis" else world.brokers.proxies


class OneBroken(Broken):
    """The same for one of several workers, which may still reach the other server."""

    def __init__(self, to: Literal["redis", "kafka"], mode: Literal["cut", "stall"]) -> None:
        super().__init__(to, mode)
        self.name = f"one_{self.name}"

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        if len(world.workers) == 1:
            world.start_worker()
            await world.all_ready()
        await self._hold(world, hold_seconds, rng.choice(world.workers).pid)


FAULTS: Final[tuple[Fault, ...]] = (
    Broken("redis", "cut"),
    Broken("redis", "stall"),
    Broken("kafka", "cut"),
    Broken("kafka", "stall"),
    OneBroken("redis", "cut"),
    OneBroken("redis", "stall"),
    OneBroken("kafka", "cut"),
    OneBroken("kafka", "stall"),
)
