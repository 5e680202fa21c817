"""Runs a process that is no worker, a bridge or a judge, beside its pages."""

from __future__ import annotations

from typing import Protocol

import structlog
from aiohttp import web

from stream_metrics.cli.signals import stop_on_signals
from stream_metrics.live.web import WebOptions, serve

log = structlog.get_logger(__name__)


class Running(Protocol):
    """What works until it is stopped."""

    async def run(self) -> None: ...
    def stop(self) -> None: ...


async def run_beside_pages(
    command: str, running: Running, app: web.Application, options: WebOptions
) -> None:
    """Run until a signal; a second signal ends the process immediately.

    ``command`` also names the section of the settings that has the port. Raises ``ValueError`` if
    the port is in use.
    """
    stop_on_signals(f"stream-metrics {command}", running.stop)
    for warning in options.warnings():
        log.warning("web", problem=warning)
    try:
        pages = await serve(options, app)
    except OSError as error:
        raise ValueError(
            f"cannot listen on web.host {options.host}, {command}.port {options.port}: "
            f"{error.strerror}. Several {command}s on one machine need a port each (--web-port)"
        ) from error
    try:
        await running.run()
    finally:
        await pages.cleanup()
