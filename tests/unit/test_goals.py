"""The goals in reports equal those on the page."""

from __future__ import annotations

import re

import pytest

from benchmarks import freshness, live
from benchmarks.machine import ROOT

PAGE = (ROOT / "benchmarks" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("row", "goals"),
    [
        ("live ÷ ceiling", [live.GOAL]),
        ("freshness at half", list(freshness.GOAL_MS.values())),
    ],
)
def test_the_page_and_the_report_have_the_same_goals(row: str, goals: list[str]) -> None:
    """Neither can be changed without the other."""
    table = PAGE.partition("## Figures")[2].partition("###")[0]
    [line] = [line for line in table.splitlines() if line.startswith(f"| {row}")]

    assert all(goal in line.split("|")[4] for goal in goals)


def test_each_row_names_the_run_that_it_comes_from() -> None:
    """Rows of one invocation are not mixed with others without a word."""
    table = PAGE.partition("## Figures")[2].partition("Beyond the goals")[0]
    _, _, *rows = [line for line in table.splitlines() if line.startswith("|")]

    assert len(rows) > 1
    for row in rows:
        *cells, run, _ = (cell.strip() for cell in row.split("|"))
        assert run == "`make bench`" or re.match(r"[0-9a-f]{7}[:,] ?.*\(results/\w+\.txt\)", run)
        assert "commit" not in "".join(cells)
