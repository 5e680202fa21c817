"""Reads and changes the layout, and chooses the generation that a worker or command uses."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from stream_metrics.live.layout import NOTHING, Generation, Identity, Layout
from stream_metrics.live.ports import StateStore, StoreUnavailable, Superseded, Wiping
from stream_metrics.live.worker.ownership.identity import OtherIdentity, check_identity
from stream_metrics.live.worker.retry import Retry

Step = Callable[[Layout], Layout]


async def change(store: StateStore, step: Step) -> Layout:
    """Apply ``step`` to the layout by compare-and-set; returns the layout afterwards.

    ``step`` is repeated after a concurrent change and may have been applied already if a reply was
    lost, so it must be idempotent. Its exceptions propagate.
    """
    while True:
        before = await store.layout()
        after = step(before)
        if after is before:
            return before
        stored = await store.change_layout(after)
        if stored is not None:
            return stored


async def put_back(store: StateStore, known: Layout, now_ms: Callable[[], int]) -> Layout:
    """The layout, after what the store has lost of ``known`` is put back."""
    return await change(store, lambda stored: known.put_back(stored, now_ms()))


async def state_in_force(store: StateStore) -> StateStore:
    """The store of the generation in force; without partitions if there is no state yet."""
    generation = (await store.layout()).in_force
    return store if generation is None else store.generation(generation)


def new_mark() -> str:
    """A random mark that distinguishes a generation from others that had the same number."""
    return secrets.token_hex(4)


def matching_generations(layout: Layout, ours: Callable[[Identity], Identity]) -> list[Generation]:
    """The generations that a worker can join: the one in force, and the one that is being built.

    ``ours`` returns the identity that the worker's settings give; it is called with the
    generation's identity, which supplies the settings that are not configured.
    """
    matching = []
    for generation in (layout.in_force, layout.building):
        with suppress(OtherIdentity):
            if generation is not None:
                check_identity(generation.identity, ours(generation.identity))
                matching.append(generation)
    return matching


def generation_to_join(
    layout: Layout, ours: Callable[[Identity], Identity], *, build: bool = False
) -> Generation | None:
    """The generation that a worker or command joins; None if there is no state yet.

    It is the generation in force if its identity matches, else the one that is being built. With
    ``build``, the one that is being built is preferred. For ``ours`` see ``matching_generations``.
    Raises ``OtherIdentity`` if neither matches.
    """
    if matching := matching_generations(layout, ours):
        return matching[-1 if build else 0]
    named = (layout.building if build else None) or layout.in_force
    if named is not None:
        check_identity(named.identity, ours(named.identity))  # raises, and says what differs
    return None


async def begin(store: StateStore, identity: Identity, now_ms: int) -> Generation:
    """The generation in force; creates the first one, with ``identity``, if there is none."""
    mark = new_mark()

    def step(layout: Layout) -> Layout:
        _need_generations(layout)
        return layout if layout.in_force is not None else layout.begun(identity, mark, now_ms)

    generation = (await change(store, step)).in_force
    assert generation is not None
    return generation


async def join(
    store: StateStore,
    ours: Callable[[Identity], Identity],
    first: Callable[[], Awaitable[Identity]],
    schema: int,
    now_ms: Callable[[], int],
    retry: Retry,
    *,
    build: bool = False,
) -> tuple[Generation, Layout]:
    """The generation that a worker joins, which it may then write in ``schema``, and the layout.

    See ``generation_to_join`` for the choice, ``ours`` and ``build``. If there is no state yet,
    creates the first generation, with the identity that ``first`` returns. Chooses again if the
    generation ends or is purged meanwhile, and puts back what the store loses meanwhile.
    """
    newest = NOTHING
    while True:
        newest = await retry(partial(_layout_to_join, store, newest, now_ms))
        generation = generation_to_join(newest, ours, build=build)
        if generation is None:
            identity = await first()
            await retry(partial(begin, store, identity, now_ms()))
            continue  # another worker may have been quicker, with other settings
        try:
            await retry(partial(allow_schema, store, generation, schema))
            newest = await retry(partial(_layout_to_join, store, newest, now_ms))
            return find_in_use(newest, generation), newest
        except Superseded:
            continue


async def _layout_to_join(store: StateStore, known: Layout, now_ms: Callable[[], int]) -> Layout:
    """See ``put_back``; waits for other workers if they have admitted names since it was lost."""
    layout = await put_back(store, known, now_ms)
    _need_generations(layout)
    return layout


def _need_generations(layout: Layout) -> None:
    """Raise ``StoreUnavailable`` if the store has lost the generations, but not all else."""
    if layout.version and layout.is_lost:
        raise StoreUnavailable(
            "the store has lost the list of the generations of state, which a running worker will "
            "put back. If none is running, let the workers begin anew: `stream-metrics purge`"
        )


async def allow_schema(store: StateStore, generation: Generation, schema: int) -> Layout:
    """Allow a generation to be written in a later schema; raises as ``find_in_use`` does."""

    def step(layout: Layout) -> Layout:
        find_in_use(layout, generation)
        return layout.with_schema(generation.number, schema)

    return await change(store, step)


async def admit(
    store: StateStore, kind: str, names: Sequence[str], configured: Sequence[str], limit: int
) -> frozenset[str]:
    """Admit ``names`` until there are ``limit``; returns all names that have their own series."""
    layout = await change(store, lambda now: now.admitted(kind, names, configured, limit))
    return layout.chosen(kind, configured, limit)


async def check_in_use(store: StateStore, generation: Generation) -> None:
    """Raise ``Superseded`` if a generation has ended or was deleted.

    Raises ``StoreUnavailable`` if the store has lost the layout, or went back to one from before
    the generation. A ``LayoutWatcher`` then restores it, or ends the worker.
    """
    layout = await store.layout()
    if layout.last < generation.number and not layout.is_emptied:
        raise StoreUnavailable(
            f"the store has lost the entry of generation {generation.number} of the state, "
            "which a worker will restore"
        )
    find_in_use(layout, generation)


async def check_claimed(
    store: StateStore, generation: Generation, partition: int, token: bytes, *, begun: bool
) -> None:
    """What ``StateStore.claim`` does after it has claimed a partition that nothing was written to.

    Another claim may have begun the partition, in vain or with a reply that was lost. Raises as
    ``check_in_use`` does; this deletes a partition of a generation that has ended, and one that was
    ``begun`` by this claim.
    """
    try:
        await check_in_use(store, generation)
    except (StoreUnavailable, Superseded) as error:
        if begun or isinstance(error, Superseded):
            while await store.wipe(partition, token) == Wiping():
                pass
        raise


def find_in_use(layout: Layout, generation: Generation) -> Generation:
    """The generation in the layout; raises ``Superseded`` if it has ended or is missing."""
    held, live = layout.of(generation.number), layout.in_force
    if held is not None and held.mark == generation.mark and not held.ended:
        return held
    # Numbers begin again once a namespace was purged.
    purged = layout.last < generation.number if held is None else held.mark != generation.mark
    raise Superseded(generation.number, 0 if purged or live is None else live.number)
