"""Faults of the stored format: a rolling upgrade between two schemas, there or back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

from stream_metrics.core.engine.codec import SCHEMAS
from stream_metrics.live.ports import ConversationKey, StoreRefused, StoreUnavailable
from tests.campaign.faults.fault import Fault
from tests.campaign.faults.workers import JOIN_SECONDS, START_SECONDS

if TYPE_CHECKING:
    from tests.campaign.world import World


class RollingUpgrade(Fault):
    """Each worker in turn is replaced by one that writes another schema.

    The later schema after the earlier one; where it strikes again, the other way round. Before the
    first worker goes, a conversation is stored by the schema that was; before the second one goes,
    one by the new schema, while workers of both kinds share the group.
    """

    name = "rolling_upgrade"
    hold = (4.0, 10.0)
    work_seconds = START_SECONDS + JOIN_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        if len(world.workers) == 1:
            world.start_worker()
            await world.all_ready()
        old, new = world.write_schema, other_schema(world.write_schema)
        before = await stored_by(world, old)
        known = before.get(new, set())
        world.write_schema = new
        replaced = list(world.workers)
        for worker in replaced:
            await world.retire(worker)
            world.start_worker()
            await world.all_ready()
            if worker is replaced[0]:
                await stored_by(world, new, known)
            await asyncio.sleep(hold_seconds / len(replaced))


def other_schema(schema: int) -> int:
    """The other of the latest two schemas."""
    before, latest = SCHEMAS[-2:]
    return before if schema == latest else latest


async def stored_by(
    world: World, schema: int, beside: set[ConversationKey] | None = None
) -> dict[int, set[ConversationKey]]:
    """Wait for a conversation stored by that schema and not among those; all that Redis has."""
    found: dict[int, set[ConversationKey]] = {}

    async def there() -> bool:
        nonlocal found
        world.load.trickle()
        with suppress(StoreUnavailable, StoreRefused):
            found = await world.watcher.keys_by_schema()
        return bool(found.get(schema, set()) - (beside or set()))

    await world.until(there, f"no conversation was stored by schema {schema}: the round is vacuous")
    return found


FAULTS: Final[tuple[Fault, ...]] = (RollingUpgrade(),)
