"""``stream-metrics backfill``: writes the window series of a replay for Prometheus."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from stream_metrics.cli.common import UsageError, parse_time, stderr_console
from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.engine.window import parse_duration
from stream_metrics.lab.atomic_files import replacing
from stream_metrics.lab.history import Course, History, UnfitHistory
from stream_metrics.lab.reports.backfill import valid_label, write_openmetrics
from stream_metrics.lab.reports.files import BUCKETS, read_buckets

OUT: Final = "openmetrics.txt"
MOST_STEPS: Final = 100_000
USUAL_LABELS: Final = ("job=stream-metrics", "instance=replay")


def backfill(
    directories: Annotated[
        list[Path],
        typer.Argument(help="Output directories of replay. Their sums are added up."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help=f"The file. Default: {OUT} in the first directory."),
    ] = None,
    step: Annotated[str, typer.Option(help="Time between two samples, such as 15s or 1m.")] = "1m",
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Time of the first sample: RFC 3339 or microseconds. Default: the first event.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="End, exclusive: RFC 3339 or microseconds. Default: just after the last event.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            help="A label NAME=VALUE for every series. May be repeated. Default: "
            + " and ".join(USUAL_LABELS)
            + ".",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write the history of a replay's window sums as OpenMetrics with timestamps.

    Import the file with [bold]promtool tsdb create-blocks-from openmetrics FILE DATA[/bold], and
    Prometheus and Grafana show the past as workers would have shown it. Do not backfill a period
    in which Prometheus scraped workers, because sums over both would count twice.
    """
    named = _labels(labels or list(USUAL_LABELS))
    try:
        history = read_buckets(directories)
    except FileNotFoundError as error:
        raise UsageError(
            f"{error.filename}: no such file; `stream-metrics replay` writes {BUCKETS} to its --out"
        ) from error
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from error
    except UnfitHistory as error:
        raise UsageError(str(error)) from error
    if clash := named.keys() & {history.dimension, "window"}:
        raise UsageError(f"--label {min(clash)}: the series already have that label")
    steps = _steps(history, step, since, until)
    path = directories[0] / OUT if out is None else out
    try:
        with replacing(path) as temporary:
            courses = _shown(history.courses(steps))
            written = write_openmetrics(temporary, courses, steps, history.dimension, named)
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}") from error
    stderr_console().print(
        f"{written.samples:,} samples of {written.series:,} series written to {path}", markup=False
    )
    stderr_console().print(
        f"next: promtool tsdb create-blocks-from openmetrics {shlex.quote(str(path))} DATA, where "
        "DATA is Prometheus' --storage.tsdb.path",
        markup=False,
    )
    _say_what_is_missing(directories)


def _say_what_is_missing(directories: list[Path]) -> None:
    """Say what turns beyond a limit leave out of the series, or that this is not known."""
    from stream_metrics.lab.replay import report_files  # imports numpy

    beyond = BeyondLimit()
    for directory in directories:
        try:
            beyond = beyond.plus(report_files.read(directory)[1].beyond_limit_of_all)
        except report_files.IncompatibleReplays as error:
            said = f"it is not known whether turns are beyond a limit: {error}"
            stderr_console().print(said, markup=False)
    if beyond.turns:
        stderr_console().print(beyond.text(), style="yellow", highlight=False)


def _shown(courses: Iterator[Course]) -> Iterator[Course]:
    """Pass the series on, and count them on a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = stderr_console()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("adding up")
        for number, course in enumerate(courses, start=1):
            progress.update(task, description=f"{number:,} series")
            yield course


def _labels(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and valid_label(name)):
            raise UsageError(f"--label {text!r}: write NAME=VALUE, such as {USUAL_LABELS[0]}")
        found[name] = value
    return found


def _steps(history: History, step: str, since: str | None, until: str | None) -> range:
    """The times of the samples in microseconds, which are multiples of the step."""
    try:
        step_us = parse_duration(step)
    except ValueError as error:
        raise UsageError(f"--step {error}") from error
    first_us = history.first_us
    if first_us is None:
        raise UsageError("the replay has no sums, because it had no searches and no gate decisions")
    begin = first_us if since is None else parse_time("--from", since)
    end = history.last_event_us + step_us if until is None else parse_time("--to", until)
    steps = range(-(-begin // step_us) * step_us, end, step_us)
    if not steps:
        raise UsageError("--from and --to have no multiple of --step between them")
    if len(steps) > MOST_STEPS:
        raise UsageError(
            f"{len(steps):,} samples per series are more than {MOST_STEPS:,}: use a larger --step, "
            "or a shorter time with --from and --to"
        )
    return steps
