"""Ranked-retrieval figures as tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_metrics.lab.evaluation.estimates import LANGUAGE, Block
from stream_metrics.lab.evaluation.wording import number, variance

WIDTH: Final = 200
"""Columns if the output is not a terminal."""


def print_retrieval(
    block: Block, metrics: Sequence[str], stratify: Sequence[str] | None = None
) -> None:
    """Print the block ``retrieval`` of a report.

    Args:
        block: The result of ``evaluation.retrieval.retrieval_block``.
        metrics: The metrics to print, in this order.
        stratify: Dimensions whose strata are printed. Strata of several languages are always
            printed first, because a mean over languages says little about any of them.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    _print_counts(block, console)
    shown = dict.fromkeys([LANGUAGE] if LANGUAGE in block["strata"] else [])
    shown |= dict.fromkeys(stratify or [])
    for dimension in shown:
        console.print(_strata(dimension, block["strata"][dimension], metrics))
        for stratum, note in block["strata"][dimension]["notes"].items():
            console.print(f"{stratum}: {note}", markup=False)
        console.print()
    console.print(_means(block, metrics))
    remarks = [*_notes(block, metrics), *_queries_without(block, metrics)]
    if remarks:
        console.print("\n".join(["", *remarks]), markup=False)


def _print_counts(block: Block, console: Console) -> None:
    said = [f"{block['queries']:,} queries"]
    if block["queries_missing"]:
        said.append(f"{block['queries_missing']:,} of the qrels missing in the run")
    if block["queries_dropped"]:
        said.append(f"{block['queries_dropped']:,} of the run without qrels, left out")
    retrieved = block["retrieved"]
    share = f" ({block['judged'] / retrieved:.1%} judged)" if retrieved else ""
    said.append(f"{retrieved:,} results{share}")
    if block["strategy_used"] not in (None, "qrels"):
        counts = block["strategy_counts"].items()
        said.append("judged by " + ", ".join(f"{name} ({n:,})" for name, n in counts if n))
    console.print("; ".join(said), markup=False)
    console.print()


def _means(block: Block, metrics: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("metric", no_wrap=True)
    for title in ("mean", "interval", "sd", "n"):
        table.add_column(title, justify="right", no_wrap=True)
    for name in metrics:
        found = block["metrics"][name]
        table.add_row(
            Text(name),
            number(found["mean"]),
            _interval(found),
            number(found["sd"]),
            f"{found['n']:,}",
        )
    return table


def _strata(dimension: str, strata: Block, metrics: Sequence[str]) -> Table:
    """A table with a row per metric and a column per stratum."""
    table = Table(box=None, pad_edge=False)
    table.add_column(Text(f"by {dimension}"), no_wrap=True)
    for stratum, size in strata["units"].items():
        table.add_column(Text(f"{stratum} (n={size:,})"), justify="right")
    table.add_column("average", justify="right")
    table.add_column("variance", justify="right")
    for name in metrics:
        found = strata["metrics"][name]
        table.add_row(
            Text(name),
            *(number(one["mean"]) for one in found["strata"].values()),
            number(found["stratum_average"]),
            variance(found["cross_stratum_variance"]),
        )
    return table


def _notes(block: Block, metrics: Sequence[str]) -> list[str]:
    """Notes on intervals, each with the metrics that it applies to."""
    found: dict[str, list[str]] = {}
    for name in metrics:
        note = block["metrics"][name]["note"]
        if note is not None:
            found.setdefault(note, []).append(name)
    return [f"{', '.join(names)}: {note}" for note, names in found.items()]


def _queries_without(block: Block, metrics: Sequence[str]) -> list[str]:
    """The number of queries without relevant documents, which score 0."""
    counts = {block["metrics"][name]["queries_without_relevant"] for name in metrics} - {0}
    if not counts:
        return []
    most, least = f"{max(counts):,}", f"{min(counts):,}"
    said = most if most == least else f"{least} to {most}, by metric"
    return [f"queries with nothing relevant: {said}; report.json has the means without them"]


def _interval(found: dict[str, Any]) -> str:
    if found["ci_low"] is None:
        return "-"
    return f"[{found['ci_low']:.4f}, {found['ci_high']:.4f}]"
