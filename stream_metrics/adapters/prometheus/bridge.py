"""The metrics of a bridge: what it reads, tells and refuses, and how far it is."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, disable_created_metrics

from stream_metrics import __version__
from stream_metrics.adapters.prometheus.catalogue import PREFIX
from stream_metrics.adapters.prometheus.reading import ReadingMetrics
from stream_metrics.engine.config import OTHER
from stream_metrics.events.decode import REASONS
from stream_metrics.telemetry.teller import Telling
from stream_metrics.telemetry.told import Reason

BRIDGE: Final = PREFIX + "bridge_"
REFUSALS: Final[tuple[str, ...]] = get_args(Reason)
LETTERS: Final = ("no_key", "unreadable", *REASONS, OTHER)
OUTCOMES: Final = ("told", "refused", "empty")
OBSTACLES: Final = (
    "assignment", "dead_letters", "fetch", "halted", "kafka", "loop", "rights", "topic", "topics",
    "watchdog", OTHER,
)  # fmt: skip


class BridgeMetrics(ReadingMetrics):
    """What a bridge reports about itself; all calls come from the event loop's thread.

    ``topics``, from which it reads, have series from the start.
    """

    def __init__(self, registry: CollectorRegistry, topics: Iterable[str] = ()) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # series that nobody reads
        self._registry = registry
        self._count_traces()
        self._measure_reading(topics)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(BRIDGE + name, help, labels, registry=self._registry)

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return Gauge(BRIDGE + name, help, labels, registry=self._registry)

    def _count_traces(self) -> None:
        counter, gauge = self._counter, self._gauge
        self._spans = counter("spans", "Spans read.")
        self._late = counter(
            "late_spans", "Spans that arrived after their trace was closed; they are not used."
        )
        traces = counter(
            "traces",
            "Traces closed: told if events were made of a turn, refused if something of the trace "
            "was refused and nothing told, empty otherwise.",
            "outcome",
        )
        self._traces = {outcome: traces.labels(outcome) for outcome in OUTCOMES}
        refused = counter(
            "refused", "Traces, turns and spans that were refused, by reason.", "reason"
        )
        self._refused = {reason: refused.labels(reason) for reason in REFUSALS}
        self._turns = counter("turns", "Turns told.")
        self._searches = counter("searches", "Searches told.")
        self._inferred = counter(
            "iterations_inferred", "Turns told whose iterations only time tells apart."
        )
        self._conflicts = counter(
            "turn_conflicts", "Turns told whose number another span of the conversation has."
        )
        self._events = counter("events", "Events written to the input topics.")
        dead = counter("dead_letters", "Records and events rejected, by reason.", "reason")
        self._dead = {reason: dead.labels(reason) for reason in LETTERS}
        self._open = gauge("open_traces", "Traces that are not closed yet.")
        self._held = gauge("open_bytes", "Bytes of their spans.")

    def _measure_reading(self, topics: Iterable[str]) -> None:
        counter, gauge = self._counter, self._gauge
        self._lag_records = gauge(
            "lag_records", "Unread records of the partition.", "topic", "partition"
        )
        self._lag_seconds = gauge(
            "lag_seconds", "Age of the next record to read.", "topic", "partition"
        )
        self._gaps = counter(
            "offset_gaps", "Times that records needed next were missing from the log.", "topic"
        )
        self._rekeyed = counter(
            "rekeyed_records", "Records copied to the internal topic, by trace.", "topic"
        )
        for topic in topics:
            self._gaps.labels(topic)
            self._rekeyed.labels(topic)
        self._complete_until = gauge(
            "complete_until_timestamp_seconds",
            "Time up to which all partitions of this bridge have been read; 0 if unknown.",
        )
        self._ready = gauge("ready", "1 if this bridge is reading and writing, else 0.")
        obstacles = gauge(
            "obstacles",
            "1 if this reason keeps the bridge from reading and writing, else 0.",
            "reason",
        )
        self._obstacles = {reason: obstacles.labels(reason) for reason in OBSTACLES}
        Info(BRIDGE + "build", "Version of this bridge.", registry=self._registry).info(
            {"version": __version__, "python": platform.python_version()}
        )

    # -- worker.bridge.Counts -------------------------------------------------------------------

    def told(self, telling: Telling) -> None:
        """A trace was closed."""
        told = telling.told
        for reason, number in told.refused.items():
            self._refused[reason].inc(number)
        outcome = "told" if telling.events else "refused" if told.refused else "empty"
        self._traces[outcome].inc()
        self._turns.inc(len(told.turns))
        self._searches.inc(sum(len(turn.searches) for turn in told.turns))
        self._inferred.inc(sum(turn.iterations_inferred for turn in told.turns))
        self._conflicts.inc(telling.conflicts)

    def read(self, spans: int, late: int) -> None:
        """So many spans were read, and so many of them were late."""
        self._spans.inc(spans)
        self._late.inc(late)

    def held(self, traces: int, held_bytes: int) -> None:
        """What is open."""
        self._open.set(traces)
        self._held.set(held_bytes)

    def produced(self, events: int) -> None:
        """So many events are stored in the input topics."""
        self._events.inc(events)

    def bad_records(self, counts: Mapping[str, int]) -> None:
        """Dead letters, by reason."""
        for reason, number in counts.items():
            self._dead.get(reason, self._dead[OTHER]).inc(number)

    def repartitioned(self, counts: Mapping[str, int]) -> None:
        """So many copies of records of each topic are on the internal one."""
        for topic, number in counts.items():
            self._rekeyed.labels(topic).inc(number)

    # -- the process ----------------------------------------------------------------------------

    def obstructed(self, reasons: Iterable[str]) -> None:
        """What keeps the bridge from reading and writing, by the names of the health page."""
        named = {self._obstacle(reason) for reason in reasons}
        self._ready.set(not named)
        for reason, gauge in self._obstacles.items():
            gauge.set(reason in named)

    def _obstacle(self, reason: str) -> str:
        part = reason.removeprefix("rekey_")
        if part in self._obstacles:
            return part
        return "halted" if part.rpartition("-")[2].isdecimal() else OTHER
