"""Runs the engine, its page and the receiver in one process, over a SQLite file."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Final

import structlog
import uvloop
from aiohttp import web

from stream_metrics import __version__
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.options import identity, web_options
from stream_metrics.cli.process import WorkerProcess, prepare_process
from stream_metrics.cli.serving_traces import Traces, refusals_rule
from stream_metrics.cli.settings import Settings
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.engine.codec import UnknownSchema
from stream_metrics.live.layout import Generation, Identity, Layout, UnreadableLayout
from stream_metrics.live.links import CONVERSATION, fill_template
from stream_metrics.live.local.connections import LimitedServer
from stream_metrics.live.local.conversations import LocalConversationRecords
from stream_metrics.live.local.database import (
    Database,
    FileDamaged,
    FileRefused,
    FileUnavailable,
)
from stream_metrics.live.local.folder import (
    FolderRefused,
    digest_key_file,
    held,
    prepare_database,
    told_for,
)
from stream_metrics.live.local.letters import LocalDeadLetters
from stream_metrics.live.local.log import Log, Retention
from stream_metrics.live.local.otlp import OtlpReceiver
from stream_metrics.live.local.receiver import Doors, Receiver
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.local.tables import EVENTS, SPANS, TOPICS
from stream_metrics.live.page.conversation_html import Site
from stream_metrics.live.page.conversation_server import ConversationServer
from stream_metrics.live.page.conversations import ConversationPages
from stream_metrics.live.page.rules import RULES
from stream_metrics.live.ports import StateStore, Superseded
from stream_metrics.live.prometheus.receiver import ReceiverMetrics
from stream_metrics.live.web import WebOptions, make_app, serve
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.options import LoopOptions
from stream_metrics.live.worker.ownership.identity import OtherIdentity
from stream_metrics.live.worker.retry import Stopped

TRIM_SECONDS: Final = 10.0
OF_SERVERS: Final = frozenset(
    ("redis", "kafka", "fetch", "rights", "topics", "memory", "partitions")
)
"""The rules of the page on what this process does not use."""
REFUSALS: Final = (
    FolderRefused,
    FileRefused,
    FileDamaged,
    FileUnavailable,
    OtherIdentity,
    Superseded,
    UnknownSchema,
    UnreadableLayout,
    ValueError,
)

log = structlog.get_logger(__name__)


class ServeProcess(WorkerProcess):
    """The engine over a file, and what receives events for it."""

    def __init__(self, settings: Settings, database: Database, clock: Clock | None = None) -> None:
        rules = [rule for rule in RULES if rule.name not in OF_SERVERS]
        rules.append(refusals_rule(lambda worker: self.traces.page.finding(worker)))
        settings = settings.in_one_process()
        super().__init__(settings, TOPICS, clock, rules=rules, readable=True)
        self._database = database
        self.records = Log(database)
        self.conversations = ConversationServer(self._conversations(), self.operations.bug)
        self._metrics = ReceiverMetrics(self.registry, TOPICS)
        self.receiver = Receiver(
            self.records,
            settings.limits.in_force(),
            Doors(settings.serve.token(), settings.serve.max_backlog),
            self._metrics,
            self.health,
            self.clock.now_ms,
            self.operations.bug,
        )
        self.traces = Traces(
            settings,
            database,
            self.records,
            self.registry,
            self.health,
            self._metrics,
            self.clock,
        )
        self.otlp = OtlpReceiver(self.receiver, self.records, self.traces.scores, self.clock.now_ms)

    def _conversations(self) -> ConversationPages:
        """The pages of conversations, by the settings of the state that the page shows."""
        records = LocalConversationRecords(self._database, self.clock.now_ms)
        link = partial(fill_template, self.settings.web.conversation_url, CONVERSATION)
        return ConversationPages(
            lambda: None if self._shown is None else records,
            lambda: self.settings.engine_config() if self._shown is None else self._shown.config,
            Site("All figures", self.settings.serve.show_texts, link),
        )

    async def run(self) -> None:
        """Work until ``stop``; raises if the process must not start or go on."""
        prepare_process()
        store = LocalStore(self._database)
        beside = [asyncio.create_task(one) for one in (self.report(), self.notify(store))]

        async def first() -> Identity:
            return identity(self.settings, {EVENTS: 1})

        try:
            await self.work_over(store, first, [EVENTS])
        finally:
            for task in beside:
                task.cancel()

    async def work(
        self, settings: Settings, generation: Generation, layout: Layout, space: StateStore
    ) -> None:
        """See ``WorkerProcess.work``."""
        if not generation.in_force:
            raise OtherIdentity(
                "the state of these settings is still being built. Finish that first: "
                "`stream-metrics build`; until then, serve with the settings before"
            )
        letters = LocalDeadLetters(self._database, self.clock.now_ms)
        published = self.publish(space, generation, letters)
        state = self.keep_state(settings, generation, layout, space, published, ahead=True)
        self.receiver.ahead = state.ahead
        source = LocalSource(self.records, generation.group, [EVENTS], self.retry)
        options = LoopOptions(
            (EVENTS,),
            settings.kafka.on_offset_gap,
            commit_interval_seconds=settings.kafka.commit_interval_seconds,
        )
        loop = self.loop_over(source, state, options, {})
        await self.run_loop(loop, state, beside=[self.traces.part()], watchers=[self._keep()])

    def obstructed(self, reasons: Mapping[str, str]) -> None:
        """See ``WorkerProcess.obstructed``."""
        self.operations.obstructed(reasons)
        self.traces.obstructed(reasons)

    def stop(self) -> None:
        """See ``WorkerProcess.stop``."""
        self.traces.stop()
        super().stop()

    async def _keep(self) -> None:
        """Trim the log, and tell how full the cache is, at intervals."""
        with suppress(Stopped):
            while not self.retry.stopping:
                try:
                    await self.trim()
                except FileUnavailable as error:
                    log.warning("old records cannot be deleted", why=str(error))
                self.operations.cache(len(self.cache), self.cache.results)
                await self.retry.pause(TRIM_SECONDS)

    async def trim(self) -> None:
        """Delete what is too old or too much, and tell how large the file is."""
        serve = self.settings.serve
        ages_ms = {EVENTS: serve.retention_ms, SPANS: serve.spans_retention_ms}
        retention = Retention(ages_ms, serve.max_bytes, self.settings.bridge.known_ms)
        while await self.records.trim(retention, self.clock.now_ms()):
            await asyncio.sleep(0)
        deleted, used = await self.records.deleted(), await self.records.used_bytes()
        self._metrics.kept(used, deleted.aged, deleted.crowded)


def run_serve(settings: Settings, announce: Callable[[str, str], None]) -> int:
    """Run one process until it is stopped, and return its exit code.

    ``announce`` gets the addresses of the page and of the receiver once both listen. The code is 0
    after a graceful stop, 2 if folder, settings or state prevent it from working, 1 after a crash.
    """
    configure_logs(settings.log)
    try:
        with _open_files(), held(settings.serve.data):
            uvloop.run(_serve(_with_key(settings), announce))
    except REFUSALS as error:
        log.error("the process cannot work", reason=told_for(settings.serve.data, str(error)))
        return 2
    except Exception:
        log.exception("the process crashed")
        return 1
    return 0


@contextmanager
def _open_files() -> Iterator[None]:
    """Allow as many open files as the system does, since each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _with_key(settings: Settings) -> Settings:
    """The settings with the folder's own digest key, if they name none."""
    state = settings.state
    if state.key() or state.allow_empty_key:
        return settings
    key = {"digest_key_file": digest_key_file(settings.serve.data).absolute()}
    return settings.model_copy(update={"state": state.model_copy(update=key)})


