"""Traces and scores in one process over a SQLite file; see ``on_disk``."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from prometheus_client import CollectorRegistry

from stream_metrics.cli.serving_traces import Traces
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events import Limits
from stream_metrics.core.telemetry import Options
from stream_metrics.core.telemetry.assembly import Assembly
from stream_metrics.core.telemetry.interpreter import TraceInterpreter
from stream_metrics.core.telemetry.otlp.logs import LogRecord
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from stream_metrics.live.health import Health
from stream_metrics.live.local.database import FileUnavailable
from stream_metrics.live.local.log import Entry, Log, Retention
from stream_metrics.live.local.scores import Scores
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.tables import EVENTS, SPANS, TOPICS
from stream_metrics.live.local.traces import READER
from stream_metrics.live.prometheus.receiver import ReceiverMetrics
from stream_metrics.live.worker.clock import Clock
from tests.sessions import records, traces
from tests.simulation.disk import ENDINGS, Ending, read_image
from tests.simulation.on_disk import Action, OnDisk
from tests.simulation.system import ImmediateRetry
from tests.telemetry import MAPPING

START_MS: Final = 1_718_020_800_000
SETTINGS: Final = Settings.model_validate(
    {
        "bridge": {"settle": "2s", "trace_max": "10s"},
        "labels": {"grades": {"relevant": 3}, "position": ["position"]},
    }
)
BRIDGE: Final = SETTINGS.bridge
ALL_THAT_IS_UNNEEDED: Final = Retention({EVENTS: 1 << 40, SPANS: 0}, 1 << 40, BRIDGE.known_ms)
TRACES: Final = 12

WEIGHTS: Final = {"send": 8, "score": 3, "bridge": 8, "wait": 3, "pause": 1, "trim": 3, "kill": 2}


@dataclass
class Process:
    """The process that has the file open."""

    log: Log
    traces: Traces


@dataclass
class TracedSystem(OnDisk):
    """See ``OnDisk``."""

    max_records: int = 5
    now_ms: int = START_MS
    seconds: float = 0.0
    sent: int = 0
    scored: list[str] = field(default_factory=list)  # traces and spans
    spans: dict[int, tuple[int, bytes]] = field(default_factory=dict)  # by offset

    def __post_init__(self) -> None:
        super().__post_init__()
        self.records = list(records(traces(self.seed, TRACES), self.seed))
        self.rng = Random(self.seed)
        self.process: Process

    async def _begin(self) -> None:
        database = self.database
        registry, health, log = CollectorRegistry(), Health(reasons={}), Log(database)
        retry = ImmediateRetry(health, self.disk.mend)
        made = Traces(
            SETTINGS,
            database,
            log,
            registry,
            health,
            ReceiverMetrics(registry, TOPICS),
            Clock(lambda: self.now_ms, lambda: self.seconds),
            retry,
            LocalSource(
                log,
                READER,
                [SPANS],
                retry,
                max_records=self.max_records,
                wait_seconds=0,
                hand_over=True,
            ),
            lambda: self.seconds,
        )
        self.process = Process(log, made)

    async def act(
        self, what: str, ending: Ending | None = None, at: int = 0, count: int = 1
    ) -> None:
        """See ``OnDisk.act``; the spans that are stored then are noted."""
        await super().act(what, ending, at, count)
        read = await self.process.log.read({SPANS: len(self.spans)}, 1 << 20, 1 << 40)
        for one in read[SPANS]:
            self.spans[one.offset] = one.timestamp_ms or 0, one.value or b""

    async def _do(self, what: str, count: int) -> None:
        process = self.process
        if what == "send":
            waiting = [Entry(one.key or b"", one.value) for one in self._next(count)]
            await self._until_stored(waiting, self._store)
        elif what == "score":
            await self._until_stored(self._scores(count), self._score)
        elif what == "bridge":
            self.seconds += 3
            await process.traces.turn()
        elif what == "wait":
            self.now_ms += 400 * count
        elif what == "pause":
            self.now_ms += BRIDGE.known_ms // 2
        elif what == "trim":
            with suppress(FileUnavailable):  # it is tried again later
                await process.log.trim(ALL_THAT_IS_UNNEEDED, self.now_ms)
        elif what == "kill":
            self.disk.image = read_image(self.database.path)

    def _next(self, count: int) -> list[Any]:
        found = self.records[self.sent : self.sent + count]
        self.sent += count
        self.now_ms += 10 * count
        return found

    def _store(self, entry: Entry) -> Any:
        return self.process.log.append(SPANS, [entry], lambda: self.now_ms)

    def _score(self, record: LogRecord) -> Any:
        return self.process.traces.scores.append([record], 1 << 20)

    def _scores(self, count: int) -> list[LogRecord]:
        """Scores of searches that were sent, each with a time of its own."""
        known = [
            span
            for _, value in self.spans.values()
            for span in spans_of(value)
            if span.attributes.get("openinference.span.kind") == "RETRIEVER"
        ]
        found = []
        for span in self.rng.sample(known, min(count, len(known))):
            self.scored.append(f"{span.trace_id}:{span.span_id}")
            attributes = {
                "gen_ai.evaluation.name": "Relevance",
                "gen_ai.evaluation.score.label": "relevant",
                "position": 0,
            }
            time_ns = (START_MS + len(self.scored)) * 1_000_000
            found.append(LogRecord(span.trace_id, span.span_id, time_ns, "", attributes))
        return found

    async def settle(self) -> None:
        """End all faults; the process reads what is left, and all traces are closed."""
        await self.act("send", count=len(self.records))
        while True:
            self.now_ms += BRIDGE.trace_max_ms
            await self.act("bridge")
            end = (await self.process.log.extents([SPANS]))[SPANS].end
            [commit, *_] = (await self.process.log.committed(READER)).values()
            if commit[0] == end and not self.process.traces.open_traces:
                break
        for _ in range(3 + end // self.max_records):  # one that has just started reads all again
            self.now_ms += 2 * BRIDGE.trace_max_ms
            await self.act("bridge")

    # -- what must hold

    def expected(self) -> list[bytes]:
        """The events of one pass over all spans."""
        assembly = Assembly(BRIDGE.bounds(SETTINGS.otlp))
        interpreter, closed = TraceInterpreter(MAPPING, Options(), Limits()), []
        for offset, (time_ms, value) in sorted(self.spans.items()):
            closed += assembly.read(offset, time_ms, spans_of(value))
        closed += assembly.finish()
        return [e.value for one in closed for e in interpreter.interpret(one).events]

    async def check(self) -> None:
        """Each event is there once, and each score of a result whose trace is kept is a label,
        once."""
        database = self.database
        found = (await self.process.log.read({EVENTS: 0}, 1 << 20, 1 << 40))[EVENTS]
        values = [one.value or b"" for one in found]
        labels = [value for value in values if b'"relevance_labels"' in value]
        expected = self.expected()
        assert len(set(labels)) == len(labels), "a label is there twice"
        assert Counter(values) - Counter(labels) == Counter(expected), "not as in one pass"
        assert await Scores(database, lambda: 0).waiting() == {}, "a score still waits"
        told = {
            f"{_trace(read)}:{search['search_id']}"
            for read in map(json.loads, expected)
            for search in read.get("searches", ())
            if search["results"]
        }
        given = [
            f"{_trace(read)}:{one['result_id'].partition('/')[0]}"
            for read in map(json.loads, labels)
            for one in read["labels"]
        ]
        first = (await self.process.log.extents([SPANS]))[SPANS].first
        cut = {
            span.trace_id
            for offset, (_, value) in self.spans.items()
            if offset < first
            for span in spans_of(value)
        }
        missing = [
            one
            for one in self.scored
            if one in told and one not in given and one.partition(":")[0] not in cut
        ]
        assert not missing, "a score is no label"
        assert len(given) <= len(self.scored), "a score is a label twice"


def _trace(event: dict[str, Any]) -> str:
    return str(event["event_id"]).partition(":")[0]


def system_of(seed: int, folder: Path) -> tuple[TracedSystem, list[Action]]:
    """A system and the actions to perform on it; the same for the same seed."""
    rng = Random(seed)
    system = TracedSystem(rng.randint(1, 9), folder, max_records=rng.choice((1, 5, 100)))
    system.disk.rng = rng
    drawn = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rng.randint(30, 80))
    return system, [
        (
            what,
            None if what == "kill" else rng.choice((*[None] * 4, *ENDINGS)),
            rng.randint(0, 3),
            rng.randint(1, 8),
        )
        for what in drawn
    ]
