"""Runs the engine, its page and the receiver in one process, over a SQLite file."""

from __future__ import annotations

import asyncio
import re
import resource
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog
import uvloop
from aiohttp import web

from stream_metrics import __version__
from stream_metrics.cli.judging import check_judge
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.options import identity, web_options
from stream_metrics.cli.process import WorkerProcess, prepare_process
from stream_metrics.cli.serving_judge import LocalJudge
from stream_metrics.cli.serving_rules import rules_over
from stream_metrics.cli.serving_traces import Traces
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.signals import stop_on_signals
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.engine.codec import UnknownSchema
from stream_metrics.live.layout import Generation, Identity, Layout, UnreadableLayout
from stream_metrics.live.links import CONVERSATION, fill_template
from stream_metrics.live.local.connections import MAX_CONNECTIONS, LimitedServer
from stream_metrics.live.local.conversations import LocalConversationRecords
from stream_metrics.live.local.database import (
    Database,
    FileDamaged,
    FileRefused,
    FileUnavailable,
    large_wal,
)
from stream_metrics.live.local.folder import (
    FolderRefused,
    digest_key_file,
    held,
    prepare_database,
    told_for,
)
from stream_metrics.live.local.letters import LocalDeadLetters
from stream_metrics.live.local.log import Kept, Log, Retention
from stream_metrics.live.local.otlp import OtlpReceiver
from stream_metrics.live.local.receiver import Doors, Receiver
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.local.tables import EVENTS, SPANS, TOPICS
from stream_metrics.live.page.conversation_html import Site
from stream_metrics.live.page.conversation_server import ConversationServer
from stream_metrics.live.page.conversations import ConversationPages
from stream_metrics.live.page.one_process import document
from stream_metrics.live.ports import StateStore, Superseded
from stream_metrics.live.prometheus.receiver import ReceiverMetrics
from stream_metrics.live.web import WebOptions, guard, make_app
from stream_metrics.live.worker.ahead import AheadDecoder
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.options import LoopOptions
from stream_metrics.live.worker.ownership.identity import OtherIdentity
from stream_metrics.live.worker.retry import Stopped

TRIM_SECONDS: Final = 10.0
AHEAD_MS: Final = 3_600_000
_TOKEN: Final = re.compile("[!-~]+")
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
        rules = rules_over(settings.serve.data, lambda: self.traces)
        settings = settings.in_one_process()
        super().__init__(settings, TOPICS, clock, rules=rules, readable=True)
        self._database = database
        self.records = Log(database)
        self.address: str | None = None  # of the receiver, once it listens
        self._was_ahead = False
        self._kept: Kept | None = None
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
        self.judge: LocalJudge | None = None
        if settings.judge.model:
            self.judge = LocalJudge(settings, database, self.records, self.registry, self.clock)
        self.otlp = OtlpReceiver(self.receiver, self.records, self.traces.scores, self.clock.now_ms)

    def _conversations(self) -> ConversationPages:
        """The pages of conversations, by the settings of the state that the page shows."""
        records = LocalConversationRecords(self._database, self.clock.now_ms)
        link = partial(fill_template, self.settings.web.conversation_url, CONVERSATION)
        return ConversationPages(
            lambda: None if self._shown is None else records,
            lambda: self.settings.engine_config() if self._shown is None else self._shown.config,
            Site("All figures", shows_texts(self.settings), link),
        )

    def about_process(self) -> Mapping[str, Any] | None:
        """See ``WorkerProcess.about_process``."""
        serve = self.settings.serve
        if self.address is None:
            return None
        return document(
            self.address,
            str(serve.data),
            self._metrics.received,
            self.traces.open_traces,
            self._kept,
            {EVENTS: serve.retention, SPANS: serve.spans_retention},
            serve.max_bytes,
            token=serve.token() is not None,
        )

    def incomplete_until_ms(self) -> int | None:
        """See ``WorkerProcess.incomplete_until_ms``."""
        return None if self.judge is None else self.judge.incomplete_until_ms

    def due_turns(self) -> int:
        """See ``WorkerProcess.due_turns``."""
        return 0 if self.judge is None else self.judge.due_turns

    def gets_no_grades(self) -> bool:
        """See ``WorkerProcess.gets_no_grades``."""
        return self.judge is not None and self.judge.gets_no_grades

    async def run(self) -> None:
        """Work until ``stop``; raises if the process must not start or go on."""
        prepare_process()
        store = LocalStore(self._database)
        parts = (self.report(), self.gather(), self.notify(store))
        beside = [asyncio.create_task(one) for one in parts]

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
        state = self.keep_state(settings, generation, layout, space, published)
        self.receiver.ahead = AheadDecoder(state.options)
        source = LocalSource(self.records, generation.group, [EVENTS], self.retry, hand_over=True)
        options = LoopOptions(
            (EVENTS,),
            settings.kafka.on_offset_gap,
            commit_interval_seconds=settings.kafka.commit_interval_seconds,
        )
        loop = self.loop_over(source, state, options, {})
        watchers = [self._keep()] if self.judge is None else [self._keep(), self.judge.run()]
        await self.run_loop(loop, state, beside=[self.traces.part()], watchers=watchers)

    def obstructed(self, reasons: Mapping[str, str]) -> None:
        """See ``WorkerProcess.obstructed``."""
        self.operations.obstructed(reasons)
        self.traces.obstructed(reasons)

    def stop(self) -> None:
        """See ``WorkerProcess.stop``."""
        self.traces.stop()
        if self.judge is not None:
            self.judge.stop()
        super().stop()

    async def _keep(self) -> None:
        """Trim the log, and tell how full the cache is, at intervals."""
        with suppress(Stopped):
            while not self.retry.stopping:
                try:
                    await self.trim()
                except FileUnavailable as error:
                    log.warning("old records cannot be deleted", why=str(error))
                if why := large_wal(self._database.path):
                    log.warning("the file grows", why=why)
                self.tell_clock()
                self.operations.cache(len(self.cache), self.cache.results)
                await self.retry.pause(TRIM_SECONDS)

    def tell_clock(self) -> None:
        """Log it, once, if the clock was far ahead when something was received."""
        partitions = self.loop.partitions if self.loop is not None else ()
        ahead_ms = max((one.record_time_ms for one in partitions), default=0) - self.clock.now_ms()
        was_ahead, self._was_ahead = self._was_ahead, ahead_ms > AHEAD_MS
        if self._was_ahead and not was_ahead:
            log.warning(
                "the clock was ahead when something was received",
                hours=round(ahead_ms / 3_600_000, 1),
                why="until then, what comes is too old for windows and alerts; rows are right",
            )

    async def trim(self) -> None:
        """Delete what is too old or too much, and tell how large the file is."""
        serve = self.settings.serve
        ages_ms = {EVENTS: serve.retention_ms, SPANS: serve.spans_retention_ms}
        retention = Retention(ages_ms, serve.max_bytes, self.settings.bridge.known_ms)
        try:
            while await self.records.trim(retention, self.clock.now_ms()):
                await asyncio.sleep(0)
        finally:
            kept = self._kept = await self.records.kept()
            self._metrics.kept(kept.file_bytes, kept.aged, kept.crowded)


