"""What one process does with traces: a bridge over its file, and labels from logged scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable
from shlex import quote
from typing import Final

from prometheus_client import CollectorRegistry

from stream_metrics.cli.bridge_metrics import LoggedBridgeMetrics
from stream_metrics.cli.settings import Settings
from stream_metrics.core.alerts.obstacles import BRIDGE_PART, PASSING
from stream_metrics.core.telemetry.interpreter import TraceInterpreter
from stream_metrics.core.telemetry.otlp.payloads import OtlpDecoder
from stream_metrics.live.bridge.bridge import Assemblies, Bridge
from stream_metrics.live.bridge.traces import TraceInputs
from stream_metrics.live.health import Health, MonitoredPart
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.letters import LocalDeadLetters
from stream_metrics.live.local.log import Log
from stream_metrics.live.local.scores import Labeller, Scores
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.tables import SPANS
from stream_metrics.live.local.traces import READER, LocalEvents
from stream_metrics.live.page.bridge import BridgePage
from stream_metrics.live.prometheus.bridge import BRIDGE
from stream_metrics.live.prometheus.receiver import ReceiverMetrics
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.inputs import InputOptions
from stream_metrics.live.worker.retry import ComponentReasons, RetryPolicy
from stream_metrics.live.worker.source import PartitionId

PATH: Final = "/traces"
_PLACE: Final = PartitionId(SPANS, 0)


class Traces:
    """Reads spans from the log, and writes the events and labels of their traces to it."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        log: Log,
        registry: CollectorRegistry,
        health: Health,
        counts: ReceiverMetrics,
        clock: Clock,
        retry: RetryPolicy | None = None,
        source: LocalSource | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self.scores = Scores(database, clock.now_ms)
        self.page = BridgePage(health, PATH, quote(str(settings.serve.data)))
        by_agent = settings.metrics.dimension == "agent"
        agents = settings.metrics.agents if by_agent else ()
        self._metrics = LoggedBridgeMetrics(registry, self.page, [SPANS], agents)
        reasons = ComponentReasons(BRIDGE_PART.removesuffix("_"), health)
        self._retry = retry or RetryPolicy(reasons, lambda: None)
        bounds = settings.bridge.bounds(settings.otlp)
        self._assemblies = Assemblies(bounds)
        mapping, options = settings.otlp.mapping(), settings.otlp.options(settings.labels.grading)
        limits = settings.engine_config().limits
        self._inputs = TraceInputs(
            source or LocalSource(log, READER, [SPANS], self._retry, hand_over=True),
            InputOptions(READER, settings.kafka.on_offset_gap, in_order=False),
            self._retry,
            reasons,
            self._metrics,
            clock,
            self._assemblies,
            monotonic=monotonic,
        )
        self._bridge = Bridge(
            self._inputs,
            self._assemblies,
            OtlpDecoder(),
            TraceInterpreter(mapping, options, limits),
            LocalEvents(database, log, clock.now_ms),
            LocalDeadLetters(database, clock.now_ms),
            self._retry,
            self._metrics,
            SPANS,
        )
        self._labeller = Labeller(
            self.scores,
            log,
            mapping,
            options,
            limits,
            self._is_closed,
            bounds,
            self._retry,
            _Counts(self._metrics, counts),
            clock.now_ms,
        )

    def part(self) -> tuple[MonitoredPart, Coroutine[None, None, None], frozenset[str]]:
        """What runs beside the worker's loop, and what it may have to wait for."""
        waits = frozenset(BRIDGE_PART + reason for reason in PASSING)
        return self._inputs, self._inputs.run(self.turn), waits

    async def turn(self) -> None:
        """Run a round."""
        await self._bridge.turn()
        await self._labeller.turn()

    def stop(self) -> None:
        """Finish the round that is under way."""
        self._retry.stop()

    @property
    def open_traces(self) -> int:
        """The number of traces to which spans may still be added."""
        return self._assemblies.sizes()[0]

    def lag_seconds(self) -> float | None:
        """How old the next spans to read are; None while that is unknown."""
        place = {"topic": SPANS, "partition": str(_PLACE.partition)}
        return self._registry.get_sample_value(BRIDGE + "lag_seconds", place)

    def _is_closed(self, trace_id: str, end: int) -> bool:
        """Whether a trace is closed, and its spans before an offset were read."""
        one = self._inputs.reading().get(_PLACE)
        return (
            one is not None
            and one.position.offset >= end
            and not self._assemblies.is_open(_PLACE.partition, trace_id)
        )

    def obstructed(self, reasons: Iterable[str]) -> None:
        """Export those of the reasons for which the bridge waits."""
        self._metrics.obstructed(one for one in reasons if one.startswith(BRIDGE_PART))


class _Counts:
    """Implements ``LabelCounts``."""

    def __init__(self, bridge: LoggedBridgeMetrics, receiver: ReceiverMetrics) -> None:
        self.refused = bridge.refused
        self.bug = bridge.bug
        self.labelled = receiver.labelled
