"""What generations of state there are, and which of them a worker or command is about."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress

from stream_metrics.live.layout import Generation, Identity, Layout
from stream_metrics.live.ports import StateStore, Superseded
from stream_metrics.live.worker.identity import OtherIdentity, check_identity

Step = Callable[[Layout], Layout]


async def change(store: StateStore, step: Step) -> Layout:
    """Apply a step to the layout, whatever others change meanwhile; the layout after it.

    Raises what ``step`` raises. A step that is repeated because an answer was lost must find that
    it is done.
    """
    while True:
        before = await store.layout()
        after = step(before)
        if after is before:
            return before
        stored = await store.change_layout(after)
        if stored is not None:
            return stored


async def state_in_force(store: StateStore) -> StateStore:
    """The partitions of the generation in force; none where there is no state yet."""
    found = (await store.layout()).in_force
    return store if found is None else store.generation(found)


def new_mark() -> str:
    """What tells a generation from every other one, also from one that a store has forgotten."""
    return secrets.token_hex(4)


def fitting(layout: Layout, ours: Callable[[Identity], Identity]) -> list[Generation]:
    """The generations that a worker can join: the one in force, and the one that is being built.

    ``ours`` is told what a generation was built with, from which settings are taken that nobody
    has set, and gives what we would build.
    """
    found = []
    for generation in (layout.in_force, layout.building):
        with suppress(OtherIdentity):
            if generation is not None:
                check_identity(generation.identity, ours(generation.identity))
                found.append(generation)
    return found


def joined(
    layout: Layout, ours: Callable[[Identity], Identity], *, build: bool = False
) -> Generation | None:
    """The generation that a worker, or a command, is about; None where there is no state yet.

    That is the one in force if it is what we would build, else the one that is being built; with
    ``build`` the other way round, for where both are. For ``ours`` see ``fitting``. Raises
    ``OtherIdentity`` if it is neither.
    """
    if found := fitting(layout, ours):
        return found[-1 if build else 0]
    named = (layout.building if build else None) or layout.in_force
    if named is not None:
        check_identity(named.identity, ours(named.identity))  # it says what differs
    return None


async def begin(store: StateStore, identity: Identity, now_ms: int) -> Generation:
    """The generation that is in force; the first one, for ``identity``, where there is none."""
    mark = new_mark()

    def step(layout: Layout) -> Layout:
        return layout if layout.in_force is not None else layout.begun(identity, mark, now_ms)

    found = (await change(store, step)).in_force
    assert found is not None
    return found


async def admit(
    store: StateStore, kind: str, names: Sequence[str], configured: Sequence[str], limit: int
) -> frozenset[str]:
    """Who has series of its own once ``names`` have asked: ``limit`` in all, whoever came first."""
    layout = await change(store, lambda now: now.admitted(kind, names, configured, limit))
    return layout.chosen(kind, configured, limit)


async def check_in_use(store: StateStore, generation: Generation) -> None:
    """Raise ``Superseded`` if a generation has ended, or the layout does not have it any more."""
    find_in_use(await store.layout(), generation)


def find_in_use(layout: Layout, generation: Generation) -> Generation:
    """A generation as the layout has it; raises ``Superseded`` if it has ended, or is not there."""
    found, live = layout.of(generation.number), layout.in_force
    if found is not None and found.mark == generation.mark and not found.ended:
        return found
    # Numbers begin again once a namespace was purged.
    purged = layout.last < generation.number if found is None else found.mark != generation.mark
    raise Superseded(generation.number, 0 if purged or live is None else live.number)
