"""The goals that reports print are those of the page."""

from __future__ import annotations

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
def test_a_goal_is_on_the_page_as_it_is_in_the_report(row: str, goals: list[str]) -> None:
    """Neither is eased without the other."""
    table = PAGE.partition("## Figures")[2].partition("###")[0]
    [line] = [line for line in table.splitlines() if line.startswith(f"| {row}")]

    assert all(goal in line.split("|")[4] for goal in goals)
