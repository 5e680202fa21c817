"""``stream-metrics judge``: a model that grades a random sample of results.

What it runs is imported by then: its help needs none of it.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from stream_metrics.cli.common import ConfigOption, FormatOption, UsageError, load_settings
from stream_metrics.cli.places import DataOption

SourcesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Recordings, OTLP traces, kafka:TOPIC or the folder of `serve`. Default: the input "
        "topics.",
        show_default=False,
    ),
]
FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        help="Where to start in each partition of a topic: a time in RFC 3339, an age such as "
        "[bold]-24h[/bold], an offset, or [bold]earliest[/bold].",
    ),
]


def run(
    sources: SourcesArgument = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what each day of SOURCES would ask and cost; ask nothing."
        ),
    ] = False,
    data: DataOption = None,
    since: FromOption = "earliest",
    web_port: Annotated[
        int | None,
        typer.Option(help="Port of /metrics and the health checks. Default: `judge.port`."),
    ] = None,
    format_: FormatOption = "table",
    config: ConfigOption = None,
) -> None:
    """Grade a random sample of results by a model, and write relevance labels.

    Reads the input topics, draws whole conversations at random, asks the model at `judge.url` for a
    grade of each of their documents, and writes `relevance_labels` events to the last of the input
    topics. All judges together stay within `judge.calls_per_minute`, `judge.tokens_per_day` and
    `judge.money_per_day`. SIGTERM ends it.

    With [bold]stream-metrics serve[/bold], nothing has to be started: it judges if `judge.model` is
    set.
    """
    if web_port is not None:
        os.environ["STREAM_METRICS_JUDGE__PORT"] = str(web_port)
    if dry_run:
        from stream_metrics.cli.judge_forecast import print_forecast
        from stream_metrics.cli.judge_sources import settings_and_sources

        print_forecast(*settings_and_sources(config, sources, data), since, format_)
        return
    if sources or data is not None:
        raise UsageError(
            "a judge reads the input topics; give SOURCES or --data with --dry-run only. "
            "`stream-metrics serve` judges what it receives"
        )
    from stream_metrics.cli.judge_process import run_judge

    sys.exit(run_judge(load_settings(config)))
