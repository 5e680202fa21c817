"""Commands that need no service: ``replay``, ``config``, ``schema``."""

from __future__ import annotations

import json
import platform
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from stream_metrics import __version__
from stream_metrics.adapters.reports import write_buckets, write_json, write_rows, write_text
from stream_metrics.cli.common import (
    ConfigOption,
    NowOption,
    OutOption,
    UsageError,
    load_settings,
    make_directory,
    parse_now,
)
from stream_metrics.cli.gates import FailIfOption, fail_if_crossed, read_gates
from stream_metrics.cli.sending import IntoKafkaOption, ShiftOption, SpeedOption, send_again
from stream_metrics.cli.sources import SinceOption, Sources, UntilOption
from stream_metrics.evaluation.headline import PARTS, REPLAY_FIGURES, figures_of_report
from stream_metrics.events.schema import rendered
from stream_metrics.settings import Settings, masked
from stream_metrics.worker.replay import Replay
from stream_metrics.worker.report import build_report

REJECTED_LISTED = 100
PLAIN_EVERY = 100_000


def replay(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="JSONL files (plain, .gz, .zst), Parquet, globs, or - for standard input."
        ),
    ],
    out: OutOption = Path("out"),
    since: SinceOption = "earliest",
    until: UntilOption = "end",
    now: NowOption = None,
    turn_scope: Annotated[
        str | None,
        typer.Option(
            help="[bold]last[/bold]: a row a conversation; [bold]all[/bold]: a row a turn."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option(help="End with exit code 2 at the first bad record.")
    ] = False,
    into_kafka: IntoKafkaOption = False,
    speed: SpeedOption = "1x",
    shift: ShiftOption = False,
    fail_if: FailIfOption = None,
    config: ConfigOption = None,
) -> None:
    """Run recorded events through the engine and write the report.

    Writes conversations.jsonl, windows.json, buckets.jsonl, report.json (the same bytes for the
    same input and settings) and run.json into --out. With --into-kafka nothing is computed here:
    the records go to the input topics, for workers to read.
    """
    settings = load_settings(config)
    gates = read_gates(fail_if, REPLAY_FIGURES, PARTS)
    scope = turn_scope or settings.metrics.turn_scope
    if scope not in ("last", "all"):
        raise UsageError(f"--turn-scope {scope!r}: use last or all")
    now_us = parse_now(now)
    source = Sources(sources, settings, since, until)
    if into_kafka:
        if gates:
            raise UsageError("--fail-if: with --into-kafka nothing is computed")
        send_again(source, settings, speed, shift=shift)
        return
    if shift or speed != "1x":
        raise UsageError(
            "--speed and --shift go with --into-kafka: a replay into files never waits"
        )
    started = time.perf_counter()
    engine = Replay(
        settings.engine_config(),
        turn_scope=scope,
        agents=settings.metrics.agents,
        routes=settings.metrics.routes,
        windows=settings.metrics.window_specs(),
    )
    _feed(engine, source, strict=strict)
    make_directory(out)
    report = _write(engine, settings, source, out, now_us, time.perf_counter() - started)
    fail_if_crossed(gates, {"": figures_of_report(report)}, PARTS)


def _feed(engine: Replay, source: Sources, *, strict: bool) -> None:
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        closing(source.records()) as records,
    ):
        task = progress.add_task("reading")
        for record in records:
            engine.feed(record)
            if strict and engine.rejected:
                bad = engine.rejected[0]
                raise UsageError(
                    f"record {bad.number + 1}: {bad.reason}: {bad.message} (--strict ends here)"
                )
            if engine.records % 1_000 == 0:
                of = f" of {source.offsets:,}" if source.offsets else ""
                progress.update(task, description=f"{engine.records:,}{of} records")
            if engine.records % PLAIN_EVERY == 0 and not console.is_terminal:
                console.print(f"{engine.records:,} records read")
        engine.flush()
    for line in source.missed:
        console.print(line)


def _write(
    engine: Replay,
    settings: Settings,
    source: Sources,
    out: Path,
    now_us: int | None,
    seconds: float,
) -> dict[str, Any]:
    rows = engine.rows()
    counts = engine.counts(rows)
    write_rows(out, rows)
    write_json(out, "windows.json", engine.windows(now_us))
    write_buckets(out, engine.history())
    shown = masked(settings)
    shown = {part: shown[part] for part in ("dedup", "limits", "metrics")}
    report = build_report(rows, counts, engine.reranks(rows), source.names, shown)
    report["bad_records"] = {
        "count": len(engine.rejected),
        "first": [
            {"record": bad.number + 1, "reason": bad.reason, "message": bad.message}
            for bad in engine.rejected[:REJECTED_LISTED]
        ],
    }
    write_json(out, "report.json", report)
    run = {
        "version": __version__,
        "python": platform.python_version(),
        "seconds": round(seconds, 3),
        "records_per_second": round(engine.records / seconds) if seconds else None,
        **source.read,
    }
    write_text(out / "run.json", json.dumps(run, indent=2) + "\n")
    _summary(report, out)
    return report


def _summary(report: dict[str, Any], out: Path) -> None:
    counts, micro = report["counts"], report["aggregate"]["micro"]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("records", f"{counts['events']:,}")
    table.add_row("rejected", f"{counts['invalid']:,}")
    table.add_row("conversations", f"{counts['conversations']:,}")
    table.add_row("results", f"{counts['results']:,}, of them {counts['duplicates']:,} duplicates")
    for name, title in (("srr", "SRR"), ("sre", "SRE"), ("avg_gain", "gain a result")):
        value = micro[name]
        table.add_row(title, "-" if value is None else f"{value:.4f}")
    table.add_row("written to", str(out))
    Console(stderr=True).print(table)


def config(config: ConfigOption = None) -> None:
    """Print the settings in force as JSON, secrets masked."""
    typer.echo(json.dumps(masked(load_settings(config)), indent=2))


def schema(
    name: Annotated[
        str,
        typer.Argument(
            help="[bold]json[/bold] (JSON Schema of the events), [bold]row[/bold] (JSON Schema of "
            "what the output topic holds) or [bold]asyncapi[/bold]."
        ),
    ] = "json",
) -> None:
    """Print the contract of the events and of the output topic."""
    documents = {
        "json": "events.schema.json",
        "row": "row.schema.json",
        "asyncapi": "asyncapi.json",
    }
    if name not in documents:
        raise UsageError(f"schema {name!r}: use json, row or asyncapi")
    typer.echo(rendered()[documents[name]], nl=False)
