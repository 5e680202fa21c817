"""Replaces one generation of state by another, in steps that any worker may repeat.

1. decide   change the layout (``Layout.switched``); only the build command does this
2. freeze   prevent that a worker owns a partition of the old generation, even one that was
            suspended: a write script sees only its partition, so the layout alone fences nobody
3. fence    fence the producers that use transactional ids of the old generation
4. unmute   mark the new generation as live in the layout: its figures are shown from now on, and
            the owners of its partitions send all rows (``ownership.announce``)
5. purge    delete the old generation once all rows are sent; its partitions stay frozen

Whoever finds a switch unfinished continues it (``finish``), concurrently if need be. After step 2
nothing of the old generation can be written, after step 3 nothing of it can be produced, and
nothing of the new one is shown before both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.layout import Generation, InvalidTransition, Layout
from stream_metrics.live.ports import OutputMessage, StateStore, Superseded, Wiped, Wiping
from stream_metrics.live.worker.ownership.generations import change, find_in_use, put_back

LAYOUT_CHECK_SECONDS: Final = 5.0  # how often a worker reads the layout
SETTLE_SECONDS: Final = 2 * LAYOUT_CHECK_SECONDS
ANNOUNCED: Final = "announced"
UNSENT: Final = "unsent"

Retry = Callable[[Callable[[], Awaitable[object]]], Awaitable[object]]

log = structlog.get_logger(__name__)


class Fence(Protocol):
    """Fences producers of the output topic."""

    async def fence_producers(self, generation: Generation) -> None:
        """Fence all producers of a generation; none of their pending messages arrives."""
        ...


class NoFence:
    """A ``Fence`` for workers without an output topic."""

    async def fence_producers(self, generation: Generation) -> None:
        """Do nothing."""


def announced(generation: Generation, marks: Collection[str]) -> str:
    """The mark of a partition that has sent all its rows since its generation became live.

    ``marks`` are those that the partition has; each mark of ``unsent`` asks for the rows again.
    """
    return f"{ANNOUNCED} {generation.since_ms} {_unsent_count(marks)}"


def unsent(marks: Collection[str]) -> list[str]:
    """What a muted owner adds to the marks of a partition with a batch of rows that it drops.

    A partition that is announced has a muted owner if the store has lost that the generation is
    live, or if the owner has not heard of that. Its announcement is then no longer complete.
    """
    count = _unsent_count(marks)
    complete = any(m.startswith(ANNOUNCED) and m.endswith(f" {count}") for m in marks)
    return [f"{UNSENT} {count + 1}"] if complete else []


def not_repeated(messages: Iterable[OutputMessage], marks: Collection[str]) -> list[OutputMessage]:
    """Which messages of a muted owner no announcement repeats, so that it has to send them.

    These are the nulls for forgotten conversations in a partition that was announced: the previous
    generation, which tells the first announcement who has a row, is purged by then.
    """
    was_announced = any(mark.startswith(ANNOUNCED) for mark in marks)
    return [m for m in messages if m.value is None] if was_announced else []


def _unsent_count(marks: Collection[str]) -> int:
    return sum(mark.startswith(UNSENT) for mark in marks)


async def freeze(store: StateStore, old: Generation, by: int) -> None:
    """Freeze every partition of ``old``."""
    state = store.generation(old)
    for number in range(old.identity.count):
        await state.freeze(number, by)


async def frozen_by(store: StateStore, generation: Generation) -> list[int]:
    """By partition, the number of the generation that has frozen it; 0 if none has."""
    state = store.generation(generation)
    return [await state.frozen_by(number) for number in range(generation.identity.count)]


async def is_frozen(store: StateStore, old: Generation) -> bool:
    """Whether every partition is still frozen: the store may have lost acknowledged writes."""
    return all(await frozen_by(store, old))


async def wipe(
    store: StateStore, old: Generation, before_each: Callable[[], Awaitable[object]]
) -> None:
    """Delete all partitions of ``old``, which are frozen; this may take minutes."""
    state = store.generation(old)
    for number in range(old.identity.count):
        await before_each()
        while await state.wipe(number) != Wiped():
            pass


async def forget_purged(store: StateStore, old: Generation) -> None:
    """Delete the marks of a generation that was purged, before the layout forgets it.

    What a store that went back has brought again goes too.
    """
    state = store.generation(old)
    for number in range(old.identity.count):
        await state.freeze(number, old.number)
        while await state.wipe(number) != Wiped():
            pass
        await state.freeze(number, 0)


async def delete_all(store: StateStore, deleted: Callable[[int], None] = lambda _: None) -> None:
    """Delete every partition, then what the layout says; a worker that comes meanwhile is refused.

    A partition is frozen while it is deleted, by the number of its own generation: no other one
    takes its place. ``deleted`` is told how many conversations each step has deleted. Generations
    that are registered meanwhile are deleted, too.
    """
    done: dict[str, Generation] = {}

    def step(now: Layout) -> Layout:
        return now if any(g.mark not in done for g in now.generations) else now.emptied()

    while others := [g for g in (await change(store, step)).generations if g.mark not in done]:
        for generation in others:
            state = store.generation(generation)
            for number in range(generation.identity.count):
                await state.freeze(number, generation.number)
                while (wiped := await state.wipe(number)) != Wiped():
                    if isinstance(wiped, Wiping):
                        deleted(wiped.deleted)
            done[generation.mark] = generation
    for generation in done.values():
        for number in range(generation.identity.count):
            await store.generation(generation).freeze(number, 0)


class Announcements(NamedTuple):
    """The partitions of a generation that have not sent all of their rows, and those of them that
    never will, because their state is damaged."""

    missing: list[int]
    damaged: list[int]


async def announcements(store: StateStore, generation: Generation) -> Announcements:
    """How far the partitions of a generation have got with sending their rows."""
    state, missing, damaged = store.generation(generation), list[int](), list[int]()
    for number in range(generation.identity.count):
        try:
            marks = (await state.describe(number)).marks
            sent = announced(generation, marks) in marks
        except DamagedState:
            sent = False
            damaged.append(number)
        if not sent:
            missing.append(number)
    return Announcements(missing, damaged)


async def finish(store: StateStore, fence: Fence, settle: Callable[[], Awaitable[None]]) -> Layout:
    """Finish an unfinished switch or abandoned build; returns the layout afterwards.

    ``settle`` waits until every running worker has read the layout. Raises ``InvalidTransition`` if
    the store has lost writes meanwhile; the caller then reads the layout again.
    """
    layout = await store.layout()
    current = layout.in_force
    if current is None:
        return layout
    if current.state == "fencing":
        retired = [old for old in layout.to_purge if old.state == "retired"]
        for old in retired:
            await freeze(store, old, current.number)
            await fence.fence_producers(old)
        await settle()
        for old in retired:
            if not await is_frozen(store, old):
                raise InvalidTransition(
                    f"the store has lost that generation {old.number} was frozen"
                )
        layout = await _change_after(store, current, partial(Layout.unmuted, number=current.number))
    for old in layout.to_purge:
        if old.state == "retired" and (await announcements(store, current)).missing:
            continue
        await freeze(store, old, current.number)  # one that was given up is not yet
        await wipe(store, old, partial(_change_after, store, current, _unchanged))
        await _change_after(store, current, partial(Layout.purged, number=old.number))
    return await store.layout()


async def _change_after(
    store: StateStore, current: Generation, step: Callable[[Layout], Layout]
) -> Layout:
    """Apply ``step`` unless the switch to ``current`` has begun again, or was replaced."""

    def checked(layout: Layout) -> Layout:
        found = layout.of(current.number)
        if found is None or found.since_ms != current.since_ms:
            raise InvalidTransition(f"generation {current.number} was replaced or fences again")
        return step(layout)

    return await change(store, checked)


def _unchanged(layout: Layout) -> Layout:
    return layout


async def decide(store: StateStore, number: int, now_ms: int) -> None:
    """Replace the live generation by a build; raises ``InvalidTransition`` if that was given up.

    The layout may have lost that, so partitions are checked as well.
    """
    building = (await store.layout()).of(number)
    for partition, by in enumerate(await frozen_by(store, building) if building else []):
        if by:
            raise InvalidTransition(
                f"partition {partition} of generation {number} is frozen by generation {by}: the "
                "build was given up, and the store has lost that. Give it up again: "
                "`stream-metrics build --give-up`"
            )
    await change(store, lambda now: now.switched(number, now_ms))


async def give_up(store: StateStore, number: int) -> None:
    """Abandon a build; raises ``InvalidTransition`` if it has already replaced the live generation.

    The layout may have lost that switch, so frozen partitions are checked as well.
    """
    live = (await store.layout()).in_force
    if live is not None and number in await frozen_by(store, live):
        raise InvalidTransition(f"generation {number} is taking the place of {live.number}")
    await change(store, lambda now: now.abandoned(number))


async def roll_forward(
    store: StateStore, generation: Generation, superseded: Superseded, now_ms: int
) -> None:
    """Repeat a decision that the layout has lost, but that a frozen partition tells of.

    The partition is one of ``generation``, which a worker has found superseded: by a switch, or
    because its build was given up. Then the generation in force has frozen it.
    """

    def step(layout: Layout) -> Layout:
        old, new = layout.of(generation.number), layout.of(superseded.by)
        if old is None or old.mark != generation.mark:
            return layout  # numbers begin again once a namespace was purged
        if old.state == "building" and superseded.by < old.number:
            return layout.abandoned(old.number)
        if old.state != "live" or new is None or new.state != "building":
            return layout
        return layout.switched(superseded.by, now_ms)

    await change(store, step)


class LayoutWatcher:
    """Follows changes of the layout for a worker of one generation.

    ``muted`` is called with whether the generation is to be muted, ``now_ms`` for the time of a
    switch that is begun again. ``newest`` is the last layout that was read.
    """

    def __init__(
        self,
        store: StateStore,
        layout: Layout,
        generation: Generation,
        fence: Fence,
        rest: Callable[[], Awaitable[None]],
        muted: Callable[[bool], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self.newest = layout
        self._generation = generation
        self._fence = fence
        self._rest = rest
        self._muted = muted
        self._now_ms = now_ms

    async def look(self) -> None:
        """One look; finishes what is unfinished. Raises ``Superseded`` if the worker is to end."""
        mine = await self._see()
        if mine.in_force and (mine.state == "fencing" or self.newest.to_purge):
            try:
                await finish(self._store, self._fence, self._rest)
            except InvalidTransition as error:
                log.warning("the switch cannot be finished yet", reason=str(error))
                return  # the next call reads the layout again
            await self._see()

    async def _see(self) -> Generation:
        """Read the layout, put back what the store has lost of it, and mute or unmute."""
        self.newest = await put_back(self._store, self.newest, self._now_ms)
        mine = find_in_use(self.newest, self._generation)
        self._muted(mine.state != "live")
        return mine
