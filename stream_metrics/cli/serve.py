"""``stream-metrics serve``: everything in one process, over one file.

What it runs is imported by then: its help needs none of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stream_metrics.cli.common import ConfigOption, load_settings


def serve(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder of the file, which is created. Default: `serve.data`, "
            "./stream-metrics-data.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Port of the page and /metrics; 0 picks a free one. Default: `web.port`, 9464.",
            show_default=False,
        ),
    ] = None,
    otlp_port: Annotated[
        int | None,
        typer.Option(
            "--otlp-port",
            min=0,
            max=65_535,
            help="Port for traces and events; 0 picks a free one. Default: `serve.otlp_port`, "
            "4318.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            help="Address of both. Default: this machine only, 127.0.0.1.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Receive traces and events, and show their figures, in one process without servers.

    State, spans and events are in one file. What was answered is on the disk: after a crash the
    figures are those of all that was accepted. SIGTERM finishes what was begun.
    """
    settings = load_settings(config, connects=False)
    flags: dict[str, dict[str, object]] = {
        "serve": {"data": data, "host": host, "otlp_port": otlp_port},
        "web": {"host": host, "port": port},
    }
    for name, values in flags.items():
        given = {key: value for key, value in values.items() if value is not None}
        table = getattr(settings, name).model_copy(update=given)
        settings = settings.model_copy(update={name: table})
    from stream_metrics.cli.serving import run_serve

    sys.exit(run_serve(settings, _announce))


def _announce(page: str, receiver: str) -> None:
    """Print the address of the page, and what connects an agent."""
    from stream_metrics.live.page.one_process import variables

    typer.echo(f"Page:    {page}")
    typer.echo(f"Traces:  export {' '.join(variables(receiver))}")
    typer.echo(f"Events:  {receiver}/v1/events")
    sys.stdout.flush()
