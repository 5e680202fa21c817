"""How far topics are read, as a worker and a bridge both report it."""

from __future__ import annotations

from prometheus_client import Counter, Gauge


class ReadingMetrics:
    """The methods of ``worker.lag.Gauges``; a subclass creates the metrics."""

    _lag_records: Gauge
    _lag_seconds: Gauge
    _complete_until: Gauge
    _gaps: Counter

    def lag(self, topic: str, partition: int, records: int, seconds: float) -> None:
        """How far a partition is behind."""
        self._lag_records.labels(topic, partition).set(records)
        self._lag_seconds.labels(topic, partition).set(seconds)

    def forget_partition(self, topic: str, partition: int) -> None:
        """Another process reads the partition now."""
        self._lag_records.remove(topic, partition)
        self._lag_seconds.remove(topic, partition)

    def complete_until(self, seconds: float) -> None:
        """All partitions have been read up to this Unix time."""
        self._complete_until.set(seconds)

    def offset_gap(self, topic: str) -> None:
        """Records that are needed next are gone from the log."""
        self._gaps.labels(topic).inc()
