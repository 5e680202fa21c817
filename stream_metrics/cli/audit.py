"""``stream-metrics audit``: compares the stored window sums with the stored conversations."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from stream_metrics.cli.common import (
    BuildOption,
    ConfigOption,
    FormatOption,
    printable,
    text_table,
)
from stream_metrics.cli.options import find_state
from stream_metrics.cli.places import DataOption, Place, place_of
from stream_metrics.core.engine.cells import CODES, split_code
from stream_metrics.live.readers.audit import Audit, AuditOptions, Difference
from stream_metrics.live.readers.audit import audit as compare

PAUSE_SECONDS = 0.2
SHOWN = 100
SUMS = ("stored", "computed")
WIDTH = 250  # terminals wrap lines themselves, and files must not be truncated


def audit(
    format_: FormatOption = "table",
    wait: Annotated[
        float,
        typer.Option(min=0, help="Seconds to keep retrying a partition that is being written to."),
    ] = 30.0,
    build: BuildOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Recompute all window sums from the stored conversations and report differences.

    Reads only, so that workers can keep running. Use the settings of the workers. Exit code 0
    means that all sums are right, 1 that some are wrong, and 2 that the audit could not be
    completed.
    """
    place = place_of(config, data)
    dimension = place.settings.metrics.dimension
    with place.errors():
        found = asyncio.run(_audit(place, wait, build=build))
    if not found.partitions and not found.busy:
        raise place.no_state()
    if format_ == "json":
        for difference in found.differences:
            typer.echo(json.dumps(_object(difference, dimension)))
    elif found.differences:
        _table(found.differences, dimension)
    _summary(found, Console(stderr=format_ == "json", highlight=False, soft_wrap=True), wait)
    if found.differences or found.unreadable:
        raise typer.Exit(1)
    if found.busy:
        raise typer.Exit(2)


async def _audit(place: Place, wait: float, *, build: bool) -> Audit:
    until = time.monotonic() + wait

    async def again() -> bool:
        await asyncio.sleep(PAUSE_SECONDS)
        return time.monotonic() < until

    async with place.store() as store:
        settings, state, _ = await find_state(store, place.settings, build=build)
        options = AuditOptions(
            settings.engine_config(),
            settings.metrics.window_specs(),
            settings.metrics.agents,
            settings.metrics.routes,
        )
        return await compare(state, options, again)


def _series(code: str) -> tuple[str, dict[str, str]]:
    """The name and labels of a series code; an unknown code is its own name."""
    if code.partition("|")[0] not in CODES:
        return code, {}
    series, labels = split_code(code)
    return series.name, dict(zip(series.labels, labels, strict=False))


def _time(micros: int) -> str:
    try:
        return datetime.fromtimestamp(micros / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(micros)


def _object(difference: Difference, dimension: str) -> dict[str, Any]:
    series, labels = _series(difference.code)
    return {
        "partition": difference.partition,
        "window": difference.window,
        "time": _time(difference.time_us),
        dimension: difference.agent,
        "series": series,
        "labels": labels,
        "stored": difference.stored,
        "computed": difference.computed,
    }


def _table(differences: list[Difference], dimension: str) -> None:
    rows = []
    for found in differences[:SHOWN]:
        series, labels = _series(found.code)
        values = ",".join(f'{name}="{value}"' for name, value in labels.items())
        rows.append((
            str(found.partition), found.window, _time(found.time_us), found.agent,
            f"{series}{{{values}}}" if values else series,
            f"{found.stored:,}", f"{found.computed:,}",
        ))  # fmt: skip
    heads = ("partition", "window", "bucket", dimension, "series", *SUMS)
    Console(width=WIDTH).print(text_table(heads, rows, right=SUMS))
    if len(differences) > SHOWN:
        typer.echo(f"... and {len(differences) - SHOWN:,} more; --format json lists all")


def _summary(found: Audit, console: Console, wait: float) -> None:
    for problem in found.unreadable:
        console.print(Text(f"unreadable: {printable(problem)}"))
    results = []
    if found.differences:
        results.append(f"{len(found.differences):,} differ")
    if found.unreadable:
        results.append(f"{len(found.unreadable):,} parts of the state cannot be read")
    console.print(
        f"{found.partitions:,} partitions, {found.conversations:,} conversations, "
        f"{found.sums:,} sums compared: {', '.join(results) or 'no difference'}"
    )
    if results:
        console.print('What to do: docs/guides/operations.md, "Audit"')
    if found.busy:
        numbers = ", ".join(map(str, found.busy))
        console.print(
            f"not compared: partitions {numbers}, which were being written for {wait:g} seconds. "
            "Try a longer --wait, a quieter time, or a copy of the state"
        )
