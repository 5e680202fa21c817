"""Estimates of a recording from the labels of its random samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stream_metrics.core.alerts.estimates import Estimates, Interval, estimates_of
from stream_metrics.core.engine.cells import ESTIMATES, split_code
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.windows import Sums, add

LabelSums = dict[str, Sums]
"""By agent (or release), the sums over its conversations of random samples, by series code."""


def added(sums: Mapping[str, Sums], more: Mapping[str, Sums]) -> LabelSums:
    """Both sums together."""
    found = {agent: dict(of) for agent, of in sums.items()}
    for agent, of in more.items():
        add(found.setdefault(agent, {}), of, 1)
    return found


def add_cells(sums: LabelSums, cells: Iterable[Cell]) -> None:
    """Add the cells of conversations' units in place; other cells have no such sums."""
    for cell in cells:
        if any(split_code(code)[0].group == ESTIMATES for code in cell.sums):
            add(sums.setdefault(cell.agent, {}), cell.sums, 1)


def estimates_block(sums: LabelSums, dimension: str) -> dict[str, Any]:
    """The block ``estimates`` of a report: of all agents (or releases), and of each."""
    everything: Sums = {}
    for of in sums.values():
        add(everything, of, 1)
    by_name = {name: _figures(of) for name, of in sorted(sums.items())}
    return {"all": _figures(everything), f"by_{dimension}": by_name}


def _figures(sums: Sums) -> dict[str, Any]:
    """Each figure with its estimates."""
    return {figure: _shown(found) for figure, found in estimates_of(sums).items()}


def _shown(found: Estimates) -> dict[str, Any]:
    return {
        "human": _interval(found.human),
        "model": found.model,
        "combined": _interval(found.combined),
        "judge_off": _interval(found.off),
        "incomplete": found.incomplete,
        "conversations": dict(found.conversations),
    }


def _interval(found: Interval | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    return {"value": found.value, "ci_low": found.low, "ci_high": found.high}
