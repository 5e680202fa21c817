"""The metrics of a bridge: what it reads, interprets and refuses, and its progress."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Info

from stream_metrics import __version__
from stream_metrics.core.alerts.obstacles import BRIDGE as OF_BRIDGE
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.engine.config import DEFAULT_AGENT, MAX_AGENTS, OTHER
from stream_metrics.core.engine.windows import Names, names_with_series
from stream_metrics.core.events.decode import REASONS
from stream_metrics.core.telemetry.interpretation import Interpretation, Reason, agent_of
from stream_metrics.core.telemetry.interpreter import InterpretedTrace
from stream_metrics.live.prometheus.catalogue import PREFIX
from stream_metrics.live.prometheus.service_metrics import (
    ENDS_TOLD,
    UNKNOWN,
    Reading,
    ServiceMetrics,
)

BRIDGE: Final = PREFIX + "bridge_"
REFUSALS: Final[tuple[str, ...]] = get_args(Reason)
LETTERS: Final = ("no_key", "unreadable", *REASONS, OTHER)
OUTCOMES: Final = ("told", "refused", "left_out", "empty")


def outcome_of(interpreted: InterpretedTrace) -> str:
    """What became of a trace: one of ``OUTCOMES``."""
    if interpreted.events:
        return "told"
    refused = interpreted.interpretation.refused
    if not refused:
        return "empty"
    return "left_out" if set(refused) == {"left_out"} else "refused"


class BridgeMetrics(ServiceMetrics):
    """The metrics of a bridge; all calls come from the event loop's thread.

    ``topics``, which it reads, and ``agents`` have series from the start. Other agents get series
    with their first trace, up to the number that a worker allows; further ones are ``other``.
    """

    prefix = BRIDGE
    copying_prefix = "rekey_"

    def __init__(
        self,
        registry: CollectorRegistry,
        topics: Iterable[str] = (),
        agents: Iterable[str] = (),
    ) -> None:
        super().__init__(registry)
        self._names = Names(frozenset(), frozenset())
        self._of_agent: dict[str, dict[str, Counter]] = {}
        self._count_traces()
        self._measure_reading(topics)
        for agent in (OTHER, *agents):
            self._counts_of(self.agent_label(agent))
        for reason in REFUSALS:
            self._refused.labels(OTHER, reason)

    def _count_traces(self) -> None:
        counter, gauge = self._counter, self._gauge
        self._spans = counter("spans", "Spans read.")
        self._late = counter(
            "late_spans", "Spans that arrived after their trace was closed; they are not used."
        )
        self._traces = counter(
            "traces",
            "Traces closed, by agent: told if it has events; otherwise refused if something of it "
            "was refused, left_out if `otlp.scopes` leaves it out, else empty.",
            "agent",
            "outcome",
        )
        self._refused = counter(
            "refused",
            "Traces, turns and spans that were refused, by agent and reason.",
            "agent",
            "reason",
        )
        self._turns = counter("turns", "Turns converted to events.")
        self._searches = counter("searches", "Searches converted to events.")
        self._inferred = counter(
            "iterations_inferred", "Converted turns whose iterations only times separate."
        )
        self._conflicts = counter(
            "turn_conflicts", "Converted turns whose number another span of the conversation has."
        )
        self._forgotten = counter(
            "searches_forgotten",
            "Searches of services with several scopes that were forgotten so soon that a second "
            "recording of them would count, too.",
        )
        self._events = counter("events", "Events written to the input topics.")
        dead = counter("dead_letters", "Records and events rejected, by reason.", "reason")
        self._dead = {reason: dead.labels(reason) for reason in LETTERS}
        self._open = gauge("open_traces", "Traces that are not closed yet.")
        self._held = gauge("open_bytes", "Bytes of their spans.")

    def _measure_reading(self, topics: Iterable[str]) -> None:
        counter, gauge, place = self._counter, self._gauge, ("topic", "partition")
        self._reading = Reading(
            gauge("lag_records", f"Unread records of the partition; {UNKNOWN}.", *place),
            gauge("lag_seconds", f"Age of the next record to read; {UNKNOWN}.", *place),
            self._known_gauge(
                "complete_until_timestamp_seconds",
                f"Time up to which all partitions of this bridge have been read; {UNKNOWN}.",
            ),
            self._known_gauge("log_ends_timestamp_seconds", ENDS_TOLD),
            counter(
                "offset_gaps", "Times that records needed next were missing from the log.", "topic"
            ),
        )
        self._repartitioned = counter(
            "rekeyed_records", "Records copied to the internal topic, by trace.", "topic"
        )
        for topic in topics:
            self._reading.gaps.labels(topic)
            self._repartitioned.labels(topic)
        self._ready = gauge("ready", "1 if this bridge is reading and writing, else 0.")
        obstacles = gauge(
            "obstacles",
            "1 if this reason keeps the bridge from reading and writing, else 0.",
            "reason",
        )
        self._obstacles = {reason: obstacles.labels(reason) for reason in OF_BRIDGE}
        Info(BRIDGE + "build", "Version and build of this bridge.", registry=self._registry).info(
            {
                "version": __version__,
                "python": platform.python_version(),
                "engine": ENGINE,
            }
        )

    def agent_label(self, agent: str | None) -> str:
        """The label of the agent."""
        name = agent or DEFAULT_AGENT
        if name not in self._names.agents and name != OTHER:
            agents = names_with_series((name,), self._names.agents, MAX_AGENTS)
            self._names = self._names._replace(agents=agents)
        return self._names.agent(name)

    def _counts_of(self, agent: str) -> dict[str, Counter]:
        """The trace counters of an agent by outcome; creates the series of all outcomes."""
        if agent not in self._of_agent:
            counts = {outcome: self._traces.labels(agent, outcome) for outcome in OUTCOMES}
            self._of_agent[agent] = counts
        return self._of_agent[agent]

    # -- worker.bridge.Counts -------------------------------------------------------------------

    def trace_closed(self, interpreted: InterpretedTrace) -> None:
        """Count a closed trace."""
        interpretation = interpreted.interpretation
        self.refused(interpretation)
        self._counts_of(self.agent_label(agent_of(interpretation)))[outcome_of(interpreted)].inc()
        self._turns.inc(len(interpretation.turns))
        self._searches.inc(sum(len(turn.searches) for turn in interpretation.turns))
        self._inferred.inc(sum(turn.iterations_inferred for turn in interpretation.turns))
        self._conflicts.inc(interpreted.conflicts)
        self._forgotten.inc(interpreted.forgotten)

    def refused(self, interpretation: Interpretation) -> None:
        """Count refusals."""
        for (agent, reason), number in interpretation.by_agent.items():
            self._refused.labels(self.agent_label(agent), reason).inc(number)

    def read(self, spans: int, late: int) -> None:
        """Count spans read, and late ones among them."""
        self._spans.inc(spans)
        self._late.inc(late)

    def open_traces(self, traces: int, open_bytes: int) -> None:
        """Set the number of open traces, and the bytes of their spans."""
        self._open.set(traces)
        self._held.set(open_bytes)

    def produced(self, events: int) -> None:
        """Count events stored in the input topics."""
        self._events.inc(events)
