"""Connects a live worker to Kafka and Redis, without a framework, and runs it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import structlog
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from stream_metrics import __version__
from stream_metrics.cli.client_options import partitioner, redis_options
from stream_metrics.cli.options import identity, kafka_settings_for, web_options
from stream_metrics.cli.process import WorkerProcess, prepare_process
from stream_metrics.cli.settings import Settings, mask_url
from stream_metrics.clients.kafka.records import record_of
from stream_metrics.clients.kafka.topics import check_state_topics, state_topic_counts
from stream_metrics.core.alerts.obstacles import PASSING
from stream_metrics.core.compiled import ENGINE
from stream_metrics.live.kafka.cluster import Cluster
from stream_metrics.live.kafka.cluster import Group as Membership
from stream_metrics.live.kafka.dead_letter_producer import KafkaDeadLetters
from stream_metrics.live.kafka.group_source import KafkaSource
from stream_metrics.live.kafka.internal_topic import KafkaUpstream
from stream_metrics.live.kafka.output import KafkaFence, KafkaOutputs
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.kafka.repartition import KafkaRepartition
from stream_metrics.live.layout import Generation, Identity, Layout
from stream_metrics.live.ports import StateStore, StoreRefused, StoreUnavailable
from stream_metrics.live.redis.check import check, max_memory_ratio, memory_bytes
from stream_metrics.live.redis.connect import connect
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.options import LoopOptions
from stream_metrics.live.worker.ownership.build import pause_reason
from stream_metrics.live.worker.ownership.generation_state import GenerationState
from stream_metrics.live.worker.repartition import route
from stream_metrics.live.worker.retry import ComponentReasons, Stopped

WATCH_SECONDS = 2.0
REPARTITION = "repartition"  # the part that fills the internal topic
REPARTITION_WAITING = frozenset(f"{REPARTITION}_{reason}" for reason in PASSING)

log = structlog.get_logger(__name__)


class UnsafeStore(Exception):
    """Redis is set up so that it may lose state; says what to change."""


class Runtime(WorkerProcess):
    """One live worker over Kafka and Redis; ``source`` is set once it works."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        watchdog_seconds: float | None = None,  # instead of those of the settings
        *,
        build: bool = False,
    ) -> None:
        topics = settings.kafka.topics + settings.kafka.state_topics
        super().__init__(settings, topics, clock, watchdog_seconds, build=build)
        self.source: KafkaSource | None = None
        self._repartition: KafkaRepartition | None = None

    async def run(self) -> None:
        """Work until ``stop``; raises if the worker must not start or continue."""
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
        prepare_process()
        if not settings.state.key():
            log.warning(
                "the digest key is empty: anyone who can read Redis can check whether a guessed "
                "text is in the state"
            )
        store = connect(redis_options(settings))
        parts = (self.report(), self.gather(), self.notify(store))
        beside = [asyncio.create_task(one) for one in parts]

        async def first() -> Identity:
            return identity(settings, await self._counts(Cluster(settings.kafka), settings))

        try:
            await self._check_store(store)
            await self.work_over(store, first, settings.kafka.state_topics)
        except Stopped:
            pass
        finally:
            for task in beside:
                task.cancel()
            await store.close()

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

    async def work(
        self, settings: Settings, generation: Generation, layout: Layout, space: StateStore
    ) -> None:
        """See ``WorkerProcess.work``."""
        assert isinstance(space, RedisStore)
        base, ours, clock = settings.kafka, generation.identity, self.clock
        kafka = kafka_settings_for(base, generation)
        settings = settings.model_copy(update={"kafka": kafka})
        letters = KafkaDeadLetters(kafka, clock.now_ms)
        outputs = KafkaOutputs(kafka) if kafka.output_topic else None
        published = self.publish(space, generation, letters, outputs)
        copies = kafka.repartition_topic is not None
        state = self.keep_state(
            settings, generation, layout, space, published, partitioner(ours), internal=copies
        )
        cluster = Cluster(kafka)
        upstream = None
        if copies:
            upstream = KafkaUpstream(kafka)
            self._repartition = KafkaRepartition(
                kafka,
                cluster,
                partial(route, limits=settings.limits.in_force()),
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
        options = LoopOptions(
            kafka.state_topics,
            kafka.on_offset_gap,
            kafka.start,
            kafka.commit_interval_seconds,
            in_order=upstream is None,
        )
        loop = self.loop_over(self.source, state, options, PARTITIONERS, upstream)
        beside = []
        if (copying := self._repartition) is not None:
            beside.append((copying, copying.run(), REPARTITION_WAITING))
        fence = KafkaFence(base) if base.output_topic is not None else None
        try:
            await self.run_loop(loop, state, fence, beside, [self._watch(space, state)])
        finally:
            await letters.stop()
            if outputs is not None:
                await outputs.stop()
            if upstream is not None:
                await upstream.stop()

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
        """See ``WorkerProcess.stop``."""
        super().stop()
        if self._repartition is not None:
            self._repartition.stop()
