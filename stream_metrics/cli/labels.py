"""``stream-metrics labels``: joins evaluators' scores with their traces, and prints labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Final, Literal

import typer

from stream_metrics.cli.common import (
    ConfigOption,
    UsageError,
    load_settings,
    parse_time,
    printable,
    stderr_console,
)
from stream_metrics.cli.label_events import (
    GivenOption,
    IntoKafkaOption,
    checked_labels,
    hand_over,
)
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import (
    KAFKA,
    SinceOption,
    Sources,
    UntilOption,
    parse_marks,
)
from stream_metrics.cli.topic_source import TopicSource
from stream_metrics.core.telemetry import HELP
from stream_metrics.lab.sources.evaluation_reader import EvaluationReader
from stream_metrics.live.local.tables import SPANS

LISTED: Final = 100
Source = Literal["human", "model"]
Sample = Literal["random", "chosen"]


def labels(
    scores: Annotated[
        list[str],
        typer.Argument(
            help="Tables (JSON Lines, CSV, Parquet), document annotations of Phoenix, OTLP logs or "
            "traces with evaluations, - for standard input, or kafka:TOPIC.",
            metavar="SCORES",
        ),
    ],
    traces: Annotated[
        list[str],
        typer.Option(
            help="The OTLP traces that the scores are about: a file, a glob, kafka:TOPIC or the "
            "folder of `stream-metrics serve`. May be repeated."
        ),
    ],
    into_kafka: IntoKafkaOption = False,
    given: GivenOption = None,
    source: Annotated[
        Source | None,
        typer.Option(
            help="Who judged. Default: people, unless the worker knows the labeller as a model "
            "(`labels.model_labellers`).",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        Sample | None,
        typer.Option(
            help="Whether the turns were drawn at random to be judged. Default: chosen.",
            show_default=False,
        ),
    ] = None,
    since: SinceOption = "earliest",
    until: UntilOption = "end",
    limit: Annotated[
        int, typer.Option(min=0, help="List at most so many unused scores; count the rest.")
    ] = LISTED,
    config: ConfigOption = None,
) -> None:
    """Join scores of documents with the traces they are about, and print relevance labels.

    A row of a table has a [bold]span_id[/bold], a [bold]score[/bold] or [bold]label[/bold], and the
    document: its [bold]position[/bold] in the span (from 0) or its [bold]doc_id[/bold]. A
    [bold]trace_id[/bold] is needed only where several traces have the span. `labels.grades` and
    `labels.cutoffs` say which gain a score stands for.

    Labels are `relevance_labels` events, an object a line. The same scores give the same events,
    and of two scores for one result the later one counts. Scores that cannot be used are listed on
    standard error with the reason. Exit code 2 if none can be used.
    """
    reads_topics = any(source.startswith(KAFKA) for source in (*scores, *traces))
    settings = load_settings(config, connects=into_kafka or reads_topics)
    if not (settings.labels.grades or settings.labels.cutoffs):
        raise UsageError(
            "nothing says which gain a score stands for: set `labels.grades`, such as "
            "{relevant = 3, irrelevant = 0}, or `labels.cutoffs`, such as {2 = 0.5, 4 = 0.9}"
        )
    time_us = None if given is None else parse_time("--time", given)
    found = _read(scores, settings, since, until, time_us)
    console = stderr_console()
    events, unused, others = Sources(traces, settings, since, until, topic=SPANS).label_events(
        found.evaluations, source, sample
    )
    unused = [*found.unused, *unused]
    for one in unused[:limit]:
        console.print(printable(f"{one.origin}: {one.reason}: {one.message}"), markup=False)
    if len(unused) > limit:
        console.print(f"not listed: {len(unused) - limit:,} more; --limit lists more")
    if others:
        console.print(f"{others:,} records of {', '.join(traces)} are no OTLP traces")
    counts = Counter[str](one.reason for one in unused)
    reasons = "; ".join(
        f"{number:,} {reason} ({helps})"
        for reason, helps in HELP.items()
        if (number := counts[reason])
    )
    read = len(found.evaluations) + len(found.unused)
    if not read:
        raise UsageError(f"{', '.join(scores)}: no score in it; {found.others:,} records hold none")
    if not events:
        raise UsageError(f"none of {read:,} scores can be used: {reasons}")
    ready = checked_labels(((one.conversation, one.value) for one in events), settings)
    hand_over(ready, settings, into_kafka=into_kafka)
    console.print(f"{read - len(unused):,} of {read:,} scores are used")
    if unused:
        console.print(f"not used: {reasons}", markup=False)


def _read(
    sources: Sequence[str], settings: Settings, since: str, until: str, time_us: int | None
) -> EvaluationReader:
    """The scores of all sources; raises ``UsageError`` and ``InputError``."""
    found = EvaluationReader(settings.otlp.mapping(), settings.labels.grading)
    for source in sources:
        if not source.startswith(KAFKA):
            found.file(source, time_us)
            continue
        names = source.removeprefix(KAFKA).split(",")
        if not all(names):
            raise UsageError(f"{source!r}: write kafka:TOPIC or kafka:TOPIC,TOPIC")
        topics = TopicSource(settings, names, parse_marks(since, until))
        with closing(topics.records()) as records:
            for record in records:
                place = f"{record.topic}/{record.partition} offset {record.offset}"
                stamp_us = record.timestamp_ms * 1000 if record.timestamp_ms else None
                found.record(record.value, place, stamp_us if time_us is None else time_us)
    return found
