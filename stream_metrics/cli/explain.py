"""``stream-metrics explain``: what traces say, what is refused, and which settings would help."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext as quiet
from functools import partial
from typing import Annotated

import typer

from stream_metrics.cli.common import (
    ConfigOption,
    FormatOption,
    UsageError,
    load_settings,
    stderr_console,
)
from stream_metrics.cli.explain_view import print_explanation
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import KAFKA, SinceOption, Sources, UntilOption
from stream_metrics.cli.trace_files import OtherRecords, with_folders
from stream_metrics.core.telemetry import Options, SpanMapping
from stream_metrics.lab.sources.otlp.explanation import Explanation, as_documents
from stream_metrics.live.local.tables import SPANS


def explain(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="OTLP traces (JSON or protobuf; plain, .gz, .zst): files, globs, folders, "
            "- for standard input, kafka:TOPIC, or the folder of `serve`.",
            metavar="SOURCES",
        ),
    ],
    since: SinceOption = "earliest",
    until: UntilOption = "end",
    text: Annotated[
        bool,
        typer.Option(
            "--text/--no-text",
            help="Show an example of what each tool returned, which is a text of your data.",
        ),
    ] = True,
    format_: FormatOption = "table",
    config: ConfigOption = None,
) -> None:
    """Explain what traces say: each agent's searches, what is refused and why, and what helps.

    For each agent and tool: its spans, what decided on their role, in which form and place its
    results were, what identifies them, and the share that is refused. Settings that may help are
    tried on these traces, and printed with what they would give.

    Exit code 2 if there are no spans.
    """
    settings = load_settings(config, connects=any(one.startswith(KAFKA) for one in sources))
    named = with_folders(sources)
    source = Sources(named, settings, since, until, topic=SPANS)
    explanation = Explanation(partial(_with_row, settings), settings.engine_config().limits)
    console = stderr_console()
    with console.status("reading, and trying what may help") if console.is_terminal else quiet():
        others = source.explain(explanation)
    for line in source.unread:
        typer.echo(line, err=True)
    if not explanation.spans:
        raise UsageError(_nothing(sources, others))
    documents = as_documents(explanation, others.counts, texts=text, others_in=[*others.sources])
    if format_ == "json":
        for one in documents:
            typer.echo(json.dumps(one, ensure_ascii=False))
    else:
        print_explanation(documents, ", ".join(sources))


def _with_row(settings: Settings, row: str) -> tuple[SpanMapping, Options] | None:
    """How traces are interpreted with a row; None if the settings are then not valid."""
    try:
        otlp = settings.otlp.with_row(row)
    except ValueError:
        return None
    return otlp.mapping(), otlp.options(settings.labels.grading)


def _nothing(sources: Sequence[str], others: OtherRecords) -> str:
    """What sources without a span are, and what to run instead."""
    names = ", ".join(sources)
    if others.events:
        return (
            f"{names}: this is a stream of events, not of traces: `stream-metrics validate` checks "
            "them, and `stream-metrics replay` computes their figures"
        )
    if others.signals:
        signals = " and ".join(sorted(others.signals))
        instead = (
            "; `stream-metrics labels` reads the evaluations in logs"
            if "logs" in others.signals
            else ""
        )
        return f"{names}: these are OTLP {signals}, not traces{instead}"
    if others.unknown:
        number = "1 record is" if others.unknown == 1 else f"{others.unknown:,} records are"
        return (
            f"{names}: {number} neither OTLP traces nor events. Give what a "
            "Collector's file or Kafka exporter writes in `otlp_json` or `otlp_proto`"
        )
    return f"{names}: there are no spans in it"
