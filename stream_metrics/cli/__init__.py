"""The command ``stream-metrics``."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from stream_metrics import __version__
from stream_metrics.cli.lazy_commands import MARKUP, lazy_group
from stream_metrics.core.garbage_collection import collect_rarely

COMMANDS = {
    "demo": "stream_metrics.cli.demo:demo",
    "worker": "stream_metrics.cli.services:worker",
    "bridge": "stream_metrics.cli.services:bridge",
    "check": "stream_metrics.cli.live:check",
    "export": "stream_metrics.cli.live:export",
    "top": "stream_metrics.cli.top:top",
    "audit": "stream_metrics.cli.audit:audit",
    "forget": "stream_metrics.cli.forget:forget",
    "build": "stream_metrics.cli.build:build",
    "purge": "stream_metrics.cli.purge:purge",
    "validate": "stream_metrics.cli.validate:validate",
    "replay": "stream_metrics.cli.replay:replay",
    "report": "stream_metrics.cli.replay:report",
    "backfill": "stream_metrics.cli.backfill:backfill",
    "send": "stream_metrics.cli.send:send",
    "labels": "stream_metrics.cli.labels:labels",
    "record": "stream_metrics.cli.record:record",
    "evaluate": "stream_metrics.cli.evaluate:evaluate",
    "compare": "stream_metrics.cli.compare:compare",
    "generate": "stream_metrics.cli.traffic:generate",
    "rules": "stream_metrics.cli.rules:rules",
    "config": "stream_metrics.cli.offline:config",
    "schema": "stream_metrics.cli.offline:schema",
    "hash-password": "stream_metrics.cli.passwords:hash_password_command",
}
DEAD_LETTERS = {
    "list": "stream_metrics.cli.dlq:dlq_list",
    "show": "stream_metrics.cli.dlq_show:dlq_show",
    "resubmit": "stream_metrics.cli.dlq_resubmit:dlq_resubmit",
}
TOPICS = {
    "create": "stream_metrics.cli.topics:create",
}

app = typer.Typer(
    name="stream-metrics",
    help=(
        "Search redundancy, good gain, gating and routing of RAG agents, live and exact.\n\n"
        "Start with [bold]stream-metrics demo[/bold]. [bold]check[/bold] tells whether a worker "
        "would find all it needs."
    ),
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
    add_completion=False,
)
dead_letters = typer.Typer(
    cls=lazy_group(DEAD_LETTERS), help="Work with dead letters: records that were rejected."
)
app.add_typer(dead_letters, name="dlq", no_args_is_help=True)
input_topics = typer.Typer(cls=lazy_group(TOPICS), help="Manage the topics that workers read.")
app.add_typer(input_topics, name="topics", no_args_is_help=True)


def _version(asked: bool) -> None:
    if asked:
        from stream_metrics.core.compiled import ENGINE

        typer.echo(f"stream-metrics {__version__} (engine: {ENGINE})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print version and engine."
        ),
    ] = False,
) -> None:
    """The options of ``stream-metrics`` itself."""


def _start_fast() -> None:
    """Leave out what takes longer than a small command itself."""
    collect_rarely()  # imports make many objects and little garbage
    atexit.register(gc.freeze)  # what is left at the end is not searched for garbage either
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # commands multiply no matrices


def main() -> None:
    """Run the command; usage and input errors are one line on standard error and exit code 2."""
    _start_fast()
    # Commands report errors themselves; aiokafka would log them to standard error as well.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    try:
        app(prog_name="stream-metrics")
    except Exception as error:
        if isinstance(error, ImportError) and error.name == "stream_metrics_kernel":
            lines = [str(error)]  # nothing else could be imported either
        else:
            from stream_metrics.cli.errors import (
                error_lines,
            )  # importing it takes longer than printing help

            lines = error_lines(error)
        if not lines:
            raise
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        for line in lines:
            console.print(f"[red]error:[/red] {escape(line)}")
        sys.exit(2)  # 1 means that a threshold was crossed
    except KeyboardInterrupt:
        sys.exit(130)
