"""The metrics of what one process without servers receives and keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from stream_metrics.core.events.decode import REASONS
from stream_metrics.live.prometheus.catalogue import PREFIX

RECEIVER: Final = PREFIX + "receiver_"
LOG: Final = PREFIX + "log_"
LOG_KINDS: Final = ("score", "other")
WHY_DELETED: Final = ("age", "size")


@dataclass(slots=True)
class Received:
    """The events and spans that were accepted since the start, and the events that were not."""

    events: int = 0
    spans: int = 0
    refused: int = 0


class ReceiverMetrics:
    """Counts requests and events, and shows the size of the file; ``topics`` are its logs."""

    def __init__(self, registry: CollectorRegistry, topics: Collection[str]) -> None:
        self.received = Received()
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
        self._spans = Counter(
            RECEIVER + "spans", "Spans that were accepted and stored.", registry=registry
        )
        self._rejected_spans = Counter(
            RECEIVER + "rejected_spans",
            "Spans without a trace id, which belong to no trace.",
            registry=registry,
        )
        self._log_records = Counter(
            RECEIVER + "log_records",
            "Log records that were accepted: scores, which wait until their trace is told, and "
            "others, which are not used.",
            ("kind",),
            registry=registry,
        )
        self._labels = Counter(
            RECEIVER + "scores_labelled", "Scores that became labels.", registry=registry
        )
        for kind in LOG_KINDS:
            self._log_records.labels(kind)
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
        self.received.events += events

    def refused(self, reasons: Mapping[str, int]) -> None:
        """Events were refused."""
        for reason, number in reasons.items():
            self._refused.labels(reason).inc(number)
            self.received.refused += number

    def spans(self, accepted: int, rejected: int) -> None:
        """Spans were stored, of which some belong to no trace."""
        self._spans.inc(accepted)
        self.received.spans += accepted
        self._rejected_spans.inc(rejected)

    def log_records(self, scores: int, others: int) -> None:
        """Log records were accepted."""
        for kind, number in zip(LOG_KINDS, (scores, others), strict=True):
            self._log_records.labels(kind).inc(number)

    def labelled(self, scores: int) -> None:
        """Scores have become labels."""
        self._labels.inc(scores)

    def kept(self, file_bytes: int, aged: Mapping[str, int], crowded: Mapping[str, int]) -> None:
        """The size of the file, and what was ever deleted from it."""
        self._file.set(file_bytes)
        for why, deleted in zip(WHY_DELETED, (aged, crowded), strict=True):
            for topic, number in deleted.items():
                self._deleted.labels(topic, why).set(number)
