"""Wires a live worker from the settings, without a framework, and runs it."""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry, ProcessCollector

from stream_metrics import __version__
from stream_metrics.cli.notifying import notify
from stream_metrics.cli.options import (
    identity,
    kafka_settings_for,
    partition_options,
    partitioner,
    redis_options,
    settings_for_state,
    web_options,
)
from stream_metrics.cli.settings import Settings, mask_url
from stream_metrics.clients.kafka.records import record_of
from stream_metrics.clients.kafka.topics import check_state_topics, state_topic_counts
from stream_metrics.core.alerts.obstacles import PASSING
from stream_metrics.core.compiled import ENGINE, slow
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.garbage_collection import collect_rarely
from stream_metrics.live.health import Health, ProgressMonitor, run_together
from stream_metrics.live.kafka.cluster import Cluster
from stream_metrics.live.kafka.cluster import Group as Membership
from stream_metrics.live.kafka.dead_letter_producer import KafkaDeadLetters
from stream_metrics.live.kafka.group_source import KafkaSource
from stream_metrics.live.kafka.internal_topic import KafkaUpstream
from stream_metrics.live.kafka.output import KafkaFence, KafkaOutputs
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.kafka.repartition import KafkaRepartition
from stream_metrics.live.layout import Generation, Identity, InvalidTransition, Layout
from stream_metrics.live.page.board import Board, Inputs
from stream_metrics.live.page.group import Group, OwnedPartitions, StateSource
from stream_metrics.live.page.server import PageServer
from stream_metrics.live.page.worst import WorstConversations
from stream_metrics.live.ports import StateStore, StoreRefused, StoreUnavailable, Superseded
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector
from stream_metrics.live.redis.check import check, max_memory_ratio, memory_bytes
from stream_metrics.live.redis.connect import connect
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.runaways import RunawayTurn, going_on
from stream_metrics.live.web import Pages
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.keying import KeyMonitor
from stream_metrics.live.worker.loop import Loop
from stream_metrics.live.worker.options import LoopOptions
from stream_metrics.live.worker.ownership.build import pause_reason
from stream_metrics.live.worker.ownership.generation_state import GenerationState
from stream_metrics.live.worker.ownership.generations import join
from stream_metrics.live.worker.ownership.switch import (
    LAYOUT_CHECK_SECONDS,
    SETTLE_SECONDS,
    LayoutWatcher,
    NoFence,
    roll_forward,
)
from stream_metrics.live.worker.publication import Publication
from stream_metrics.live.worker.repartition import route
from stream_metrics.live.worker.retry import ComponentReasons, RetryPolicy, Stopped
from stream_metrics.live.worker.surroundings import Surroundings

WATCH_SECONDS = 2.0
REPORT_SECONDS = 1.0
REPARTITION = "repartition"  # the part that fills the internal topic
REPARTITION_WAITING = frozenset(f"{REPARTITION}_{reason}" for reason in PASSING)

log = structlog.get_logger(__name__)


class UnsafeStore(Exception):
    """Redis is set up so that it may lose state; says what to change."""


