"""What a worker would say of the state that a store holds, without changing any of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stream_metrics.engine.state import DamagedState
from stream_metrics.ports import Identity, OnHold, StateStore
from stream_metrics.worker.identity import OtherIdentity, check_identity


@dataclass(frozen=True, slots=True)
class Standing:
    """Which state partitions there are, which are being wiped, and why workers would fail.

    ``schemas`` are those that their identities name.
    """

    partitions: tuple[int, ...]
    unfinished: tuple[int, ...]
    schemas: tuple[int, ...]
    obstacles: tuple[str, ...]


def damaged(damage: DamagedState) -> str:
    """Why a partition is halted whose state cannot be read."""
    return (
        f"its state in Redis is damaged: {damage}; stop the workers, then restore a backup or run "
        "`stream-metrics rebuild`"
    )


async def standing(store: StateStore, ours: Identity, counts: Mapping[str, int] | None) -> Standing:
    """What stands there for workers that would build ``ours`` over topics with these ``counts``.

    Without ``counts`` they are taken for those that the state was built for. Of partitions that
    belong to others the first is told, as a worker does. Raises ``StoreUnavailable``, and
    ``DamagedState`` where nothing can be told of any partition.
    """
    numbers = await store.partitions()
    held_by = await store.held_by()
    schemas = set[int]()
    others, broken = [], []
    for number in numbers:
        try:
            stored = (await store.describe(number)).identity
        except DamagedState as damage:
            broken.append(f"state partition {number} would be halted: {damaged(damage)}")
            continue
        if stored is None:
            continue
        schemas.add(stored.schema_version)
        try:
            check_identity(stored, replace(ours, partition_counts=counts or {}), number)
        except OtherIdentity as other:
            others.append(str(other))
    return Standing(
        partitions=tuple(numbers),
        unfinished=tuple(await store.unfinished()),
        schemas=tuple(sorted(schemas)),
        obstacles=(*([] if held_by is None else [str(OnHold(held_by))]), *others[:1], *broken),
    )
