"""``stream-metrics demo``: plays a recorded day through the engine, shown in the terminal."""

from __future__ import annotations

import asyncio
import importlib.resources
import os
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from aiohttp import web
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.live import Live

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.demo_view import LEGEND, DayView
from stream_metrics.core.alerts.calibration import FALSE_ALARMS, thresholds
from stream_metrics.core.alerts.standing import Gathered, Standing
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.files import read_records
from stream_metrics.live.health import Health
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import MemoryConversationRecords, MemoryDeadLetters, MemoryStore
from stream_metrics.live.page import rules
from stream_metrics.live.page.board import Board, Inputs
from stream_metrics.live.page.conversation_html import Site
from stream_metrics.live.page.conversation_server import ConversationServer
from stream_metrics.live.page.conversations import ConversationPages
from stream_metrics.live.page.group import OwnedPartitions, StateSource
from stream_metrics.live.page.server import PageServer
from stream_metrics.live.page.worst import WorstConversations
from stream_metrics.live.ports import Position
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector
from stream_metrics.live.web import Pages, WebOptions, make_app, serve
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import PartitionOptions
from stream_metrics.live.worker.partition import StatePartition

TICK_SECONDS = 0.1
MINUTE_US = 60_000_000
PAGE_SECONDS = 1.0
PLAIN_EVERY_SECONDS = 5.0
INCIDENT_US, LOOP_US = (
    int(datetime(2025, 3, 18, hour, minute, tzinfo=UTC).timestamp() * 1e6)
    for hour, minute in ((14, 30), (15, 45))
)
"""Times of the recorded day at which all windows show the incidents: an agent finds the same pages
again and again, and another one asks the same again and again."""
PAUSES: Final = (
    (INCIDENT_US, "during the incident of it-desk", "on to 15:45, when another agent is in a loop"),
    (LOOP_US, "during the loop of sales-assist", "the rest of the day"),
)
"""When the clock stops, during what, and what comes then."""
IDENTITY = Identity("demo", 1, "demo", {})
RULES = tuple(rule for rule in rules.RULES if rule.name not in ("lag", "memory", "offset_gaps"))
"""The rules of the page, without those on Kafka and Redis, which the demo does not use."""


async def _without_retries(call: Callable[[], Awaitable[Any]]) -> Any:
    """Calls the memory store, which needs no retries."""
    return await call()


class RecordedDay:
    """The bundled recording, and the engine that processes it."""

    def __init__(self, records: list[Record], operations: Operations) -> None:
        self.records = sorted(records, key=lambda record: record.timestamp_ms or 0)
        self.start_us = 1000 * (self.records[0].timestamp_ms or 0)
        self.end_us = 1000 * (self.records[-1].timestamp_ms or 0)
        self.letters = MemoryDeadLetters()
        self.store = MemoryStore()
        self.now_us = self.start_us
        self.played = 0
        self.recorded = MemoryConversationRecords(EngineConfig().limits)
        self._operations = operations
        self._partitions: dict[int, StatePartition] = {}
        self._standing = Standing(thresholds(FALSE_ALARMS))
        self.gathered: Gathered | None = None

    async def open(self) -> None:
        """Claim the partitions of an empty memory store."""
        store = self.store
        options = PartitionOptions(
            IDENTITY, EngineConfig(), "", {"": b""}, DEFAULT_WINDOWS, require_key=False
        )
        names, cache = SharedNames(store, options), ConversationCache(1_000_000)
        starts: dict[int, dict[str, Position]] = {}
        for record in self.records:
            starts.setdefault(record.partition, {}).setdefault(
                record.topic, Position(record.offset)
            )
        for number, start in starts.items():
            partition = StatePartition(
                number, options, store, self.letters, cache, names, self._operations, b"demo"
            )
            partition.adopt(await store.claim(number, b"demo", start))
            self._partitions[number] = partition

    async def play_until(self, now_us: int) -> None:
        """Process all records up to a time of the recorded day."""
        self.now_us = now_us
        first = self.played
        while (
            self.played < len(self.records)
            and 1000 * (self.records[self.played].timestamp_ms or 0) <= now_us
        ):
            self.played += 1
        self.recorded.add(self.records[first : self.played])
        batches: dict[int, list[Record]] = {}
        for record in self.records[first : self.played]:
            batches.setdefault(record.partition, []).append(record)
        for number, records in batches.items():
            await self._partitions[number].process(records, _without_retries)
        minute = now_us // MINUTE_US - 1
        if self.gathered is None or self.gathered.minute < minute:
            hours = {number: one.minutes.hours() for number, one in self._partitions.items()}
            self.gathered = Gathered(minute, self._standing.update(hours, minute))

    @property
    def windows(self) -> list[Windows]:
        """The windows of all partitions."""
        return [partition.windows for partition in self._partitions.values()]

    @property
    def owned(self) -> OwnedPartitions:
        """All partitions."""
        return OwnedPartitions(sorted(self._partitions), len(self._partitions))


