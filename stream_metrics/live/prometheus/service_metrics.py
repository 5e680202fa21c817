"""The metrics that a worker and a bridge have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics

from stream_metrics.core.alerts.obstacles import kind_of
from stream_metrics.core.engine.config import OTHER
from stream_metrics.core.events.bugs import Bug
from stream_metrics.live.prometheus.catalogue import MAX_BUGS, PREFIX
from stream_metrics.live.prometheus.known import KnownGauge
from stream_metrics.live.worker.lag import KNOWN_SECONDS

log = structlog.get_logger(__name__)

UNKNOWN: Final = "no sample while that is unknown"
ENDS_TOLD: Final = (
    "Time at which the brokers last told where the topics end. "
    f"{KNOWN_SECONDS:.0f} seconds later the lag is unknown."
)


class Reading(NamedTuple):
    """Unread records and the age of the next one, by topic and partition; up to when all of them
    have been read; when the brokers last told the ends; and how often records were missing, by
    topic."""

    lag_records: Gauge
    lag_seconds: Gauge
    complete_until: KnownGauge
    ends_told: KnownGauge
    gaps: Counter

    def reset(self) -> None:
        """Nothing is known of any partition; what was counted stays."""
        self.lag_records.clear()
        self.lag_seconds.clear()
        self.complete_until.set(None)
        self.ends_told.set(None)


class ServiceMetrics:
    """Reading, dead letters and readiness of a service; a subclass creates these metrics.

    ``prefix`` begins the metrics' names, ``copying_prefix`` the reasons of the part that fills the
    internal topic.
    """

    prefix: ClassVar[str] = PREFIX
    copying_prefix: ClassVar[str] = "repartition_"

    _reading: Reading
    _repartitioned: Counter
    _dead: dict[str, Counter]
    _ready: Gauge
    _obstacles: dict[str, Gauge]

    def __init__(self, registry: CollectorRegistry) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # series that nobody reads
        self._registry = registry
        self._bugs = self._counter(
            "bugs",
            "Times that a bug was met, by the exception and the line of code; other counts those "
            f"after the first {MAX_BUGS}.",
            "kind",
        )
        self._bug_kinds = {OTHER: self._bugs.labels(OTHER)}

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(self.prefix + name, help, labels, registry=self._registry)

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return Gauge(self.prefix + name, help, labels, registry=self._registry)

    def _known_gauge(self, name: str, help: str) -> KnownGauge:
        return KnownGauge(self.prefix + name, help, self._registry)

    def bad_records(self, counts: Mapping[str, int]) -> None:
        """Count dead letters by reason."""
        for reason, number in counts.items():
            self._dead.get(reason, self._dead[OTHER]).inc(number)

    def bug(self, bug: Bug) -> None:
        """Count a bug; log the first one of a kind."""
        if bug.kind not in self._bug_kinds:
            log.error("a bug", kind=bug.kind, frames=bug.frames)
            room = len(self._bug_kinds) <= MAX_BUGS
            self._bug_kinds[bug.kind] = self._bugs.labels(bug.kind if room else OTHER)
        self._bug_kinds[bug.kind].inc()

    def repartitioned(self, counts: Mapping[str, int]) -> None:
        """Count records copied to the internal topic, by source topic."""
        for topic, number in counts.items():
            self._repartitioned.labels(topic).inc(number)

    def lag(self, topic: str, partition: int, records: int, seconds: float) -> None:
        """The lag of a partition."""
        self._reading.lag_records.labels(topic, partition).set(records)
        self._reading.lag_seconds.labels(topic, partition).set(seconds)

    def forget_partition(self, topic: str, partition: int) -> None:
        """Remove the series of a partition whose lag is unknown, or that another process reads."""
        self._reading.lag_records.remove(topic, partition)
        self._reading.lag_seconds.remove(topic, partition)

    def complete_until(self, seconds: float | None) -> None:
        """All partitions have been read up to this Unix time; None if that is unknown."""
        self._reading.complete_until.set(seconds)

    def ends_told(self, unix_seconds: float) -> None:
        """The brokers told the ends of all partitions at this Unix time."""
        self._reading.ends_told.set(unix_seconds)

    def offset_gap(self, topic: str) -> None:
        """Records that are needed next no longer exist in the log."""
        self._reading.gaps.labels(topic).inc()

    def obstructed(self, reasons: Iterable[str]) -> None:
        """Set what keeps the service from reading and writing, by the reasons of ``/readyz``."""
        named = {self._obstacle(reason) for reason in reasons}
        self._ready.set(not named)
        for reason, gauge in self._obstacles.items():
            gauge.set(reason in named)

    def _obstacle(self, reason: str) -> str:
        """The label of a reason."""
        kind = kind_of(reason, self.copying_prefix)
        return kind if kind in self._obstacles else OTHER
