"""Commands that need no service: ``config``, ``schema``."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from stream_metrics.cli.client_options import check_worker_settings
from stream_metrics.cli.common import ConfigOption, load_settings
from stream_metrics.cli.settings import masked_settings
from stream_metrics.core.contract import rendered


def config(config: ConfigOption = None) -> None:
    """Print the settings in effect as JSON, with secrets masked.

    Settings with which a worker would not start are reported on standard error.
    """
    settings = load_settings(config, connects=False)
    typer.echo(json.dumps(masked_settings(settings), indent=2))
    try:
        check_worker_settings(settings)
    except (ValueError, OSError) as error:
        typer.echo(f"warning: a worker does not start with these settings: {error}", err=True)


def schema(
    name: Annotated[
        Literal["json", "row", "asyncapi"],
        typer.Argument(
            help="[bold]json[/bold] is the JSON Schema of the events, [bold]row[/bold] that of the "
            "output topic; [bold]asyncapi[/bold] describes both."
        ),
    ] = "json",
) -> None:
    """Print the schemas of the events and of the output topic."""
    documents = {
        "json": "events.schema.json",
        "row": "row.schema.json",
        "asyncapi": "asyncapi.json",
    }
    typer.echo(rendered()[documents[name]], nl=False)