class Runtime:
    """One live worker; with ``build``, it prefers the generation that is being built.

    ``source``, ``loop`` and ``store`` (of its generation) are set once it works.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        watchdog_seconds: float | None = None,  # instead of those of the settings
        *,
        build: bool = False,
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
            dict.fromkeys(settings.kafka.topics + settings.kafka.state_topics),
            settings.metrics.windows,
            settings.metrics.dimension,
            settings.metrics.pools,
        )
        self.retry = RetryPolicy(self.health, self.operations.redis_error)
        self.cache = ConversationCache(settings.state.cache_results)
        self.source: KafkaSource | None = None
        self.store: StateStore | None = None
        self.loop: Loop | None = None
        self._repartition: KafkaRepartition | None = None
        self._shown: StateSource | None = None  # what the page reads
        self._clock = clock or Clock()
        self._windows = WindowCollector(
            self._open_windows,
            self._now_us,
            configured=settings.metrics.agents,
            dimension=settings.metrics.dimension,
            retrieval=settings.engine_config().retrieval,
        )
        self.pages = Pages(self.registry, self.health, self._windows)
        self._loops = settings.engine_config().rules.tables.loops
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
            runbook_url=settings.web.runbook_url,
            group=Group(self.name, lambda: self._shown, self._owned, self._now_us, specs),
            pools=settings.metrics.pools,
            runaways=self._runaways,
            loops=lambda: self._loops,
            on_bug=self.operations.bug,
        )
        self._worst = WorstConversations(
            lambda: None if self.health.building else self._shown,
            self._owned,
            self._now_us,
            conversation_url=settings.web.conversation_url,
            runaway_iterations=settings.alerts.runaway_iterations,
        )
        self._board = Board(inputs)
        self.page = PageServer(self._board, self._worst)

    def _now_us(self) -> int:
        return 1000 * self._clock.now_ms()

    def _runaways(self) -> list[RunawayTurn]:
        """The turns that run away: of other workers, as the worst conversations were last read."""
        ours = self.operations.runaways.going_on()
        return going_on([*self._worst.runaways(), *ours], self._clock.now_ms())

    def _open_windows(self) -> list[Windows]:
        loop, publication = self.loop, self._publication
        if loop is None or publication is None:
            return []
        return publication.windows(p.windows for p in loop.partitions)

    def _owned(self) -> OwnedPartitions:
        loop = self.loop
        if loop is None:
            return OwnedPartitions()
        numbers = sorted(partition.number for partition in loop.partitions)
        return OwnedPartitions(numbers, loop.partition_total, loop.behind_ms())

    async def run(self) -> None:
        """Work until ``stop``; raises if the worker must not start or continue."""
        # Cached conversations are many long-lived objects, which each full collection traverses.
        # They have no reference cycles, so they are freed without it.
        collect_rarely()
        settings = self.settings
        log.info(
            "stream-metrics worker starts",
            version=__version__,
            page=web_options(settings).url,
            topics=list(settings.kafka.topics),
            group=settings.kafka.group_id,
            kafka=settings.kafka.bootstrap_servers,
            redis=mask_url(settings.redis.url),
            engine=ENGINE,
        )
        if (why := slow()) is not None:
            log.warning(f"the engine is {ENGINE}: {why}")
        if not settings.state.key():
            log.warning(
                "the digest key is empty: anyone who can read Redis can check whether a guessed "
                "text is in the state"
            )
        store = connect(redis_options(settings))
        counted, on_bug = self.operations.notified, self.operations.bug
        beside = [
            asyncio.create_task(self._report()),
            asyncio.create_task(
                notify(settings, self._board, self.name, lambda: store, counted, on_bug)
            ),
        ]
        try:
            await self._check_store(store)
            generation, layout = await self._join(settings, store)
            settings = settings_for_state(settings, generation.identity)
            try:
                await self._work(settings, generation, layout, store)
            except Superseded as superseded:
                with suppress(StoreUnavailable, InvalidTransition):  # whoever is next tries again
                    await roll_forward(store, generation, superseded, self._clock.now_ms())
                raise
        except Stopped:
            pass
        finally:
            for task in beside:
                task.cancel()
            await store.close()

    async def _join(self, settings: Settings, store: RedisStore) -> tuple[Generation, Layout]:
        """The generation of state to work on, and the layout; the first worker creates one."""
        topics = dict.fromkeys(settings.kafka.state_topics, 0)

        def ours(built: Identity) -> Identity:
            return identity(settings_for_state(settings, built), topics)

        async def first() -> Identity:
            return identity(settings, await self._counts(Cluster(settings.kafka), settings))

        schema, now_ms = settings.state.write_schema, self._clock.now_ms
        return await join(store, ours, first, schema, now_ms, self.retry, build=self._build)

    async def _counts(self, cluster: Cluster, settings: Settings) -> dict[str, int]:
        """The partition counts of the topics; waits until the brokers are available."""
        while True:
            try:
                await cluster.check_rights()
                counts = await cluster.partition_counts(settings.kafka.state_topics)
            except (KafkaError, OSError, TimeoutError) as error:
                why = await cluster.explain(error)
                self.health.set("kafka", f"cannot connect: {why}")
                await self.retry.pause(1.0)
                continue
            self.health.clear("kafka")
            check_state_topics(settings.kafka, counts)
            return counts

    async def _work(
        self, settings: Settings, generation: Generation, layout: Layout, space: RedisStore
    ) -> None:
        """Work until ``stop`` on a generation, which was in use in this layout."""
        base, ours, clock = settings.kafka, generation.identity, self._clock
        kafka = kafka_settings_for(base, generation)
        settings = settings.model_copy(update={"kafka": kafka})
        log.info("deduplication tables", number=settings.dedup.in_force().number)
        letters = KafkaDeadLetters(kafka, clock.now_ms)
        outputs = KafkaOutputs(kafka) if kafka.output_topic else None
        published = self._publication = Publication(space, generation, letters, outputs)
        options = replace(
            partition_options(settings),
            identity=replace(ours, schema_version=settings.state.write_schema),
            partitioner=partitioner(ours),
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
            internal=options.partitioner if kafka.repartition_topic is not None else None,
            on_muted=partial(self._muted, generation.number),
        )
        self.store = state.store
        self._loops = options.engine.rules.tables.loops
        self._shown = StateSource(state.store, options.engine, options.agents, ours.count)
        self.operations.partition_total(ours.count)
        cluster = Cluster(kafka)
        upstream = None
        if kafka.repartition_topic is not None:
            upstream = KafkaUpstream(kafka)
            self._repartition = KafkaRepartition(
                kafka,
                cluster,
                partial(route, limits=options.engine.limits),
                ComponentReasons(REPARTITION, self.health),
                self.operations,
                clock,
                published.letters,
            )
        self.source = KafkaSource(
            kafka,
            cluster,
            Membership(kafka.group_id, kafka.state_topics, RangePartitionAssignor),
            partial(state_topic_counts, kafka),
            partial(
                record_of,
                internal_topic=kafka.repartition_topic,
                value_format=kafka.value_format,
            ),
            self.retry,
            self.health,
            on_assigned=self.operations.rebalanced,
            on_committed=partial(self.operations.stage, "commit"),
        )
        loop = self.loop = Loop(
            self.source,
            state,
            LoopOptions(
                kafka.state_topics,
                kafka.on_offset_gap,
                kafka.start,
                kafka.commit_interval_seconds,
                in_order=upstream is None,
            ),
            Surroundings(self.retry, self.health, self.operations, clock),
            KeyMonitor(self.operations.keyed_differently, PARTITIONERS),
            upstream,
        )
        self.health.generation = generation.number
        fence = KafkaFence(base) if base.output_topic is not None else NoFence()
        rest = partial(self.retry.pause, 2 * SETTLE_SECONDS)  # half of it at least
        watcher = state.watch(fence, rest)
        parts: list[tuple[Loop | KafkaRepartition, frozenset[str]]] = [(loop, PASSING)]
        if self._repartition is not None:
            parts.append((self._repartition, REPARTITION_WAITING))
        guard = ProgressMonitor(self.health, self._watchdog_seconds, parts, self.operations.stuck)
        running = [*(part.run() for part, _ in parts), self._follow(watcher)]
        try:
            await run_together(running, self.stop, [self._watch(space, state), guard.run()])
        finally:
            await letters.stop()
            self._shown = None
            if outputs is not None:
                await outputs.stop()
            if upstream is not None:
                await upstream.stop()

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

    async def _watch(self, store: RedisStore, state: GenerationState) -> None:
        """Check Redis at intervals, even if there is nothing to write."""
        while not self.retry.stopping:
            try:
                used, limit = await memory_bytes(store)
                share = await max_memory_ratio(store)
                state.build_pauses = pause_reason(share, paused=bool(state.build_pauses))
            except (StoreUnavailable, StoreRefused) as error:
                self.health.set("redis", str(error))
                self.operations.memory(None, None)
            else:
                if "redis" not in self.retry.waiting:
                    self.health.clear("redis")
                self.operations.memory(used, limit)
            self.operations.cache(len(self.cache), self.cache.results)
            try:
                await self.retry.pause(WATCH_SECONDS)
            except Stopped:
                return

    async def _report(self) -> None:
        """Export the reasons of ``/readyz`` all the time, also before there is a loop, and while a
        call does not return."""
        while True:
            self.operations.obstructed(self.health.unready_reasons())
            await asyncio.sleep(REPORT_SECONDS)

    async def _check_store(self, store: RedisStore) -> None:
        async def reachable() -> None:
            with suppress(StoreRefused):  # the check below reports it in detail
                await store.layout()

        await self.retry(reachable)
        for problem in await check(store):
            if not problem.fatal or self.settings.force:
                log.warning("redis", problem=problem.message)
            else:
                raise UnsafeStore(f"{problem.message} (--force starts the worker anyway)")

    def stop(self) -> None:
        """Finish the batch in flight and leave the group."""
        self.retry.stop()
        if self._repartition is not None:
            self._repartition.stop()