async def _serve(settings: Settings, announce: Callable[[str, str], None]) -> None:
    """Run the process and its addresses until a signal; a second one ends it immediately."""
    check_doors(settings)
    database = Database(prepare_database(settings.serve.data))
    try:
        process = ServeProcess(settings, database)
        _stop_on_signals(process)
        async with listening(process, settings) as (page, receiver):
            announce(page, receiver)
            log.info(
                "stream-metrics serves",
                version=__version__,
                data=str(settings.serve.data.absolute()),
                page=page,
                receiver=receiver,
                engine=ENGINE,
            )
            await process.run()
    finally:
        await database.close()


def check_doors(settings: Settings) -> None:
    """Raise ``ValueError`` where others could send events without a token, or for its file."""
    serve = settings.serve
    token = serve.token()
    if not WebOptions(host=serve.host).loopback and not token:
        raise ValueError(
            f"anyone who can reach {serve.host} could send events: set serve.token_file "
            "(STREAM_METRICS_SERVE__TOKEN_FILE) to a file with a token, such as "
            "`openssl rand -hex 32` prints"
        )


def _stop_on_signals(process: ServeProcess) -> None:
    loop = asyncio.get_running_loop()
    stopping = False

    def on_signal(number: signal.Signals) -> None:
        nonlocal stopping
        if stopping:
            os._exit(128 + number)
        stopping = True
        log.info("stream-metrics stops", signal=number.name)
        process.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)


@asynccontextmanager
async def listening(process: ServeProcess, settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """Serve the page and receive events; the addresses of both."""
    options = web_options(settings)
    for warning in options.warnings():
        log.warning("web", problem=warning)
    app = make_app(process.pages)
    process.page.add_to(app)
    process.traces.page.add_to(app)
    process.conversations.add_to(app)
    doors = web.Application()
    process.receiver.add_to(doors)
    process.otlp.add_to(doors)
    try:
        pages = await serve(options, app)
    except OSError as error:
        raise _taken("web.host", options.host, "--port", options.port, error) from error
    try:
        server = LimitedServer(doors)
        host, port = settings.serve.host, settings.serve.otlp_port
        try:
            port = await server.start(host, port)
        except OSError as error:
            raise _taken("serve.host", host, "--otlp-port", port, error) from error
        page = WebOptions(host=options.host, port=pages.addresses[0][1])
        try:
            yield page.url, WebOptions(host=host, port=port).url.rstrip("/")
        finally:
            await server.stop()
    finally:
        await pages.cleanup()


def _taken(setting: str, host: str, flag: str, port: int, error: OSError) -> ValueError:
    return ValueError(
        f"cannot listen on {setting} {host}, port {port}: {error.strerror}. Choose another with "
        f"{flag}; 0 picks a free one"
    )
