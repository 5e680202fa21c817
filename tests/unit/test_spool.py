"""Rows are sorted with temporary files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.core.engine.row import canonical
from stream_metrics.lab.reports.sorted_rows import ROW_BYTES, SortedRows


def row(conversation: str, turn: int = 1, value: int = 0) -> dict[str, Any]:
    """A row with the fields that matter here."""
    return {"conversation_id": conversation, "turn": turn, "value": value}


@pytest.mark.parametrize("run_bytes", [1, 50 * ROW_BYTES, 1 << 20])
def test_rows_are_sorted(run_bytes: int, tmp_path: Path) -> None:
    """They are in the order of conversation and turn, by code point, for any number of runs."""
    names = ["", "a", "A", "aa", "\u00e9", "\ue000", "\U00010000", *(f"c{n}" for n in range(150))]
    rows = [[row(name, turn) for turn in (1, 2, 10)] for name in names]
    expected = sorted(
        (r for one in rows for r in one), key=lambda r: (r["conversation_id"], r["turn"])
    )
    random.Random(5).shuffle(rows)

    with SortedRows(tmp_path, run_bytes) as spool:
        for one in rows:
            spool.add(0, one)
        assert list(spool.lines()) == [canonical(r) + "\n" for r in expected]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run_bytes", [1, 1 << 20])
def test_rows_of_a_later_reading_replace_earlier_ones(run_bytes: int, tmp_path: Path) -> None:
    """A conversation that was read twice has the rows of the second time."""
    with SortedRows(tmp_path, run_bytes) as spool:
        spool.add(0, [row("c", 1)])
        spool.add(0, [row("d", 1)])
        spool.add(0, [row("c", 2, 7)])
        assert list(spool.lines()) == [canonical(r) + "\n" for r in (row("c", 2, 7), row("d"))]


def test_a_conversation_of_two_partitions_has_rows_of_both(tmp_path: Path) -> None:
    """If keys are placed inconsistently, each partition has rows of the events in it."""
    with SortedRows(tmp_path, 1) as spool:
        spool.add(3, [row("c", 2, 3)])
        spool.add(1, [row("c", 1, 1), row("c", 2, 1)])
        found = [row("c", 1, 1), row("c", 2, 1), row("c", 2, 3)]
        assert list(spool.lines()) == [canonical(r) + "\n" for r in found]
