"""Wires a bridge from the settings, and runs it as a process."""

from __future__ import annotations

import math
from typing import Final

import structlog
import uvloop
from prometheus_client import CollectorRegistry, ProcessCollector

from stream_metrics import __version__
from stream_metrics.cli.beside_pages import run_beside_pages
from stream_metrics.cli.bridge_metrics import LoggedBridgeMetrics
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.options import web_options
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.errors import KafkaRefused
from stream_metrics.clients.kafka.rights import bridge_rights
from stream_metrics.clients.kafka.topics import TopicsInvalid
from stream_metrics.core.alerts.obstacles import PASSING
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.events.key import is_labels
from stream_metrics.core.telemetry.interpreter import TraceInterpreter
from stream_metrics.core.telemetry.otlp.payloads import OtlpDecoder, route_by_trace
from stream_metrics.live.bridge.bridge import Assemblies, Bridge
from stream_metrics.live.bridge.traces import TraceInputs
from stream_metrics.live.health import Health, ProgressMonitor, run_together
from stream_metrics.live.kafka.cluster import Cluster
from stream_metrics.live.kafka.dead_letter_producer import KafkaDeadLetters
from stream_metrics.live.kafka.repartition import KafkaRepartition
from stream_metrics.live.kafka.traces import KafkaEventWriter, traces_source
from stream_metrics.live.page.bridge import BridgePage
from stream_metrics.live.web import Pages, make_app
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.inputs import InputOptions
from stream_metrics.live.worker.retry import ComponentReasons, RetryPolicy

REKEY: Final = "rekey"  # name of the part that fills the internal topic
INITIAL_REASONS: Final = {"assignment": "the bridge has not joined the group yet"}
FATAL_ERRORS: Final = (TopicsInvalid, KafkaRefused)

log = structlog.get_logger(__name__)


class BridgeRuntime:
    """One bridge and its parts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        traces = settings.bridge_kafka
        topics = dict.fromkeys(traces.topics + traces.state_topics)
        by_agent = settings.metrics.dimension == "agent"
        agents = settings.metrics.agents if by_agent else ()
        self.health = Health(settings.web.watchdog_seconds or math.inf, reasons=INITIAL_REASONS)
        self.page = BridgePage(self.health)
        self._metrics = LoggedBridgeMetrics(self.registry, self.page, topics, agents)
        self.pages = Pages(self.registry, self.health)
        self._retry = RetryPolicy(self.health, lambda: None)
        self._rekey: KafkaRepartition | None = None

    async def run(self) -> None:
        """Run until ``stop``; raises if the bridge must not start or continue."""
        settings, traces, clock = self.settings, self.settings.bridge_kafka, Clock()
        options = settings.otlp.options(settings.labels.grading)
        interpreter = TraceInterpreter(
            settings.otlp.mapping(), options, settings.engine_config().limits
        )
        assemblies = Assemblies(settings.bridge.bounds(settings.otlp))
        cluster = Cluster(traces, bridge_rights(traces, settings.kafka.topics))
        inputs = TraceInputs(
            traces_source(traces, cluster, settings.kafka.topics, self._retry, self.health),
            InputOptions(traces.group_id, traces.on_offset_gap, traces.start, in_order=False),
            self._retry,
            self.health,
            self._metrics,
            clock,
            assemblies,
        )
        first, last = settings.kafka.topics[0], settings.kafka.topics[-1]
        events = KafkaEventWriter(settings.kafka, lambda value: last if is_labels(value) else first)
        letters = KafkaDeadLetters(traces, clock.now_ms)
        bridge = Bridge(
            inputs,
            assemblies,
            OtlpDecoder(),
            interpreter,
            events,
            letters,
            self._retry,
            self._metrics,
            settings.bridge.topic,
        )
        if settings.bridge.rekey:
            part = ComponentReasons(REKEY, self.health)
            self._rekey = KafkaRepartition(
                traces, cluster, route_by_trace, part, self._metrics, clock
            )
        log.info(
            "stream-metrics bridge starts",
            version=__version__,
            engine=ENGINE,
            topic=settings.bridge.topic,
            group=settings.bridge.group_id,
            events=list(settings.kafka.topics),
            kafka=settings.kafka.bootstrap_servers,
            settle=settings.bridge.settle,
            trace_max=settings.bridge.trace_max,
            rekey=settings.bridge.rekey,
        )
        running = [inputs.run(bridge.turn)]
        parts: list[tuple[TraceInputs | KafkaRepartition, frozenset[str]]] = [(inputs, PASSING)]
        if self._rekey is not None:
            running.append(self._rekey.run())
            parts.append((self._rekey, frozenset(f"{REKEY}_{reason}" for reason in PASSING)))
        guard = ProgressMonitor(
            self.health,
            settings.web.watchdog_seconds,
            parts,
            lambda _: self._metrics.obstructed(self.health.unready_reasons()),
        )
        try:
            await run_together(running, self.stop, [guard.run()])
        finally:
            await inputs.stop()
            await events.stop()
            await letters.stop()

    def stop(self) -> None:
        """Finish the current round and leave the group."""
        self._retry.stop()
        if self._rekey is not None:
            self._rekey.stop()


async def _serve(settings: Settings) -> None:
    """Run a bridge and its pages until a signal."""
    running = BridgeRuntime(settings)
    app = make_app(running.pages)
    running.page.add_to(app)
    options = web_options(settings, settings.bridge.port)
    await run_beside_pages("bridge", running, app, options)


def run_bridge(settings: Settings) -> int:
    """Run a bridge until it is stopped, and return its exit code.

    0 after a graceful stop, 2 if settings or topics prevent it from working, 1 after a crash.
    """
    configure_logs(settings.log)
    try:
        uvloop.run(_serve(settings))
    except (*FATAL_ERRORS, ValueError) as error:
        log.error("the bridge cannot work", reason=str(error))
        return 2
    except Exception:
        log.exception("the bridge crashed")
        return 1
    return 0
