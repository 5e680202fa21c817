"""The project's figures for the workload, which its peers must reproduce."""

from __future__ import annotations

from benchmarks.peers.turns import FIGURES, Figures, add_up
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import Row
from stream_metrics.live.ports import StateStore
from stream_metrics.live.readers.export import rows_of

IN_ROW = {"good": "good_unique"}  # names that differ in a row


def of_row(row: Row) -> Figures:
    """The figures of a turn."""
    return [row[IN_ROW.get(name, name)] or 0 for name in FIGURES]


async def totals_of(store: StateStore, config: EngineConfig) -> dict[str, Figures]:
    """The figures of each agent, over all turns of a namespace."""
    totals: dict[str, Figures] = {}
    async for _, rows in rows_of(store, config, "all"):
        for row in rows:
            add_up(totals, row["agent"], of_row(row))
    return totals


def differences(ours: dict[str, Figures], theirs: dict[str, Figures]) -> list[str]:
    """The differences between the figures of two programs, one line each.

    >>> differences({"a": [9, 2, 5, 3, 8]}, {"a": [9, 1, 5, 3, 8]})
    ['a: duplicates 1 instead of 2']
    """
    nothing = [0] * len(FIGURES)
    return [
        f"{agent}: {name} {found} instead of {expected}"
        for agent in sorted(ours.keys() | theirs.keys())
        for name, found, expected in zip(
            FIGURES, theirs.get(agent, nothing), ours.get(agent, nothing), strict=True
        )
        if found != expected
    ]
