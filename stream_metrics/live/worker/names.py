"""Admits the names that have their own series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.engine.config import MAX_ROUTES
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.windows import Names, routes_of
from stream_metrics.live.ports import StateStore
from stream_metrics.live.worker.options import PartitionOptions
from stream_metrics.live.worker.ownership.generations import admit


class SharedNames:
    """This worker's copy of the registries of agents (or releases) and routes."""

    def __init__(self, store: StateStore, options: PartitionOptions) -> None:
        self._store = store
        self._dimension = f"{options.engine.dimension}s"
        self._configured = {self._dimension: options.agents, "routes": options.routes}
        self._limits = {self._dimension: options.engine.max_names, "routes": MAX_ROUTES}
        self._known = {kind: frozenset(names) for kind, names in self._configured.items()}

    async def names(self, cells: Sequence[tuple[int, Cell]]) -> Names:
        """Admit the names in ``cells``; returns all names that have their own series."""
        agents = {cell.agent for _, cell in cells}
        routes = routes_of(cell for _, cell in cells)
        return Names(
            await self._admit(self._dimension, agents), await self._admit("routes", routes)
        )

    async def _admit(self, kind: str, names: set[str]) -> frozenset[str]:
        known = self._known[kind]
        new = names - known
        if new and len(known) < self._limits[kind]:
            configured, limit = self._configured[kind], self._limits[kind]
            known = await admit(self._store, kind, sorted(new), configured, limit)
            self._known[kind] = known
        return known

    def forget(self) -> None:
        """Drop the copy, because the store may have lost writes."""
        self._known = {kind: frozenset(names) for kind, names in self._configured.items()}


def note_unnamed(cells: Iterable[tuple[int, Cell]], names: Names, seen: Observations) -> None:
    """Count cells that are summed as ``other`` because the limit of names is reached."""
    for sign, cell in cells:
        if sign > 0 and names.agent(cell.agent) != cell.agent:
            seen.counts["agents_beyond_limit"] += 1
        if sign > 0 and not cell.routes <= names.routes:
            seen.counts["routes_beyond_limit"] += 1