class _Told:
    """The evidence of the day that is played."""

    problem = ""

    def __init__(self, playing: Sequence[RecordedDay]) -> None:
        self._playing = playing

    @property
    def gathered(self) -> Gathered | None:
        return self._playing[-1].gathered if self._playing else None

    async def look(self) -> None:
        """Nothing: it is gathered as the day goes on."""

    read = look

    def close(self) -> None:
        """Nothing."""


def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How many seconds the day takes.")] = 45.0,
    forever: Annotated[
        bool, typer.Option("--forever", help="Repeat the day until Ctrl-C.")
    ] = False,
    keep: Annotated[
        bool | None,
        typer.Option(
            help="Stop the clock at 14:30 and 15:45, during incidents, and keep serving the page "
            "until Ctrl-C; Enter goes on. Default: yes in a terminal, otherwise no.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="Port of the page and of /metrics on localhost; 0 picks one."
        ),
    ] = 9464,
) -> None:
    """Play a recorded working day of four support agents through the engine.

    Watch it in the terminal and on the web page that every worker serves. Needs neither Kafka nor
    Redis: state is in memory. At 13:40 an index change makes one agent find the same pages again
    and again, and its SRR rises. At 15:20 another one begins to ask the same again and again.
    """
    try:
        with _echo_disabled():
            asyncio.run(_demo(seconds, port, forever=forever, keep=keep))
    except KeyboardInterrupt:
        return


async def _demo(seconds: float, port: int, *, forever: bool, keep: bool | None) -> None:
    recording = importlib.resources.files("stream_metrics.lab") / "data" / "day.jsonl.gz"
    with importlib.resources.as_file(recording) as path:
        records = list(read_records([str(path)]))
    registry = CollectorRegistry()
    operations, health = Operations(registry), Health(reasons={})
    playing: list[RecordedDay] = []

    def windows() -> list[Windows]:
        return playing[-1].windows if playing else []

    def now_us() -> int:
        return playing[-1].now_us if playing else 0

    def owned() -> OwnedPartitions:
        return playing[-1].owned if playing else OwnedPartitions()

    def source() -> StateSource | None:
        return StateSource(playing[-1].store, EngineConfig()) if playing else None

    pages = Pages(registry, health, WindowCollector(windows, now_us))
    inputs = Inputs(
        registry,
        health,
        windows,
        owned,
        now_us,
        rules=RULES,
        on_bug=operations.bug,
        evidence=_Told(playing),
    )
    board = Board(inputs, interval_seconds=PAGE_SECONDS)
    worst = WorstConversations(source, owned, now_us, kept_seconds=PAGE_SECONDS, readable=True)
    conversations = ConversationPages(
        lambda: playing[-1].recorded if playing else None,
        EngineConfig,
        Site("All figures"),
        kept_seconds=PAGE_SECONDS,
    )
    shown = (PageServer(board, worst), ConversationServer(conversations, operations.bug))
    runner, port = await _serve(port, pages, shown)
    console = Console()
    url = f"http://localhost:{port}/"
    if not console.is_terminal:
        console.print(f"Page: {url}\n{LEGEND}", soft_wrap=True)
    if keep is None:
        keep = console.is_terminal and not forever
    try:
        while True:
            day = RecordedDay(records, operations)
            await day.open()
            playing.append(day)
            del playing[:-1]
            show = Playback(day, seconds, DayView(day.start_us, day.end_us, port), health, console)
            for pause_us, what, rest in PAUSES if keep else ():
                await show.play(pause_us)
                listening = _in_foreground()
                if listening:
                    termios.tcflush(
                        sys.stdin, termios.TCIFLUSH
                    )  # what was typed before is no answer
                enter = f" Enter plays {rest}." if listening else ""
                console.print(f"The clock stops here, {what}: see {url}", soft_wrap=True)
                console.print(f"The page stays open.{enter} Ctrl-C ends the demo.")
                await _serving(health, until_enter=listening)
            await show.play(day.end_us)
            if not forever:
                break
        if keep:
            console.print(f"The page stays open: {url}   Ctrl-C ends the demo.", soft_wrap=True)
            await _serving(health, until_enter=False)
    finally:
        await runner.cleanup()


