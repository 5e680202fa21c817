"""The metrics of what one process without servers receives and keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from stream_metrics.core.events.decode import REASONS
from stream_metrics.live.prometheus.catalogue import PREFIX

RECEIVER: Final = PREFIX + "receiver_"
LOG: Final = PREFIX + "log_"
WHY_DELETED: Final = ("age", "size")


class ReceiverMetrics:
    """Counts requests and events, and shows the size of the file; ``topics`` are its logs."""

    def __init__(self, registry: CollectorRegistry, topics: Collection[str]) -> None:
        self._requests = Counter(
            RECEIVER + "requests",
            "Requests with events, traces or logs, by path and status.",
            ("path", "status"),
            registry=registry,
        )
        self._accepted = Counter(
            RECEIVER + "events", "Events that were accepted and stored.", registry=registry
        )
        self._refused = Counter(
            RECEIVER + "refused_events",
            "Events that were refused, and not stored, by reason.",
            ("reason",),
            registry=registry,
        )
        self._file = Gauge(
            LOG + "file_bytes", "Bytes of the file that hold something.", registry=registry
        )
        self._deleted = Gauge(
            LOG + "deleted_records",
            "Records that were ever deleted from the log: because of their age, or of the file's "
            "size.",
            ("topic", "why"),
            registry=registry,
        )
        for reason in REASONS:
            self._refused.labels(reason)
        for topic in topics:
            for why in WHY_DELETED:
                self._deleted.labels(topic, why)

    def answered(self, path: str, status: int) -> None:
        """A request was answered."""
        self._requests.labels(path, status).inc()

    def accepted(self, events: int) -> None:
        """Events were stored."""
        self._accepted.inc(events)

    def refused(self, reasons: Mapping[str, int]) -> None:
        """Events were refused."""
        for reason, number in reasons.items():
            self._refused.labels(reason).inc(number)

    def kept(self, file_bytes: int, aged: Mapping[str, int], crowded: Mapping[str, int]) -> None:
        """The size of the file, and what was ever deleted from it."""
        self._file.set(file_bytes)
        for why, deleted in zip(WHY_DELETED, (aged, crowded), strict=True):
            for topic, number in deleted.items():
                self._deleted.labels(topic, why).set(number)
