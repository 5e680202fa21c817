"""The services, as commands: ``worker``, ``bridge``.

What they run is imported by then: their help needs none of it.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from stream_metrics.cli.common import ConfigOption, load_settings


def worker(
    config: ConfigOption = None,
    build: Annotated[
        bool,
        typer.Option(
            "--build",
            help="Work on the generation that is being built, even if the settings fit the one in "
            "force as well.",
        ),
    ] = False,
    web_port: Annotated[
        int | None,
        typer.Option(help="Port of the page, /metrics and the health checks. Default: `web.port`."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Start even if Redis may evict state (maxmemory-policy)."),
    ] = False,
) -> None:
    """Run the live worker: Kafka in, state in Redis, figures on /metrics.

    The same as [bold]faust -A stream_metrics.app worker[/bold]. SIGTERM finishes the batch in
    flight, commits and leaves the group.
    """
    if web_port is not None:
        os.environ["STREAM_METRICS_WEB__PORT"] = str(web_port)
    if force:
        os.environ["STREAM_METRICS_FORCE"] = "true"
    settings = load_settings(config)
    from stream_metrics.app import run_worker  # builds the Faust application when imported

    sys.exit(run_worker(settings, build=build))


def bridge(
    rekey: Annotated[
        bool,
        typer.Option(
            "--rekey",
            help="First copy the records to an internal topic, keyed by trace, because the "
            "exporter does not key them.",
        ),
    ] = False,
    config: ConfigOption = None,
    web_port: Annotated[
        int | None,
        typer.Option(help="Port of /metrics and the health checks. Default: `bridge.port`."),
    ] = None,
) -> None:
    """Run the bridge: OTLP traces in, events out.

    Reads what the OpenTelemetry Collector's Kafka exporter writes to `bridge.topic`, and produces
    events to the input topics, where workers read them. SIGTERM finishes the batch in flight,
    commits and leaves the group.
    """
    if web_port is not None:
        os.environ["STREAM_METRICS_BRIDGE__PORT"] = str(web_port)
    if rekey:
        os.environ["STREAM_METRICS_BRIDGE__REKEY"] = "true"
    settings = load_settings(config)
    from stream_metrics.cli.bridge import run_bridge

    sys.exit(run_bridge(settings))
