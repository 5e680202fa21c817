"""``stream-metrics validate``: finds bad records, misspelt fields and events without effect."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

import msgspec
import typer

from stream_metrics.cli.common import (
    ConfigOption,
    FormatOption,
    UsageError,
    load_settings,
    printable,
    stderr_console,
)
from stream_metrics.cli.progress import show_progress
from stream_metrics.cli.sources import KAFKA, SinceOption, Sources, UntilOption
from stream_metrics.lab.sources.place import place_text
from stream_metrics.lab.sources.problems import Finding, GroundTruths, find_problems

SHOW_EVERY: Final = 1_000
LISTED: Final = 100


class ReportedFinding(msgspec.Struct, omit_defaults=True):
    """A finding, and the location of the first event that it is about.

    Attributes:
        level: ``error`` or ``warning``.
        kind, about, message: Those of ``Finding``.
        events: The number of events that it is about; 1 for a bad record.
        source: A file or a topic.
        line: The line in the file, from 1; the row of Parquet, the search of OTLP traces.
        partition, offset: The location in the topic.
    """

    level: str
    kind: str
    about: str
    message: str
    events: int
    source: str
    line: int | None = None
    partition: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        place = place_text(msgspec.structs.asdict(self))
        if self.kind == "bad_record":
            return f"{self.level}: {place}: {self.about}: {self.message}"
        count = "1 event" if self.events == 1 else f"{self.events:,} events"
        return f"{self.level}: {place}: {self.message} ({count})"


@dataclass(slots=True)
class Findings:
    """All findings, of which at most ``limit`` of each kind are listed."""

    limit: int
    records: int = 0
    found: Counter[str] = field(default_factory=Counter)  # by kind
    bad: list[ReportedFinding] = field(default_factory=list)
    other: dict[tuple[str, str], ReportedFinding] = field(
        default_factory=dict
    )  # by kind and what about
    listed: Counter[str] = field(default_factory=Counter)  # events, by kind

    def add_record(self, found: Iterable[Finding], source: str, **place: int) -> None:
        """Add the findings of the next record."""
        self.records += 1
        self.add(found, source, **place)

    def add(self, found: Iterable[Finding], source: str, **place: int) -> None:
        """Add findings about an event."""
        for one in found:
            kind = one.kind
            self.found[kind] += 1
            reported = self.other.get((kind, one.about))
            if reported is not None:
                reported.events += 1
                self.listed[kind] += 1
                continue
            reported = ReportedFinding(one.level, kind, one.about, one.message, 1, source, **place)
            if kind == "bad_record" and len(self.bad) < self.limit:
                self.bad.append(reported)
            elif kind != "bad_record" and self._of_kind(kind) < self.limit:
                self.other[kind, one.about] = reported
            else:
                continue
            self.listed[kind] += 1

    def _of_kind(self, kind: str) -> int:
        return sum(known == kind for known, _ in self.other)

    @property
    def errors(self) -> bool:
        """Whether there are findings that a producer has to fix."""
        return bool(self.found["bad_record"] or self.found["misspelt_field"])

    @property
    def all_listed(self) -> list[ReportedFinding]:
        """The listed findings, errors first."""
        return [*self.bad, *sorted(self.other.values(), key=lambda reported: reported.level)]

    @property
    def not_listed(self) -> dict[str, int]:
        """The number of events that are not listed, by kind."""
        return dict(self.found - self.listed)


def validate(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="JSONL files (plain, .gz, .zst), Parquet, OTLP traces (JSON or protobuf), globs, "
            "- for standard input, kafka:TOPIC, or the folder of `serve`."
        ),
    ],
    since: SinceOption = "earliest",
    until: UntilOption = "end",
    limit: Annotated[
        int, typer.Option(min=0, help="List at most so many findings of each kind; count the rest.")
    ] = LISTED,
    format_: FormatOption = "table",
    config: ConfigOption = None,
) -> None:
    """Check recorded events: name bad records, misspelt and unknown fields, and empty events.

    Exit code 2 if a record is bad or a field is misspelt, or if there is no record at all. Unknown
    fields that resemble no known one, events that say nothing, and ground truth that cannot be
    compared because results have no doc_id, are warnings.
    """
    reads_topics = any(source.startswith(KAFKA) for source in sources)
    settings = load_settings(config, connects=reads_topics)
    limits = settings.engine_config().limits
    copied = settings.kafka.repartition_topic is not None  # workers read copies with other keys
    source = Sources(sources, settings, since, until)
    topics = source.topics
    findings, truths = Findings(limit), GroundTruths[tuple[str, dict[str, int]]]()
    try:
        with (
            show_progress(lambda: source.offsets) as progress,
            closing(source.located_records()) as located,
        ):
            for name, number, record in located:
                live = record.topic in topics
                if live:
                    place = {"partition": record.partition, "offset": record.offset}
                else:
                    place = {"line": number}
                where = (record.topic if live else name, place)
                found = find_problems(
                    record.value,
                    key=None if live and copied else record.key,
                    timestamp_ms=record.timestamp_ms,
                    limits=limits,
                    require_key=live and not copied,
                    take=partial(truths.take, place=where),
                )
                findings.add_record(found, where[0], **place)
                if findings.records % SHOW_EVERY == 0:
                    progress.read(findings.records)
            for line in source.missed:
                progress.note(line)
            for one, (source_name, place) in truths.findings():
                findings.add([one], source_name, **place)
    finally:  # also what was found before a file that cannot be read
        for reported in findings.all_listed:
            as_json = format_ == "json"
            typer.echo(
                json.dumps(msgspec.to_builtins(reported)) if as_json else printable(str(reported))
            )
    if not findings.records:
        raise UsageError(f"{', '.join(source.names)}: no record to validate")
    console = stderr_console()
    bad, count = findings.found["bad_record"], findings.records
    console.print(f"{count:,} {'record' if count == 1 else 'records'}, {bad:,} of them bad")
    for kind, more in findings.not_listed.items():
        console.print(f"not listed: {more:,} of kind {kind}; --limit lists more")
    if findings.errors:
        raise typer.Exit(2)
