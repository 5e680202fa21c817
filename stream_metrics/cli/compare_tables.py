"""Comparisons as tables: on a terminal, and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_metrics.cli.common import printable
from stream_metrics.cli.figures import WIDTH
from stream_metrics.lab.evaluation.observations import distinct_name, title_of
from stream_metrics.lab.evaluation.shown_estimates import TITLE
from stream_metrics.lab.evaluation.wording import (
    about,
    adjusted_title,
    interval,
    interval_title,
    number,
    p_value,
    signed,
    significance,
)

Block = dict[str, Any]

_MARKS: Final = r"\`*_[]<>|~#"


class Titles(NamedTuple):
    """The column titles of the tables of values and of differences."""

    values: tuple[str, ...]
    differences: tuple[str, ...]


def titles_of(found: Block) -> Titles:
    """The column titles of a comparison."""
    interval_, adjusted = interval_title(found["confidence"]), adjusted_title(found["correction"])
    return Titles(
        ("Metric", "Better", "Run", "Value", interval_, "n"),
        (
            "Comparison", "Metric", "Difference", interval_, "p", adjusted, "Significant", "Effect",
            "n",
        ),
    )  # fmt: skip


class ComparisonText(NamedTuple):
    """A comparison as text: its title, tables of cells, and remarks."""

    title: str
    values: list[tuple[str, ...]]
    differences: list[tuple[str, ...]]
    remarks: list[str]


def comparison_parts(found: Block) -> Iterator[ComparisonText]:
    """The whole comparison, then that of estimates, then that of each stratum."""
    names = [run["name"] for run in found["runs"]]
    yield _part("", names, found["family"])
    if "estimates" in found:
        yield _part(TITLE, names, found["estimates"])
    for dimension, strata in found["strata"].items():
        for stratum, family in strata.items():
            yield _part(f"{dimension}: {stratum}", names, family)


def print_comparison(found: Block) -> None:
    """Print a comparison for a terminal."""
    titles = titles_of(found)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    console.print(printable(about(found)), markup=False)
    for note in found["notes"]:
        console.print(f"note: {printable(note)}", markup=False)
    for part in comparison_parts(found):
        console.print()
        if part.title:
            console.print(Text(printable(part.title), style="bold"))
        console.print(_table(titles.values, part.values))
        console.print()
        console.print(_table(titles.differences, part.differences))
        for remark in part.remarks:
            console.print(printable(remark), markup=False)


def as_markdown(found: Block) -> str:
    """A comparison in Markdown, for a review or an issue."""
    titles = titles_of(found)
    lines = [_escaped(about(found)), ""]
    lines += [f"- {_escaped(note)}" for note in found["notes"]]
    lines += [""] if found["notes"] else []
    for part in comparison_parts(found):
        if part.title:
            lines += [f"### {_escaped(part.title)}", ""]
        lines += [*_markdown(titles.values, part.values), ""]
        lines += [*_markdown(titles.differences, part.differences), ""]
        if part.remarks:
            lines += [*(f"- {_escaped(remark)}" for remark in part.remarks), ""]
    return "\n".join(lines)


def _part(title: str, names: list[str], family: Block) -> ComparisonText:
    values: list[tuple[str, ...]] = []
    differences: list[tuple[str, ...]] = []
    reasons: dict[str, list[str]] = {}
    for table in family["tables"].values():
        for metric, block in table["metrics"].items():
            for run, value in zip(names, block["values"], strict=True):
                if value is not None:
                    values.append(_value(metric, block["better"], run, value))
            for one in block["comparisons"]:
                differences.append(_difference(names[0], metric, one))
                if one["reason"] is not None:
                    reasons.setdefault(one["reason"], []).append(f"{metric} ({one['run']})")
    remarks = [*family["notes"]]
    remarks += [f"{reason}: {', '.join(places)}" for reason, places in reasons.items()]
    return ComparisonText(title, values, differences, remarks)


def _value(metric: str, better: str, run: str, value: Block) -> tuple[str, ...]:
    return (
        _titled(metric),
        "" if better == "neither" else better,
        run,
        number(value["value"]),
        interval(value),
        f"{value['units']:,}",
    )


def _difference(first: str, metric: str, one: Block) -> tuple[str, ...]:
    return (
        f"{one['run']} vs {first}",
        _titled(metric),
        signed(one["difference"]),
        interval(one, signed_bounds=True),
        p_value(one["p"]),
        p_value(one["p_adjusted"]),
        significance(one),
        "-" if one["effect"] is None else f"{one['effect']:+.2f}",
        f"{one['n']:,}" + ("" if one["paired"] else " unpaired"),
    )


def _titled(metric: str) -> str:
    """The title of a metric, followed by its name if that differs."""
    typed = distinct_name(metric)
    return title_of(metric) + ("" if typed is None else f" ({typed})")


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in titles:
        plain = title in ("Metric", "Better", "Run", "Comparison", "Significant")
        table.add_column(title, justify="left" if plain else "right")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _markdown(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """The lines of a table."""
    return [
        "| " + " | ".join(titles) + " |",
        "|" + "---|" * len(titles),
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows),
    ]


def _cell(text: str) -> str:
    return _escaped(text) if not text.startswith("[") else text


def _escaped(text: str) -> str:
    """Text with Markdown's special characters escaped.

    >>> _escaped("a|b <c>")
    'a\\\\|b \\\\<c\\\\>'
    """
    return "".join(f"\\{sign}" if sign in _MARKS else sign for sign in printable(text))
