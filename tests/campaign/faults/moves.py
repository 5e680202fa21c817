"""Faults of commands that replace the state of a stopped group: killed midway, and run again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

from tests.campaign.faults.fault import Fault
from tests.campaign.faults.upgrade import other_schema
from tests.campaign.faults.workers import JOIN_SECONDS, START_SECONDS
from tests.services.live import PARTITIONS

if TYPE_CHECKING:
    from tests.campaign.world import World

UNREAD_SHARE: Final = 0.03  # of the log, to come in while no worker runs
# Places by the names of the launcher: each is one that the command comes to.
LATER: Final = ("before switch 1", "after switch 1", "before sweep 2", "before release 1")


class _Move(Fault):
    """All workers are told to end; a command is killed twice and then run to its end, while events
    come in; then as many workers begin as there were.

    The first time it is killed at one of ``drafting``, the second time right before or after the
    switch, or while it deletes what is left over.
    """

    hold = (0.0, 2.0)
    work_seconds = START_SECONDS + JOIN_SECONDS
    drafting: ClassVar[Sequence[str]]

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        count = len(world.workers)
        for worker in list(world.workers):
            await world.retire(worker)
        self.prepare(world)
        load = world.load
        load.open(load.sent / len(load.records) + UNREAD_SHARE)
        for places in (self.drafting, LATER):
            await world.cut_off(rng.choice(places), self.name, "--yes")
            await asyncio.sleep(hold_seconds / 2)
        await world.command(self.name, "--yes")
        await self.check(world)
        await world.until(lambda: world.load.at_limit, "the producer does not get on")
        world.start_workers(count)

    def prepare(self, world: World) -> None:
        """Set the world to what is asked for."""

    async def check(self, world: World) -> None:
        """Raise ``AssertionError`` unless the command has done it."""


class Migrate(_Move):
    """All state is written anew by another schema; offsets stay where they are."""

    name = "migrate"
    drafting = ("after hold 1", *(f"{when} draft {n}" for when in ("before", "after")
                                  for n in (1, 2, 4, 7)))  # fmt: skip

    def prepare(self, world: World) -> None:
        world.write_schema = other_schema(world.write_schema)

    async def check(self, world: World) -> None:
        found = await world.watcher.keys_by_schema()
        assert found.keys() == {world.write_schema}, f"stored by schemas {sorted(found)}"


class Rebuild(_Move):
    """State is wiped, and all topics are read again from their start."""

    name = "rebuild"
    alone = True
    first = True
    may_go_back = True
    drafting = ("after hold 1", *(f"{when} claim {number + 1}" for when in ("before", "after")
                                  for number in range(PARTITIONS)))  # fmt: skip

    def prepare(self, world: World) -> None:
        world.history.drop(set(range(PARTITIONS)))

    async def check(self, world: World) -> None:
        found = await world.watcher.keys_by_schema()
        assert not found, f"{sum(map(len, found.values()))} conversations are left"


FAULTS: Final[tuple[Fault, ...]] = (Migrate(), Rebuild())
