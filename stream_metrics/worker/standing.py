"""What a worker would say of the state that a store holds, without changing any of it."""

from __future__ import annotations

from dataclasses import dataclass

from stream_metrics.engine.state import DamagedState
from stream_metrics.layout import Generation
from stream_metrics.ports import StateStore


@dataclass(frozen=True, slots=True)
class Standing:
    """Which state partitions there are, which are being wiped, and which cannot be read."""

    partitions: tuple[int, ...]
    wiping: tuple[int, ...]
    damaged: tuple[str, ...]


def damaged(damage: DamagedState) -> str:
    """Why a partition is halted whose state cannot be read."""
    return (
        f"its state in Redis is damaged: {damage}; restore a backup, or run `stream-metrics build`"
    )


async def standing(store: StateStore, generation: Generation) -> Standing:
    """What there is of a generation, in ``store``, which holds it; raises ``StoreUnavailable``."""
    begun, wiping, broken = [], [], []
    for number in range(generation.identity.count):
        try:
            state = await store.describe(number)
        except DamagedState as damage:
            broken.append(f"state partition {number} would be halted: {damaged(damage)}")
            continue
        if state.token is not None:
            begun.append(number)
        if state.wiping:
            wiping.append(number)
    return Standing(tuple(begun), tuple(wiping), tuple(broken))
