"""The command ``stream-metrics``."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
import warnings
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from stream_metrics import __version__
from stream_metrics.cli.lazy_commands import MARKUP, lazy_group
from stream_metrics.core.garbage_collection import collect_rarely

# Where each command is, and its line in the list of commands: what its own help says first.
COMMANDS = {
    "demo": (
        "stream_metrics.cli.demo:demo",
        "Play a recorded working day of four support agents through the engine.",
    ),
    "serve": (
        "stream_metrics.cli.serve:serve",
        "Receive traces and events, and show their figures, in one process without servers.",
    ),
    "worker": (
        "stream_metrics.cli.services:worker",
        "Run the live worker: Kafka in, state in Redis, figures on /metrics.",
    ),
    "bridge": (
        "stream_metrics.cli.services:bridge",
        "Run the bridge: OTLP traces in, events out.",
    ),
    "check": (
        "stream_metrics.cli.live:check",
        "Check settings, Kafka, Redis and the stored state. Exit code 2 if a worker would fail.",
    ),
    "export": (
        "stream_metrics.cli.live:export",
        "Write conversations.jsonl and windows.json from the live state.",
    ),
    "top": (
        "stream_metrics.cli.top:top",
        "List the conversations with the highest SRR, lowest SRE and most wasted iterations.",
    ),
    "audit": (
        "stream_metrics.cli.audit:audit",
        "Recompute all window sums from the stored conversations and report differences.",
    ),
    "forget": (
        "stream_metrics.cli.forget:forget",
        "Erase conversations by sending a [bold]forget[/bold] event for each "
        "to every input partition.",
    ),
    "build": (
        "stream_metrics.cli.build:build",
        "Build the state anew with these settings, next to the one in force, and switch to it.",
    ),
    "purge": (
        "stream_metrics.cli.purge:purge",
        "Delete the state of a namespace that is no longer used. This cannot be undone.",
    ),
    "explain": (
        "stream_metrics.cli.explain:explain",
        "Explain what traces say: each agent's searches, what is refused and why, and what helps.",
    ),
    "validate": (
        "stream_metrics.cli.validate:validate",
        "Check recorded events: name bad records, misspelt and unknown fields, and empty events.",
    ),
    "replay": (
        "stream_metrics.cli.replay:replay",
        "Run recorded events through the engine and write a report.",
    ),
    "report": (
        "stream_metrics.cli.replay:report",
        "Write the report again, from one directory or from replays of different inputs.",
    ),
    "read": (
        "stream_metrics.cli.read:read",
        "Serve the report of a replay, and each conversation of its input, on a local page.",
    ),
    "backfill": (
        "stream_metrics.cli.backfill:backfill",
        "Write the history of a replay's window sums as OpenMetrics with timestamps.",
    ),
    "send": (
        "stream_metrics.cli.send:send",
        "Send events to the input topics, keyed by conversation, or over HTTP.",
    ),
    "notify": (
        "stream_metrics.cli.notify:notify",
        "Send a test notification to notify.url.",
    ),
    "labels": (
        "stream_metrics.cli.labels:labels",
        "Join scores of documents with the traces they are about, and print relevance labels.",
    ),
    "record": (
        "stream_metrics.cli.record:record",
        "Record topics to a file, with the partition, offset, timestamp and key of each record.",
    ),
    "evaluate": (
        "stream_metrics.cli.evaluate:evaluate",
        "Score a run against relevance judgements: NDCG, MRR, recall and more, with intervals.",
    ),
    "compare": (
        "stream_metrics.cli.compare:compare",
        "Compare runs: values, differences, confidence intervals and significance tests.",
    ),
    "generate": (
        "stream_metrics.cli.traffic:generate",
        "Generate realistic traffic of support agents: searches, and labels a little later.",
    ),
    "rules": (
        "stream_metrics.cli.rules:rules",
        "Write the alert rules for Prometheus.",
    ),
    "config": (
        "stream_metrics.cli.offline:config",
        "Print the settings in effect as JSON, with secrets masked.",
    ),
    "schema": (
        "stream_metrics.cli.offline:schema",
        "Print the schemas of the events and of the output topic.",
    ),
    "hash-password": (
        "stream_metrics.cli.passwords:hash_password_command",
        "Hash a password for [bold]web.users[/bold]; it is asked for, or read from standard input.",
    ),
}
DEAD_LETTERS = {
    "list": (
        "stream_metrics.cli.dlq:dlq_list",
        "List dead letters: where each record was read and why it was rejected.",
    ),
    "show": (
        "stream_metrics.cli.dlq_show:dlq_show",
        "Print one dead letter: where its record was read, why it was rejected, its key and value.",
    ),
    "resubmit": (
        "stream_metrics.cli.dlq_resubmit:dlq_resubmit",
        "Send the records of dead letters to their input topics again, after a fix.",
    ),
}
JUDGE = {
    "run": (
        "stream_metrics.cli.judge:run",
        "Grade a random sample of results by a model, and write relevance labels.",
    ),
    "export-for-people": (
        "stream_metrics.cli.judge_people:export_for_people",
        "Write what people need in order to grade a part of the model's sample.",
    ),
    "import": (
        "stream_metrics.cli.judge_people:import_people",
        "Turn the grades that people gave into relevance labels, and print them.",
    ),
    "agreement": (
        "stream_metrics.cli.judge_agreement:judge_agreement",
        "Compare the grades that a model and people gave the same results.",
    ),
}
TOPICS = {
    "create": (
        "stream_metrics.cli.topics:create",
        "Create the input topics and their dead-letter topics if they are missing.",
    ),
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
judge = typer.Typer(
    cls=lazy_group(JUDGE, default="run"),
    help="Have a model grade a random sample of results, within a budget.",
    rich_markup_mode=MARKUP,
)
app.add_typer(judge, name="judge")


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


def refuse_overflow() -> None:
    """Make an error of what numpy warns of, since the figure would be infinite or not a number."""
    for said in ("overflow", "invalid value", "divide by zero"):
        for module in ("stream_metrics", "numpy"):
            warnings.filterwarnings(
                "error", rf"{said} encountered", RuntimeWarning, rf"{module}(\.|$)"
            )


def main() -> None:
    """Run the command; usage and input errors are one line on standard error and exit code 2."""
    _start_fast()
    refuse_overflow()
    # Commands report errors themselves; aiokafka would log them to standard error as well.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    try:
        app(prog_name="stream-metrics")
    except Exception as error:
        if isinstance(error, ImportError) and error.name == "stream_metrics._engine":
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
