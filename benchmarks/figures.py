"""Figures with their spread, and the text tables they are printed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured quantity: its values in all rounds, and the project's goal."""

    what: str
    values: Sequence[float]
    unit: str
    goal: str = ""

    @property
    def median(self) -> float:
        """The median."""
        return median(self.values)

    def cells(self) -> tuple[str, ...]:
        """The row of a table: name, median, unit, spread, n, goal."""
        low, high = number(min(self.values)), number(max(self.values))
        spread = f"{low} to {high}" if len(self.values) > 1 else ""
        count = str(len(self.values))
        return (self.what, number(self.median), self.unit, spread, count, self.goal)


def ratios(of: Sequence[float], to: Sequence[float]) -> list[float]:
    """The ratios of two figures, round by round."""
    return [a / b for a, b in zip(of, to, strict=True)]


def number(value: float) -> str:
    """A figure with three significant digits, thousands separated.

    >>> number(12345.6), number(12.345), number(0.12345)
    ('12,346', '12.3', '0.123')
    """
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def figures_table(figures: Iterable[Figure]) -> str:
    """The figures, one a line."""
    head = ("", "median", "", "lowest to highest", "n", "goal")
    return table([head, *(figure.cells() for figure in figures)], right=(1, 4))


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A text table; the columns ``right`` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            align: Callable[[int], str] = cell.rjust if at in right else cell.ljust
            cells.append(align(width))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def section(title: str, *blocks: str) -> str:
    """A titled part of a report."""
    return f"{title}\n{'-' * len(title)}\n\n" + "\n".join(blocks) + "\n"