async def _serve(
    port: int, pages: Pages, shown: Iterable[PageServer | ConversationServer]
) -> tuple[web.AppRunner, int]:
    app = make_app(pages)
    for page in shown:
        page.add_to(app)
    try:
        runner = await serve(WebOptions(port=port), app)
    except OSError as error:
        raise UsageError(
            f"port {port} on localhost is in use ({error.strerror}). Choose another with --port; "
            'with 0 the demo picks one: make demo DEMO="--port 0"'
        ) from error
    return runner, runner.addresses[0][1]


def _in_foreground() -> bool:
    """Whether the process is in the foreground of a terminal, so that Enter can be pressed."""
    return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


@contextmanager
def _echo_disabled() -> Iterator[None]:
    """Keep the terminal from echoing ``^C``, which would disturb the panel."""
    if not _in_foreground():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    modes = termios.tcgetattr(sys.stdin)
    modes[3] &= ~termios.ECHOCTL
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, modes)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def _serving(health: Health, *, until_enter: bool) -> None:
    """Keep serving the page until Enter is pressed or the demo is cancelled."""
    loop, pressed = asyncio.get_running_loop(), asyncio.Event()
    if until_enter:
        loop.add_reader(sys.stdin, pressed.set)
    try:
        while not pressed.is_set():
            health.beat()  # the page shows whether the loop is alive
            await asyncio.sleep(TICK_SECONDS)
    finally:
        if until_enter:
            loop.remove_reader(sys.stdin)
    sys.stdin.readline()


@dataclass(frozen=True, slots=True)
class Playback:
    """Plays a day and shows it in the terminal. The whole day takes ``seconds``."""

    day: RecordedDay
    seconds: float
    view: DayView
    health: Health
    console: Console

    async def play(self, until_us: int) -> None:
        """Continue the day up to ``until_us``, and print the result."""
        day, view, console = self.day, self.view, self.console
        live = Live(
            view.render(console.width), console=console, refresh_per_second=10, transient=True
        )
        plain = not console.is_terminal
        if not plain:
            live.start()
        first_us, started = day.now_us, time.monotonic()
        speed = (day.end_us - day.start_us) / self.seconds
        said = 0.0
        try:
            while day.now_us < until_us:
                elapsed = time.monotonic() - started
                await day.play_until(min(until_us, first_us + int(elapsed * speed)))
                self.health.beat()
                rejected = len(day.letters.letters)
                view.update(day.windows, day.gathered, day.now_us, day.played, rejected)
                if plain and elapsed - said >= PLAIN_EVERY_SECONDS:
                    said = elapsed
                    console.print(view.line(), soft_wrap=True)
                elif not plain:
                    live.update(view.render(console.width))
                await asyncio.sleep(TICK_SECONDS)
        finally:
            if not plain:
                live.stop()
        console.print(view.render(console.width))
        console.print(view.closing())
