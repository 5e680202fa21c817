"""An export of state that is replaced meanwhile: all of one state, or an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.property.test_migrate import Configured
from tests.unit.test_migrate import NEW, halfway
from tests.unit.test_rebuild import rebuild
from tests.unit.test_reshard import HALF, TRAFFIC

from stream_metrics.ports import Wiped
from stream_metrics.worker.export import Replaced, export_windows, rows_of

Change = Callable[[Configured], Awaitable[None]]


async def migrate(group: Configured) -> None:
    """Other settings."""
    await group.migrate(NEW)


async def reshard(group: Configured) -> None:
    """Another partition count."""
    await group.reshard({"events": 3})


async def purge(group: Configured) -> None:
    """Nothing is left."""
    for number in (0, 1):
        while await group.store.wipe(number) != Wiped():
            pass


async def exported(group: Configured, change: Change) -> int:
    """How many conversations are read if the change comes after the third."""
    engine = group.options.engine
    found = await export_windows(group.store, group.options.windows)
    names = set()
    async for _, rows in rows_of(group.store, engine, "last", found.states):
        names |= {row["conversation_id"] for row in rows}
        if len(names) == 3:
            await change(group)
    return len(names)


@pytest.mark.parametrize("change", [migrate, reshard, rebuild, purge])
async def test_an_export_of_two_states_is_an_error(change: Change) -> None:
    """Wherever the state is replaced, half of what was there is not taken for all of it."""
    group = await halfway()

    with pytest.raises(Replaced, match="Run the command again"):
        await exported(group, change)


async def test_workers_that_write_meanwhile_do_no_harm() -> None:
    """All conversations that were there when it began are read."""

    async def read_on(group: Configured) -> None:
        group.send(TRAFFIC[HALF:])
        await group.read()

    group = await halfway()
    before = len({row["conversation_id"] for row in (await group.export()).rows})

    assert await exported(group, read_on) >= before
