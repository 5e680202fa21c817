"""All cells of a conversation: those of its iterations, its turns, and its units."""

from __future__ import annotations

from stream_metrics.core.engine.cells import iteration_cell, replace_cell, turn_cell
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.label_units import sampled, unit_cells
from stream_metrics.core.engine.state import Cell, Conversation

Units = dict[tuple[str, bool], Cell]
"""The cells of a conversation's units, by agent and by whether the model has yet to label them."""


def conversation_cells(conversation: Conversation, config: EngineConfig) -> list[Cell]:
    """All cells of a conversation in its present state."""
    cells: list[Cell] = []
    for turn in conversation.turns.values():
        cells += [iteration_cell(turn, one, config) for one in turn.iterations.values()]
        whole = turn_cell(turn, config)
        if whole is not None:
            cells.append(whole)
    cells += units_of(conversation, config).values()
    return cells


def units_of(conversation: Conversation, config: EngineConfig) -> Units:
    """The cells of a conversation's units; none unless a turn is in a random sample."""
    return unit_cells(conversation, config) if sampled(conversation) else {}


def unit_changes(before: Units, after: Units) -> list[tuple[int, Cell]]:
    """The cells to subtract from (-1) and add to (+1) the windows after units have changed."""
    cells: list[tuple[int, Cell]] = []
    for unit in {**before, **after}:
        replace_cell(before.get(unit), after.get(unit), cells)
    return cells
