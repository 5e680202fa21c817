"""The Faust application: ``faust -A stream_metrics.app worker``.

Faust owns the life cycle, the signals, the service tree and the web server. Its own consumer is
off: records are read in batches by a service of ours (``docs/adr/0001-faust-seam.md`` says why).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterable
from typing import Any, NoReturn, cast

import faust
import structlog
import uvloop
from faust.app.base import BootStrategy
from faust.web.drivers.aiohttp import Web
from mode import Service
from mode.types import ServiceT
from pydantic import ValidationError

from stream_metrics.cli.client_options import check_worker_settings
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.options import web_options
from stream_metrics.cli.runtime import Runtime, UnsafeStore
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.errors import FencedInstance, KafkaRefused
from stream_metrics.clients.kafka.topics import TopicsInvalid
from stream_metrics.core.engine.codec import UnknownSchema
from stream_metrics.live.layout import UnreadableLayout
from stream_metrics.live.ports import StoreRefused, Superseded
from stream_metrics.live.web import access_control, add_pages, ssl_context
from stream_metrics.live.worker.ownership.identity import OtherIdentity

log = structlog.get_logger(__name__)

REFUSALS = (
    TopicsInvalid,
    OtherIdentity,
    Superseded,
    UnknownSchema,
    UnreadableLayout,
    UnsafeStore,
    StoreRefused,
    KafkaRefused,
    FencedInstance,
)


class OwnConsumer(BootStrategy):
    """Start the web server and our services; no agents, tables or consumer of Faust's."""

    enable_kafka = False

    def agents(self) -> Iterable[ServiceT]:
        """None."""
        return []

    def tables(self) -> Iterable[ServiceT]:
        """None."""
        return []

    def web_server(self) -> Iterable[ServiceT]:
        """Faust's web server, with our pages on it."""
        app = cast(App, self.app)
        web_app = cast(Web, app.web).web_app
        add_pages(web_app, app.runtime.pages)
        app.runtime.page.add_to(web_app)
        return super().web_server()


class OwnWorker(faust.Worker):
    """Faust's worker, but logs are set up by us, and nothing is drawn on the terminal."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.spinner = None

    def _schedule_shutdown(self, signal: signal.Signals) -> None:
        """The first signal stops gracefully, a second one ends the process at once."""
        if self._signal_stop_time:
            os._exit(128 + signal)
        log.info("stream-metrics worker stops", signal=signal.name)
        super()._schedule_shutdown(signal)

    def execute_from_commandline(self) -> NoReturn:
        """Run until told to stop; exit code 2 where settings, topics or state forbid to work."""
        app = cast(App, self.app)
        try:
            check_worker_settings(app.runtime.settings)
            _check_port(app.runtime.settings)
        except (ValueError, OSError) as error:
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(2) from None
        try:
            super().execute_from_commandline()
        except SystemExit:
            if isinstance(app.failure, REFUSALS):
                raise SystemExit(2) from None
            raise

    def _setup_logging(self) -> None:
        """Done by ``configure_logs`` when the application was made."""

    def _setup_spinner_handler(self, logger: Any, level: int) -> None:
        """No spinner."""


class App(faust.App):
    """Faust's application with our boot order."""

    BootStrategy = OwnConsumer
    runtime: Runtime
    failure: BaseException | None = None


def create_app(settings: Settings | None = None, *, build: bool = False) -> App:
    """The application for these settings (by default those of environment and file).

    With ``build`` it works on the generation of state that is being built, if there is one.
    """
    settings = settings or Settings()
    configure_logs(settings.log)
    web = web_options(settings)
    for warning in web.warnings():
        log.warning("web", problem=warning)
    app = App(
        settings.kafka.group_id,
        broker="kafka://",
        autodiscover=False,
        datadir=tempfile.gettempdir(),
        web_bind=web.host,
        web_host=web.host,
        web_port=web.port,
        web_ssl_context=ssl_context(web),
        web_application_options={"middlewares": [access_control(web)]},
        web_tables_enabled=False,
        web_router_enabled=False,
        web_stats_enabled=False,
        web_graph_enabled=False,
        web_metrics_enabled=False,
        worker_redirect_stdouts=False,
        Worker=OwnWorker,
    )
    runtime = app.runtime = Runtime(settings, build=build)

    @app.service
    class Worker(Service):
        """Runs the live worker inside Faust's service tree."""

        _work: asyncio.Task[None] | None = None

        async def on_start(self) -> None:
            """Begin to work."""
            self._work = asyncio.create_task(runtime.run())
            self._work.add_done_callback(self._ended)

        def _ended(self, work: asyncio.Task[Any]) -> None:
            if not work.cancelled() and (error := work.exception()) is not None:
                self._crash_with(error)

        def _crash_with(self, error: BaseException) -> None:
            self.log.error("%s: %s", type(error).__name__, error)
            app.failure = error
            self._crashing = asyncio.ensure_future(self.crash(error))

        async def on_stop(self) -> None:
            """Finish the batch in flight, commit, leave the group."""
            runtime.stop()
            if self._work is not None:
                await asyncio.gather(self._work, return_exceptions=True)

    return app


def _check_port(settings: Settings) -> None:
    """Raise ``ValueError`` if the pages' port is taken."""
    web = settings.web
    with socket.socket(socket.AF_INET6 if ":" in web.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((web.host, web.port))
        except OSError as error:
            raise ValueError(
                f"cannot listen on web.host {web.host}, web.port {web.port}: {error.strerror}. "
                "Several workers on one machine need a port each (--web-port)"
            ) from error


def __getattr__(name: str) -> Any:
    """``app``, for ``faust -A stream_metrics.app``: made when it is first asked for."""
    if name != "app":
        raise AttributeError(name)
    try:
        settings = Settings()
    except ValueError as error:
        problems = error.errors(include_url=False) if isinstance(error, ValidationError) else []
        named = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in problems)
        sys.stderr.write(f"error: settings: {named or error}\n")
        raise SystemExit(2) from None
    made = globals()["app"] = create_app(settings)
    return made


def run_worker(settings: Settings, *, build: bool = False) -> int:
    """Run a worker for ``settings`` until it is told to stop; its exit code.

    0 after a graceful stop, 2 where settings, topics or state forbid to work, 1 after a crash.
    """
    running = create_app(settings, build=build)
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = running.Worker(
        loop=loop, loglevel=settings.log.level, redirect_stdouts=False, quiet=True
    )
    try:
        worker.execute_from_commandline()
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else int(done.code is not None)
    return code or int(running.failure is not None)
