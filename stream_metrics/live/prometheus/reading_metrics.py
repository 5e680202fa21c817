"""The metrics of reading topics, which a worker and a bridge have in common."""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client import Counter, Gauge


class Reading(NamedTuple):
    """Unread records and the age of the next one, by topic and partition; up to when all of them
    have been read; and how often records were missing, by topic."""

    lag_records: Gauge
    lag_seconds: Gauge
    complete_until: Gauge
    gaps: Counter

    def reset(self) -> None:
        """Nothing is known of any partition; what was counted stays."""
        self.lag_records.clear()
        self.lag_seconds.clear()
        self.complete_until.set(0)


class ReadingMetrics:
    """The methods of ``worker.lag.Gauges``; a subclass creates the metrics."""

    _reading: Reading

    def lag(self, topic: str, partition: int, records: int, seconds: float) -> None:
        """The lag of a partition."""
        self._reading.lag_records.labels(topic, partition).set(records)
        self._reading.lag_seconds.labels(topic, partition).set(seconds)

    def forget_partition(self, topic: str, partition: int) -> None:
        """Remove the series of a partition that another process reads now."""
        self._reading.lag_records.remove(topic, partition)
        self._reading.lag_seconds.remove(topic, partition)

    def complete_until(self, seconds: float) -> None:
        """All partitions have been read up to this Unix time."""
        self._reading.complete_until.set(seconds)

    def offset_gap(self, topic: str) -> None:
        """Records that are needed next no longer exist in the log."""
        self._reading.gaps.labels(topic).inc()
