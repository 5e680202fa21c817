"""Moves of state partitions while the store loses writes that it had acknowledged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

import pytest

from stream_metrics.adapters.memory import MemorySnapshot, MemoryStore
from stream_metrics.ports import FORMER, OnHold, StateStore
from stream_metrics.worker.move import Move, Unmovable, WentBack, draft, held, swept
from tests.property.test_migrate import Configured
from tests.property.test_reshard import Group
from tests.unit.test_migrate import NEW
from tests.unit.test_migrate import halfway as halfway_configured
from tests.unit.test_rebuild import rebuild
from tests.unit.test_reshard import MORE, halfway

WRITES = frozenset({"claim", "write"})


class GoesBack:
    """A store that loses writes to drafts: after the last of them, all from the ``first`` on."""

    def __init__(self, store: MemoryStore, first: int, lost: int) -> None:
        self._store = store
        self._left = {"snapshot": first, "restore": first + lost}
        self._snapshot: MemorySnapshot | None = None
        self.went_back = False

    def drafts(self, mark: bytes) -> Any:
        """Drafts of the same store."""
        return _GoesBackDrafts(self, self._store.drafts(mark))

    def __getattr__(self, name: str) -> Any:
        """Any other call is the store's own."""
        return getattr(self._store, name)

    async def around(self, write: Callable[[], Awaitable[Any]]) -> Any:
        """One write to a draft."""
        if self._left["snapshot"] == 0:
            self._snapshot = self._store.snapshot()
        result = await write()
        self._left = {name: left - 1 for name, left in self._left.items()}
        if self._left["restore"] == 0:
            assert self._snapshot is not None
            self._store.restore(self._snapshot)
            self.went_back = True
        return result


class _GoesBackDrafts:
    """Its drafts."""

    def __init__(self, owner: GoesBack, drafts: StateStore) -> None:
        self._owner = owner
        self._drafts = drafts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._drafts, name)
        if name not in WRITES:
            return method
        return lambda *arguments: self._owner.around(lambda: method(*arguments))


async def migrated() -> tuple[Group, Callable[[Group], Awaitable[Any]]]:
    """A group, and the command that applies other settings to it."""

    async def migrate(group: Group) -> None:
        assert isinstance(group, Configured)
        await group.migrate(NEW)

    return await halfway_configured(), migrate


async def resharded() -> tuple[Group, Callable[[Group], Awaitable[Any]]]:
    """A group that is behind, and the command that gives it other partition counts."""
    counts: Mapping[str, int] = MORE

    async def reshard(group: Group) -> None:
        await group.reshard(dict(counts))

    return await halfway(counts, behind=True), reshard


async def rebuilt() -> tuple[Group, Callable[[Group], Awaitable[Any]]]:
    """A group, and the command that begins its state anew."""

    async def anew(group: Group) -> None:
        assert isinstance(group, Configured)
        await rebuild(group)

    return await halfway_configured(), anew


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("make", [migrated, resharded, rebuilt])
async def test_a_store_that_goes_back_while_drafts_are_built(
    make: Callable[[], Awaitable[tuple[Group, Callable[[Group], Awaitable[Any]]]]], lost: int
) -> None:
    """Wherever that is, either nothing is missing, or the command refuses, and run again it loses
    nothing."""
    group, command = await make()
    await command(group)
    expected = await group.shown()
    for first in count():  # until the command writes less
        group, command = await make()
        store = group.store
        assert isinstance(store, MemoryStore)
        unsteady = GoesBack(store, first, lost)
        group.store = unsteady
        try:
            await command(group)
        except (Unmovable, OnHold):
            group.store = store
            await command(group)
        group.store = store
        assert await group.shown() == expected, first
        if not unsteady.went_back:
            break


async def test_a_draft_that_went_back_is_told_of() -> None:
    """The message says what has happened and what to do, and workers may start as before."""
    group, command = await migrated()
    store = group.store
    assert isinstance(store, MemoryStore)
    group.store = GoesBack(store, 1, 1)

    with pytest.raises(
        WentBack, match=r"lost acknowledged writes .* state partition 0.* run this command again"
    ):
        await command(group)

    assert await store.held_by() is None


async def test_a_run_that_ends_late_takes_nothing_of_the_next() -> None:
    """Its sweep is refused while another run builds, whose partitions are all there in the end."""
    group, command = await rebuilt()
    store = group.store
    assert isinstance(store, MemoryStore)
    late = await held(store, "rebuild")
    inner = store.switch

    async def switch(*arguments: Any) -> None:
        with pytest.raises(OnHold, match="rebuild"):
            await swept(store, late)
        await inner(*arguments)

    store.switch = switch  # type: ignore[assignment, method-assign]
    await command(group)

    assert await store.partitions() == [0, 1]


async def test_a_run_that_drafts_late_takes_nothing_of_the_next() -> None:
    """They are refused while another run builds, whose partitions are all there in the end."""
    group, command = await rebuilt()
    store = group.store
    assert isinstance(store, MemoryStore)
    late = await held(store, "rebuild")
    move = Move(group.identity, (), {0: {}, 1: {}}, lambda _, home: home)
    inner = store.switch

    async def switch(*arguments: Any) -> None:
        with pytest.raises(OnHold, match="rebuild"):
            await draft(store, late, move, group.options, lambda _: None)
        await inner(*arguments)

    store.switch = switch  # type: ignore[assignment, method-assign]
    await command(group)

    assert (await store.partitions(), await store.unfinished()) == ([0, 1], [])


async def test_the_count_of_a_drafts_writes_stays() -> None:
    """After a move it is among the positions, so that what is lost later is noticed likewise."""
    group, command = await migrated()

    await command(group)

    for number in await group.store.partitions():
        assert (await group.store.describe(number)).positions[FORMER].offset > 1
