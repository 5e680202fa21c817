"""Read-only checks of stored state, for `stream-metrics check` and messages about damage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.layout import Generation, Layout
from stream_metrics.live.ports import StateStore
from stream_metrics.live.worker.ownership.build import differences, progress


@dataclass(frozen=True, slots=True)
class StoredState:
    """The existing state partitions, those being wiped, and messages about damaged ones."""

    partitions: tuple[int, ...]
    wiping: tuple[int, ...]
    damaged: tuple[str, ...]


def damage_message(damage: DamagedState) -> str:
    """Why a partition with damaged state is halted, and what to do."""
    return (
        f"its state in Redis is damaged: {damage}; restore a backup, or run "
        "`stream-metrics build --again`"
    )


async def inspect_state(store: StateStore, generation: Generation) -> StoredState:
    """Inspect the partitions of a generation in its ``store``; raises ``StoreUnavailable``."""
    begun, wiping, broken = [], [], []
    for number in range(generation.identity.count):
        try:
            state = await store.describe(number)
        except DamagedState as damage:
            broken.append(f"state partition {number} would be halted: {damage_message(damage)}")
            continue
        if state.token is not None:
            begun.append(number)
        if state.wiping:
            wiping.append(number)
    return StoredState(tuple(begun), tuple(wiping), tuple(broken))


async def build_message(store: StateStore, layout: Layout, fit: Sequence[Generation]) -> str:
    """What is being built beside the state in force, how far that is, and what workers join.

    ``fit`` are the generations that were built with a worker's settings. Empty if nothing is being
    built.
    """
    live, new = layout.in_force, layout.building
    if live is None or new is None:
        return ""
    differ = "; ".join(differences(live.identity, new.identity)) or "the same settings"
    which = f"generation {fit[0].number}" if fit else "neither"
    if len(fit) > 1:
        which += f"; if they are started by `stream-metrics worker --build`, {new.number}"
    return (
        f"generation {new.number} is being built beside generation {live.number} ({differ}); "
        f"{await progress(store, new)}. Workers with the present settings join {which}"
    )


def unfinished_message(layout: Layout) -> str:
    """What remains to do of a switch or an abandoned build; empty if nothing does."""
    live = layout.in_force
    ended = ", ".join(str(generation.number) for generation in layout.to_purge)
    if live is None or not ended:
        return ""
    return (
        f"generation {ended} has ended, and is not deleted yet. Workers of generation "
        f"{live.number} do that; without any, run `stream-metrics build` with its settings"
    )