def run_serve(settings: Settings, announce: Callable[[str, str], None]) -> int:
    """Run one process until it is stopped, and return its exit code.

    ``announce`` gets the addresses of the page and of the receiver once both listen. The code is 0
    after a graceful stop, 2 if folder, settings or state prevent it from working, 1 after a crash.
    """
    configure_logs(settings.log)
    try:
        check_doors(settings)
        if settings.judge.model:
            check_judge(settings)
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
    path = digest_key_file(settings.serve.data).absolute()
    state = state.model_copy(update={"digest_key_file": path})
    if state.missing_key():
        raise FolderRefused(
            f"{path} has no key, so anyone who can read the folder could check whether a guessed "
            "text is in its state. Restore the file; if the folder has no state yet, delete it"
        )
    return settings.model_copy(update={"state": state})


async def _serve(settings: Settings, announce: Callable[[str, str], None]) -> None:
    """Run the process and its addresses until a signal; a second one ends it immediately."""
    database = Database(prepare_database(settings.serve.data))
    try:
        process = ServeProcess(settings, database)
        stop_on_signals("stream-metrics", process.stop)
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


def shows_texts(settings: Settings) -> bool:
    """Whether texts are shown: not where anyone who can reach the page could read them."""
    options = web_options(settings)
    return settings.serve.show_texts and (options.loopback or bool(options.users))


def check_doors(settings: Settings) -> None:
    """Raise ``ValueError`` where others could send events without a token, or for its file."""
    serve = settings.serve
    token = serve.token()
    if token is not None and not _TOKEN.fullmatch(token):
        raise ValueError(
            f"serve.token_file {serve.token_file}: write one token to it, of ASCII characters "
            "without spaces, such as `openssl rand -hex 32` prints"
        )
    if not WebOptions(host=serve.host).loopback and not token:
        raise ValueError(
            f"anyone who can reach {serve.host} could send events: set serve.token_file "
            "(STREAM_METRICS_SERVE__TOKEN_FILE) to a file with a token, such as "
            "`openssl rand -hex 32` prints"
        )


@asynccontextmanager
async def listening(process: ServeProcess, settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """Serve the page and receive events; the addresses of both."""
    options = web_options(settings)
    for warning in options.warnings():
        log.warning("web", problem=warning)
    if settings.serve.show_texts and not shows_texts(settings):
        log.warning("web", problem="without users, texts of conversations are left out")
    app = make_app(process.pages)
    process.page.add_to(app)
    process.traces.page.add_to(app)
    process.conversations.add_to(app)
    doors = web.Application()
    process.receiver.add_to(doors)
    process.otlp.add_to(doors)
    tls = guard(options, app)
    pages, server = LimitedServer(app, most := most_connections()), LimitedServer(doors, most)
    try:
        page_port = await pages.start(options.host, options.port, tls)
    except OSError as error:
        raise _taken("web.host", options.host, "--port", options.port, error) from error
    try:
        host, port = settings.serve.host, settings.serve.otlp_port
        try:
            port = await server.start(host, port)
        except OSError as error:
            raise _taken("serve.host", host, "--otlp-port", port, error) from error
        page = replace(options, port=page_port)
        process.address = WebOptions(host=host, port=port).url.rstrip("/")
        try:
            yield page.url, process.address
        finally:
            await server.stop()
    finally:
        await pages.stop()


def most_connections() -> int:
    """How many each address may have, so that the file can still be opened."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft < 0 else min(MAX_CONNECTIONS, soft // 4)


def _taken(setting: str, host: str, flag: str, port: int, error: OSError) -> ValueError:
    return ValueError(
        f"cannot listen on {setting} {host}, port {port}: {error.strerror}. Choose another with "
        f"{flag}; 0 picks a free one"
    )
