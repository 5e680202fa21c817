"""The worker's path without Kafka: a state partition over a store, in this process."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry

from benchmarks.ran import RAN
from benchmarks.servers import DIGEST_KEY
from benchmarks.workload import EVENTS, LABELS
from stream_metrics.cli.options import identity
from stream_metrics.cli.settings import Settings
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.events.record import Record
from stream_metrics.core.garbage_collection import collect_rarely
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import Position, StateStore
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import PartitionOptions
from stream_metrics.live.worker.ownership.generations import begin
from stream_metrics.live.worker.partition import StatePartition

T = TypeVar("T")

TOKEN = b"benchmark"


async def once(call: Callable[[], Awaitable[T]]) -> T:
    """Makes store calls without retries: a failure ends the measurement."""
    return await call()


class InProcess:
    """One state partition that reads both topics; ``open`` before use.

    ``metrics`` are settings of that part.
    """

    def __init__(
        self, store: StateStore | None = None, metrics: Mapping[str, object] | None = None
    ) -> None:
        settings = Settings.model_validate(
            {"state": {"digest_key": DIGEST_KEY}, "metrics": metrics or {}}
        )
        self.settings = settings
        self.store = store or MemoryStore()
        key_id = settings.key_id()
        self._options = PartitionOptions(
            identity=identity(settings, {EVENTS: 1, LABELS: 1}),
            engine=settings.engine_config(),
            key_id=key_id,
            keys={key_id: settings.state.key()},
            windows=settings.metrics.window_specs(),
            ttl_ms=settings.state.ttl_ms,
            batch_records=settings.state.batch_records,
        )
        self._cache = ConversationCache(settings.state.cache_results)
        self.letters = MemoryDeadLetters()
        self.partition: StatePartition

    async def open(self) -> InProcess:
        """Claim the partition in the live generation, from offset 0."""
        collect_rarely()  # as the worker does
        RAN.note(ENGINE)
        generation = await begin(self.store, self._options.identity, 0)
        self.store = self.store.generation(generation)
        self.partition = StatePartition(
            0,
            self._options,
            self.store,
            self.letters,
            self._cache,
            SharedNames(self.store, self._options),
            Operations(CollectorRegistry(), (EVENTS, LABELS)),
            TOKEN,
        )
        start = {EVENTS: Position(0), LABELS: Position(0)}
        self.partition.adopt(await self.store.claim(0, TOKEN, start))
        return self

    async def process(self, records: Sequence[Record]) -> float:
        """Process the records; returns the CPU seconds."""
        started = time.process_time()
        await self.partition.process(records, once)
        return time.process_time() - started
