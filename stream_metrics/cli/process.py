"""A process that works on state: its pages and its loop, whatever keeps the state and the records.

``cli.runtime`` connects it to Kafka and Redis, ``cli.serving`` to a SQLite file.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from stream_metrics.cli.notifying import notify, recipient
from stream_metrics.cli.options import identity, partition_options, settings_for_state
from stream_metrics.cli.settings import Settings
from stream_metrics.core.alerts.minutes import ArrivedMinutes
from stream_metrics.core.alerts.obstacles import PASSING
from stream_metrics.core.compiled import ENGINE, slow
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.garbage_collection import collect_rarely
from stream_metrics.live.health import Health, MonitoredPart, ProgressMonitor, run_together
from stream_metrics.live.layout import Generation, Identity, InvalidTransition, Layout
from stream_metrics.live.page.board import Board, Inputs
from stream_metrics.live.page.evidence import Evidence, OthersMinutes
from stream_metrics.live.page.group import Group, OwnedPartitions, StateSource
from stream_metrics.live.page.notices import Charges
from stream_metrics.live.page.rules import RULES, Rule
from stream_metrics.live.page.server import PageServer
from stream_metrics.live.page.worst import WorstConversations
from stream_metrics.live.ports import (
    DeadLetters,
    Notes,
    Outputs,
    StateStore,
    StoreUnavailable,
    Superseded,
    Upstream,
)
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector
from stream_metrics.live.runaways import RunawayTurn, going_on
from stream_metrics.live.web import Pages
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.keying import KeyMonitor, Partitioner
from stream_metrics.live.worker.loop import Loop
from stream_metrics.live.worker.options import LoopOptions
from stream_metrics.live.worker.ownership.generation_state import GenerationState
from stream_metrics.live.worker.ownership.generations import join
from stream_metrics.live.worker.ownership.switch import (
    LAYOUT_CHECK_SECONDS,
    SETTLE_SECONDS,
    Fence,
    LayoutWatcher,
    NoFence,
    roll_forward,
)
from stream_metrics.live.worker.publication import Publication
from stream_metrics.live.worker.retry import RetryPolicy, Stopped
from stream_metrics.live.worker.source import Source
from stream_metrics.live.worker.surroundings import Surroundings

REPORT_SECONDS = 1.0

log = structlog.get_logger(__name__)


class WorkerProcess:
    """One live worker; with ``build``, it prefers the generation that is being built.

    ``topics`` are those that its metrics name, ``rules`` those of its page. ``readable``: there are
    pages of its conversations. ``loop`` and ``store``
    (of its generation) are set once it works.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[str],
        clock: Clock | None = None,
        watchdog_seconds: float | None = None,  # instead of those of the settings
        *,
        build: bool = False,
        rules: Sequence[Rule] = RULES,
        readable: bool = False,
    ) -> None:
        self.settings = settings
        self._build = build
        self._publication: Publication | None = None
        self.name = f"{socket.gethostname()}:{settings.web.port}"  # by which others call it
        self.registry = CollectorRegistry()
        if watchdog_seconds is None:
            watchdog_seconds = settings.web.watchdog_seconds
        self._watchdog_seconds = watchdog_seconds
        self.health = Health(watchdog_seconds or math.inf)
        ProcessCollector(registry=self.registry)
        self.operations = Operations(
            self.registry,
            dict.fromkeys(topics),
            settings.metrics.windows,
            settings.metrics.dimension,
            settings.metrics.pools,
        )
        self.retry = RetryPolicy(self.health, self.operations.redis_error)
        self.cache = ConversationCache(settings.state.cache_results)
        self.store: StateStore | None = None
        self.loop: Loop | None = None
        self._shown: StateSource | None = None  # what the page reads
        self.clock = clock or Clock()
        self._windows = WindowCollector(
            self._open_windows,
            self._now_us,
            configured=settings.metrics.agents,
            dimension=settings.metrics.dimension,
            retrieval=settings.engine_config().retrieval,
        )
        self.pages = Pages(self.registry, self.health, self._windows)
        self._loops = settings.engine_config().rules.tables.loops
        self._evidence = Evidence(
            self._open_minutes,
            self._owned,
            self.clock.now_ms,
            settings.alerts.thresholds(),
            others=OthersMinutes(lambda: self._shown, self._owned, self.clock.now_ms),
            pools=settings.metrics.pools,
            loops=lambda: self._loops,
            on_bug=self.operations.bug,
        )
        specs = settings.metrics.window_specs()
        inputs = Inputs(
            self.registry,
            self.health,
            self._open_windows,
            self._owned,
            self._now_us,
            specs,
            settings.metrics.agents,
            settings.metrics.dimension,
            rules,
            runbook_url=settings.web.runbook_url,
            group=Group(self.name, lambda: self._shown, self._owned, self._now_us, specs),
            pools=settings.metrics.pools,
            runaways=self._runaways,
            own_runaways=self.operations.runaways.going_on,
            loops=lambda: self._loops,
            process=self.about_process,
            incomplete_until_ms=self.incomplete_until_ms,
            due_turns=self.due_turns,
            gets_no_grades=self.gets_no_grades,
            on_bug=self.operations.bug,
            evidence=self._evidence,
        )
        self._worst = WorstConversations(
            lambda: None if self.health.building else self._shown,
            self._owned,
            self._now_us,
            conversation_url=settings.web.conversation_url,
            runaway_iterations=settings.alerts.runaway_iterations,
            readable=readable,
        )
        self._board = Board(inputs)
        self._told = recipient(settings, Charges(rules))
        self.page = PageServer(self._board, self._worst)

    def _now_us(self) -> int:
        return 1000 * self.clock.now_ms()

    def _runaways(self) -> list[RunawayTurn]:
        """The turns that run away: of other workers, as the worst conversations were last read."""
        ours = self.operations.runaways.going_on()
        return going_on([*self._worst.runaways(), *ours], self.clock.now_ms())

    def _open_windows(self) -> list[Windows]:
        loop, publication = self.loop, self._publication
        if loop is None or publication is None:
            return []
        return publication.windows(p.windows for p in loop.partitions)

    def _open_minutes(self) -> dict[int, ArrivedMinutes]:
        return {} if self.loop is None else {p.number: p.minutes for p in self.loop.partitions}

    def _owned(self) -> OwnedPartitions:
        loop = self.loop
        if loop is None:
            return OwnedPartitions()
        numbers = sorted(partition.number for partition in loop.partitions)
        return OwnedPartitions(numbers, loop.partition_total, loop.behind_ms())

    def about_process(self) -> Mapping[str, Any] | None:
        """What the page says of one process without servers; None for others."""
        return None

    def incomplete_until_ms(self) -> int | None:
        """When the latest day has ended whose sample a judge ended early; None if none is known."""
        return None

    def due_turns(self) -> int:
        """The turns that are due for a judge of this process and have no outcome yet."""
        return 0

    def gets_no_grades(self) -> bool:
        """Whether the endpoint of a judge of this process gives no grades."""
        return False

    # -- the work -------------------------------------------------------------------------------

    async def work_over(
        self, space: StateStore, begin: Callable[[], Awaitable[Identity]], topics: Iterable[str]
    ) -> None:
        """Work until ``stop`` on the state in ``space``; raises if that must not begin or go on.

        ``begin`` is asked for the identity of the first state, which is built from ``topics``.
        """
        try:
            generation, layout = await self._join(space, begin, topics)
            settings = settings_for_state(self.settings, generation.identity)
            log.info("deduplication tables", number=settings.dedup.in_force().number)
            try:
                await self.work(settings, generation, layout, space)
            except Superseded as superseded:
                with suppress(StoreUnavailable, InvalidTransition):  # whoever is next tries again
                    await roll_forward(space, generation, superseded, self.clock.now_ms())
                raise
        except Stopped:
            pass

    async def _join(
        self, space: StateStore, begin: Callable[[], Awaitable[Identity]], topics: Iterable[str]
    ) -> tuple[Generation, Layout]:
        """The generation of state to work on, and the layout; the first worker creates one."""
        read = dict.fromkeys(topics, 0)

        def ours(built: Identity) -> Identity:
            return identity(settings_for_state(self.settings, built), read)

        schema, now_ms = self.settings.state.write_schema, self.clock.now_ms
        return await join(space, ours, begin, schema, now_ms, self.retry, build=self._build)

    async def work(
        self, settings: Settings, generation: Generation, layout: Layout, space: StateStore
    ) -> None:
        """Work until ``stop`` on a generation, which was in use in this layout."""
        raise NotImplementedError

    def publish(
        self,
        space: StateStore,
        generation: Generation,
        letters: DeadLetters,
        outputs: Outputs | None = None,
    ) -> Publication:
        """What is shown and sent of a generation."""
        published = self._publication = Publication(space, generation, letters, outputs)
        return published

    def keep_state(
        self,
        settings: Settings,
        generation: Generation,
        layout: Layout,
        space: StateStore,
        published: Publication,
        partitioner: Callable[[bytes], int] | None = None,
        *,
        internal: bool = False,
    ) -> GenerationState:
        """The state of a generation; ``internal`` if ``partitioner`` is that of an internal
        topic."""
        ours, clock = generation.identity, self.clock
        options = replace(
            partition_options(settings),
            identity=replace(ours, schema_version=settings.state.write_schema),
            partitioner=partitioner,
            now_ms=clock.now_ms,
            latest_ms=clock.latest_ms,
            worker=self.name,
        )
        state = GenerationState(
            space,
            layout,
            generation,
            options,
            published,
            self.cache,
            self.operations,
            self.retry,
            now_ms=clock.now_ms,
            internal=partitioner if internal else None,
            on_muted=partial(self._muted, generation.number),
        )
        self.store = state.store
        self._loops = options.engine.rules.tables.loops
        self._shown = StateSource(state.store, options.engine, options.agents, ours.count)
        self.operations.partition_total(ours.count)
        self.health.generation = generation.number
        return state

    def loop_over(
        self,
        source: Source,
        state: GenerationState,
        options: LoopOptions,
        partitioners: Mapping[str, Partitioner],
        upstream: Upstream | None = None,
    ) -> Loop:
        """The loop that reads the records of a state; producers may use ``partitioners``."""
        loop = self.loop = Loop(
            source,
            state,
            options,
            Surroundings(self.retry, self.health, self.operations, self.clock),
            KeyMonitor(self.operations.keyed_differently, partitioners),
            upstream,
        )
        return loop

    async def run_loop(
        self,
        loop: Loop,
        state: GenerationState,
        fence: Fence | None = None,
        beside: Sequence[tuple[MonitoredPart, Coroutine[None, None, None], frozenset[str]]] = (),
        watchers: Sequence[Coroutine[None, None, None]] = (),
    ) -> None:
        """Run the loop until ``stop``, and other parts ``beside`` it, each with the reasons for
        which it may have to wait."""
        rest = partial(self.retry.pause, 2 * SETTLE_SECONDS)  # half of it at least
        watcher = state.watch(fence or NoFence(), rest)
        parts = [(loop, loop.run(), PASSING), *beside]
        monitored = [(part, reasons) for part, _, reasons in parts]
        guard = ProgressMonitor(
            self.health, self._watchdog_seconds, monitored, self.operations.stuck
        )
        running = [*(run for _, run, _ in parts), self._follow(watcher)]
        try:
            await run_together(running, self.stop, [*watchers, guard.run()])
        finally:
            self._shown = None

    def _muted(self, generation: int, is_muted: bool) -> None:
        """Tell whether the generation is being built, or in force."""
        self.health.building = is_muted
        self.operations.generation(generation, building=is_muted)

    async def _follow(self, watcher: LayoutWatcher) -> None:
        """Check the layout at intervals; raises ``Superseded`` if the worker is to end."""
        try:
            while not self.retry.stopping:
                await self.retry(watcher.look)
                await self.retry.pause(LAYOUT_CHECK_SECONDS)
        except Stopped:
            pass

    async def report(self) -> None:
        """Export the reasons of ``/readyz`` all the time, also before there is a loop, and while a
        call does not return."""
        while True:
            self.obstructed(self.health.unready_reasons())
            await asyncio.sleep(REPORT_SECONDS)

    def obstructed(self, reasons: Mapping[str, str]) -> None:
        """Export the reasons."""
        self.operations.obstructed(reasons)

    async def gather(self) -> None:
        """Export the evidence about agents while this worker owns the first partition of the state
        in force, until it is cancelled."""

        def tells() -> bool:
            return 0 in self._owned().numbers and not self.health.building

        await self._evidence.run(self.operations.evidence, tells)

    async def notify(self, notes: Notes) -> None:
        """Tell who is to be told what fires and what ends, until it is cancelled; ``notes`` keeps
        what was told."""
        counted, on_bug = self.operations.notified, self.operations.bug
        if self._told is not None:
            await notify(self._told, self._board, self.name, notes, counted, on_bug)

    def stop(self) -> None:
        """Finish the batch in flight and leave the group."""
        self.retry.stop()


def prepare_process() -> None:
    """Set what is the same for the whole process, and warn of slow code."""
    # Cached conversations are many long-lived objects, which each full collection traverses.
    # They have no reference cycles, so they are freed without it.
    collect_rarely()
    if (why := slow()) is not None:
        log.warning(f"the engine is {ENGINE}: {why}")
