"""Kafka topics as a source of recorded records."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import Final, Literal

from stream_metrics.cli.kafka import kafka_errors
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry.otlp.payloads import is_payload
from stream_metrics.lab.sources.kafka.mark import Mark
from stream_metrics.lab.sources.kafka.topic_reader import TopicReader
from stream_metrics.lab.sources.otlp.topics import PartitionRange

SEEN_RECORDS: Final = 100
"""The number of first records of a topic that show whether it has traces."""


class TopicSource:
    """Kafka topics as a source."""

    in_kafka: Literal[True] = True

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[str],
        marks: tuple[Mark, Mark],
        around_ms: int = 0,
    ) -> None:
        self.names = tuple(topics)
        self._settings = settings
        self._marks = marks
        self._source = TopicReader(settings.kafka, topics, *marks, around_ms)

    @property
    def offsets(self) -> int:
        """The number of offsets to read; 0 before reading starts."""
        return self._source.offsets

    @property
    def spans(self) -> dict[str, dict[str, list[int]]]:
        """The first offset and the end of what was read, by topic and partition."""
        found: dict[str, dict[str, list[int]]] = {}
        for (topic, number), span in sorted(self._source.spans.items()):
            found.setdefault(topic, {})[str(number)] = [span.first, span.end]
        return found

    @property
    def missed(self) -> list[str]:
        """Messages about partitions whose requested records no longer exist."""
        return [
            f"{topic}/{number} begins at offset {span.first}: {span.missed:,} before it are gone"
            for (topic, number), span in sorted(self._source.spans.items())
            if span.missed
        ]

    def part(self, record: Record) -> PartitionRange:
        """The range that is read of the record's partition."""
        place = record.topic, record.partition
        first = self._source.logs[place].first
        is_cut = self._source.starts[place] == first > 0
        span = self._source.spans[place]
        return PartitionRange(span.first, span.end, is_cut)

    @property
    def has_traces(self) -> bool:
        """Whether OTLP traces are among the first records; raises ``UsageError``."""
        source = TopicReader(self._settings.kafka, self.names, *self._marks)
        with kafka_errors(self._settings), closing(source.records()) as records:
            return any(is_payload(record.value) for record in islice(records, SEEN_RECORDS))

    def records(self) -> Generator[Record, None, None]:
        """The records in the order of timestamps; raises ``UsageError``."""
        with closing(self.numbered()) as numbered:
            for _, record in numbered:
                yield record

    def numbered(self) -> Generator[tuple[int, Record], None, None]:
        """The records with their numbers, from 1."""
        with kafka_errors(self._settings), closing(self._source.records()) as records:
            yield from enumerate(records, 1)
