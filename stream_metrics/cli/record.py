"""``stream-metrics record``: writes topics to a file that can be replayed."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from stream_metrics.cli.common import (
    ConfigOption,
    UsageError,
    day_and_time,
    load_settings,
    stderr_console,
)
from stream_metrics.cli.log_source import LogSource
from stream_metrics.cli.sources import SinceOption, UntilOption, parse_marks
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.parquet import ParquetError
from stream_metrics.lab.sources.recording import recording
from stream_metrics.live.local.tables import EVENTS

if TYPE_CHECKING:
    from stream_metrics.cli.topic_source import TopicSource

SHOW_EVERY: Final = 1_000
SAY_EVERY_SECONDS: Final = 10.0


@dataclass(slots=True)
class _RecordCounts:
    """Counts and times of the recorded records."""

    records: Counter[tuple[str, int]] = field(default_factory=Counter)
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, record: Record) -> None:
        """Count a record."""
        self.records[record.topic, record.partition] += 1
        stamp = record.timestamp_ms
        if stamp is not None and stamp >= 0:
            self.first_ms = stamp if self.first_ms is None else min(self.first_ms, stamp)
            self.last_ms = stamp if self.last_ms is None else max(self.last_ms, stamp)


def record(
    *,
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of `stream-metrics serve`, whose log is recorded instead of topics of "
            "Kafka.",
            metavar="[DIR]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            help="The file to write. Its extension chooses the format: .gz, .zst, .parquet, "
            "otherwise "
            "plain JSONL. - writes to standard output.",
        ),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            help="A topic to record. May be repeated. Default: `kafka.topics`, or of a folder "
            "[bold]events[/bold]; it has [bold]spans[/bold], too.",
            show_default=False,
        ),
    ] = None,
    since: SinceOption = "earliest",
    until: UntilOption = "end",
    config: ConfigOption = None,
) -> None:
    """Record topics to a file, with the partition, offset, timestamp and key of each record.

    Reads every partition up to its end at the time of the start and writes the records ordered by
    time, so that [bold]replay[/bold] of the file gives the same results as a replay of the topics.
    The file appears once it is complete. No consumer group is affected.
    """
    settings = load_settings(config, connects=folder is None)
    marks = parse_marks(since, until)
    source: TopicSource | LogSource
    if folder is None:
        from stream_metrics.cli.topic_source import TopicSource  # imports a Kafka client

        source = TopicSource(settings, topics or list(settings.kafka.topics), marks)
    else:
        source = LogSource(folder, topics or [EVENTS], marks)
    try:
        counted = _record(source, out)
    except ParquetError as error:
        raise UsageError(f"--out {out}: {error}") from error
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror or error}") from error
    for line in source.missed:
        stderr_console().print(line)
    _print_summary(source, counted, out)


def _record(source: TopicSource | LogSource, out: str) -> _RecordCounts:
    counted, read, told = _RecordCounts(), 0, time.monotonic()
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with (
        recording(out) as file,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        closing(source.records()) as records,
    ):
        task = progress.add_task("recording", total=None)
        for found in records:
            file.write(found)
            counted.add(found)
            read += 1
            if read % SHOW_EVERY:
                continue
            progress.update(
                task, description=f"{read:,} records", completed=read, total=source.offsets
            )
            if not console.is_terminal and time.monotonic() - told > SAY_EVERY_SECONDS:
                told = time.monotonic()
                console.print(f"{read:,} of {source.offsets:,} records")
    return counted


def _print_summary(source: TopicSource | LogSource, counted: _RecordCounts, out: str) -> None:
    for topic, partitions in source.spans.items():
        records = sum(counted.records[topic, int(number)] for number in partitions)
        offsets = sum(end - first for first, end in partitions.values())
        gone = f" ({offsets - records:,} offsets without one)" if offsets > records else ""
        stderr_console().print(
            f"{topic}: {records:,} records of {len(partitions)} partitions{gone}"
        )
    if counted.first_ms is not None and counted.last_ms is not None:
        first, last = day_and_time(1000 * counted.first_ms), day_and_time(1000 * counted.last_ms)
        stderr_console().print(f"from {first} to {last}")
    size = "" if out == "-" else f", {Path(out).stat().st_size:,} bytes"
    stderr_console().print(f"{counted.records.total():,} records written to {out}{size}")
