"""A worker's page over a store in memory, served on a free port: for tests that ask or look."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from stream_metrics.core.alerts.calibration import FALSE_ALARMS, thresholds
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.events.record import Record
from stream_metrics.live.health import Health
from stream_metrics.live.links import CONVERSATION, fill_template
from stream_metrics.live.memory import MemoryConversationRecords, MemoryDeadLetters, MemoryStore
from stream_metrics.live.page.board import Board, Inputs
from stream_metrics.live.page.conversation_html import Site
from stream_metrics.live.page.conversation_server import ConversationServer
from stream_metrics.live.page.conversations import ConversationPages
from stream_metrics.live.page.evidence import Evidence, OthersMinutes
from stream_metrics.live.page.group import (
    BYTES_PER_SECOND,
    MAX_BYTES,
    Group,
    OwnedPartitions,
    StateSource,
)
from stream_metrics.live.page.server import MAX_STREAMS, WRITE_SECONDS, PageServer
from stream_metrics.live.page.worst import WorstConversations
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector
from stream_metrics.live.web import Pages, WebOptions, make_app, serve
from stream_metrics.live.worker.partition import StatePartition
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_state_partition import NOON_S

NOON_US = NOON_S * 1_000_000


@dataclass
class Showcase:
    """A worker of one partition, of ``total``, at a moment that stands until ``now_us`` is set.

    Its page shows other workers' partitions too if it is ``grouped``; how old they are goes by
    ``seconds``, which stands still as well. If it is ``readable``, so are its conversations.
    """

    partition: StatePartition
    store: MemoryStore
    registry: CollectorRegistry
    operations: Operations
    health: Health
    now_us: int = NOON_US
    total: int | None = 4
    max_streams: int = MAX_STREAMS
    write_seconds: float = WRITE_SECONDS
    interval_seconds: float = 0.2
    kept_seconds: float = 0.0
    conversation_url: str | None = None
    readable: bool = False
    texts: bool = True
    runbook_url: str | None = None
    grouped: bool = False
    seconds: float = 0.0
    behind_ms: int | None = 0
    loops: bool = True
    held_bytes: int = MAX_BYTES
    bytes_a_second: int = BYTES_PER_SECOND
    board: Board = field(init=False)
    collector: WindowCollector = field(init=False)
    worst: WorstConversations = field(init=False)
    recorded: MemoryConversationRecords = field(init=False)

    @classmethod
    async def new(
        cls,
        *events: Mapping[str, Any],
        number: int = 0,
        store: MemoryStore | None = None,
        **options: Any,
    ) -> Showcase:
        """One that has read ``events`` as the owner of partition ``number``."""
        store, registry = store or MemoryStore(), CollectorRegistry()
        letters, worker = MemoryDeadLetters(), f"worker-{number}:9464"
        partition = await opened(store, letters, 10_000, number=number, worker=worker)
        health = Health(reasons={})
        showcase = cls(partition, store, registry, Operations(registry), health, **options)
        await showcase.take(events)
        return showcase

    def __post_init__(self) -> None:
        others = OthersMinutes(self.source, self.owned, lambda: self.now_us // 1000)
        evidence = Evidence(
            lambda: {self.partition.number: self.partition.minutes} if self.total else {},
            self.owned,
            lambda: self.now_us // 1000,
            thresholds(FALSE_ALARMS),
            others=others if self.grouped else None,
            loops=lambda: self.loops,
            clock=lambda: self.seconds,
        )
        inputs = Inputs(
            self.registry,
            self.health,
            self.windows,
            self.owned,
            lambda: self.now_us,
            runbook_url=self.runbook_url,
            group=self.group() if self.grouped else None,
            runaways=lambda: self.worst.runaways(),
            loops=lambda: self.loops,
            evidence=evidence,
        )
        self.board = Board(inputs, interval_seconds=self.interval_seconds)
        self.collector = WindowCollector(self.windows, lambda: self.now_us)
        self.worst = WorstConversations(
            self.source,
            self.owned,
            lambda: self.now_us,
            kept_seconds=self.kept_seconds,
            conversation_url=self.conversation_url,
            readable=self.readable,
        )
        self.recorded = MemoryConversationRecords(EngineConfig().limits)

    def conversations(self) -> ConversationPages:
        """The pages of conversations."""
        link = partial(fill_template, self.conversation_url, CONVERSATION)
        site = Site("All figures", self.texts, link)
        return ConversationPages(
            lambda: self.recorded, EngineConfig, site, kept_seconds=self.kept_seconds
        )

    def runs_well(self) -> None:
        """Let the worker say that it is not behind, and how much memory Redis uses."""
        self.operations.lag(TOPIC, 0, 0, 0.0)
        self.operations.memory(2**30, 2**32)

    def source(self) -> StateSource:
        """The store."""
        return StateSource(self.store, EngineConfig(), total=self.total)

    def group(self) -> Group:
        """What the page knows of other workers."""
        return Group(
            f"worker-{self.partition.number}:9464",
            self.source,
            self.owned,
            lambda: self.now_us,
            DEFAULT_WINDOWS,
            held_bytes=self.held_bytes,
            bytes_a_second=self.bytes_a_second,
            clock=lambda: self.seconds,
        )

    async def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Let the worker read more events."""
        first = self.partition.positions[TOPIC].offset
        records = [
            Record(
                json.dumps(event).encode(),
                event["conversation_id"].encode(),
                int(event["occurred_at"] * 1000),
                TOPIC,
                0,
                first + at,
            )
            for at, event in enumerate(events)
        ]
        self.recorded.add(records)
        await self.partition.process(records, once)

    def windows(self) -> list[Windows]:
        """Those of the one partition, if it is owned."""
        return [self.partition.windows] if self.total is not None else []

    def owned(self) -> OwnedPartitions:
        """One of ``total``; none before the total is known."""
        return (
            OwnedPartitions()
            if self.total is None
            else OwnedPartitions(
                [self.partition.number], self.total, {self.partition.number: self.behind_ms}
            )
        )

    async def state(self, window: str | None = None, agent: str | None = None) -> dict[str, Any]:
        """The board's document."""
        document = await self.board.document(self.board.view(window, agent))
        found: dict[str, Any] = json.loads(document)
        return found

    @asynccontextmanager
    async def served(self, **options: Any) -> AsyncIterator[str]:
        """The address of the page, behind whatever ``WebOptions`` say."""
        app = make_app(Pages(self.registry, self.health, self.collector))
        PageServer(
            self.board,
            self.worst,
            max_streams=self.max_streams,
            write_seconds=self.write_seconds,
        ).add_to(app)
        if self.readable:
            ConversationServer(self.conversations(), self.operations.bug).add_to(app)
        runner = await serve(WebOptions(port=0, **options), app)
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
