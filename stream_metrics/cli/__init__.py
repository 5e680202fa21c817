"""The command ``stream-metrics``."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape

from stream_metrics import __version__
from stream_metrics.adapters.files import InputError
from stream_metrics.cli import (
    audit,
    backfill,
    build,
    compare,
    demo,
    dlq,
    evaluate,
    forget,
    labels,
    letter,
    live,
    offline,
    passwords,
    purge,
    record,
    replay,
    send,
    top,
    topics,
    traffic,
    validate,
)
from stream_metrics.cli.common import UsageError
from stream_metrics.engine.codec import UnknownSchema
from stream_metrics.engine.state import DamagedState

app = typer.Typer(
    name="stream-metrics",
    help=(
        "Search redundancy, good gain, gating and routing of RAG agents, live and exact.\n\n"
        "Start with [bold]stream-metrics demo[/bold]. [bold]check[/bold] tells whether a worker "
        "would find all it needs."
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(demo.demo)
app.command("worker")(live.worker)
app.command("bridge")(live.bridge)
app.command("check")(live.check)
app.command("export")(live.export)
app.command("top")(top.top)
app.command("audit")(audit.audit)
app.command("forget")(forget.forget)
app.command("build")(build.build)
app.command("purge")(purge.purge)
app.command("validate")(validate.validate)
app.command("replay")(replay.replay)
app.command("report")(replay.report)
app.command("backfill")(backfill.backfill)
app.command("send")(send.send)
app.command("labels")(labels.labels)
app.command("record")(record.record)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("generate")(traffic.generate)
app.command("config")(offline.config)
app.command("schema")(offline.schema)
app.command("hash-password")(passwords.hash_password_command)
dead_letters = typer.Typer(help="Work with dead letters: records that were rejected.")
dead_letters.command("list")(dlq.dlq_list)
dead_letters.command("show")(letter.dlq_show)
dead_letters.command("resubmit")(dlq.dlq_resubmit)
app.add_typer(dead_letters, name="dlq", no_args_is_help=True)
input_topics = typer.Typer(help="Manage the topics that workers read.")
input_topics.command("create")(topics.create)
app.add_typer(input_topics, name="topics", no_args_is_help=True)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"stream-metrics {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Nothing is shared but the name."""


def main() -> None:
    """Run the command; usage and input errors are one line on standard error and exit code 2."""
    # The commands say themselves what is wrong; the client would say it first, on standard error.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        app(prog_name="stream-metrics")
    except (UsageError, InputError) as error:
        errors.print(f"[red]error:[/red] {escape(str(error))}")
        sys.exit(2)
    except UnknownSchema as error:
        errors.print(f"[red]error:[/red] the state in Redis cannot be read: {error}")
        sys.exit(2)
    except DamagedState as error:
        errors.print(
            f"[red]error:[/red] the state in Redis is damaged: {error}; restore a backup, or "
            "run `stream-metrics build`"
        )
        sys.exit(2)
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False):
            place = ".".join(str(part) for part in problem["loc"])
            named = f"setting {place}: " if place else ""
            errors.print(f"[red]error:[/red] {named}{problem['msg']}")
        sys.exit(2)
    except OSError as error:  # 1 is for thresholds that were crossed
        place = f"{error.filename}: " if error.filename is not None else ""
        why = error.strerror or str(error) or type(error).__name__
        errors.print(f"[red]error:[/red] {escape(place + why)}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
