"""The log of ``stream-metrics serve`` as a source of recorded records."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.folder import UNUSABLE, check_folder
from stream_metrics.core.events.record import Extent, Record
from stream_metrics.lab.sources.kafka.mark import EARLIEST, END, Mark
from stream_metrics.lab.sources.otlp.topics import PartitionRange
from stream_metrics.live.local.database import ReadOnlyDatabase
from stream_metrics.live.local.folder import database_of
from stream_metrics.live.local.log import Log
from stream_metrics.live.local.tables import SPANS, TOPICS


class LogSource:
    """A topic of the log, or several that are read one after the other, up to the present end.

    Records up to ``around_ms`` before and after the marks are read as well, as those of Kafka are.
    """

    in_kafka: Literal[False] = False

    def __init__(
        self,
        folder: Path,
        topics: Sequence[str],
        marks: tuple[Mark, Mark],
        around_ms: int = 0,
    ) -> None:
        check_folder(folder)
        if unknown := [topic for topic in topics if topic not in TOPICS]:
            raise UsageError(f"{folder} has no topic {unknown[0]!r}; it has {' and '.join(TOPICS)}")
        self.folder = folder
        self.names = tuple(dict.fromkeys(topics))
        self._marks = marks
        self._around_ms = around_ms
        self._ranges: dict[str, PartitionRange] = {}
        self._read: dict[str, Extent] = {}
        self._deleted: dict[str, int] = {}

    @property
    def offsets(self) -> int:
        """The number of offsets to read; 0 before reading starts."""
        return sum(found.end - found.first for found in self._ranges.values())

    @property
    def spans(self) -> dict[str, dict[str, list[int]]]:
        """The first offset and the end of what was read, by topic and partition."""
        return {topic: {"0": [found.first, found.end]} for topic, found in self._ranges.items()}

    @property
    def missed(self) -> list[str]:
        """Messages about records that were deleted because they were too old or too many."""
        return [
            f"{topic}/0 begins at offset {first}: {first:,} before it are gone"
            for topic, first in self._deleted.items()
            if first
        ]

    def part(self, record: Record) -> PartitionRange:
        """The range that is read of the record's topic."""
        return self._ranges[record.topic]

    @property
    def has_traces(self) -> bool:
        """Whether a replay tells every turn by default: as the process does that wrote the log."""
        return True

    def records(self) -> Generator[Record, None, None]:
        """The records in the order of timestamps; raises ``UsageError``."""
        with self._opened() as (runner, log):
            for topic, extent in runner.run(log.extents(self.names)).items():
                self._ranges[topic], self._read[topic] = runner.run(self._range(log, topic, extent))
            parts = [self._records(runner, log, topic) for topic in self.names]
            yield from heapq.merge(*parts, key=lambda record: record.timestamp_ms or 0)

    def waiting_scores(self) -> int:
        """How many scores wait until their trace is complete; raises ``UsageError``."""
        with self._opened() as (runner, log):
            return runner.run(log.waiting_scores())

    def unread_spans(self) -> Generator[Record, None, None]:
        """The spans of every trace that has some which are to be read again, from its first on.

        A reader that got only the last spans of a trace would wait for the others. Raises
        ``UsageError``.
        """
        with self._opened() as (runner, log):
            extent = runner.run(log.extents([SPANS]))[SPANS]
            unread = extent.end - runner.run(log.backlog(SPANS))
            self._read[SPANS] = Extent(unread, extent.end)
            wanted = {record.key for record in self._records(runner, log, SPANS)}
            self._read[SPANS] = extent
            for record in self._records(runner, log, SPANS):
                if record.offset >= unread or record.key in wanted:
                    yield record

    def numbered(self) -> Generator[tuple[int, Record], None, None]:
        """The records with their numbers, from 1."""
        with closing(self.records()) as records:
            yield from enumerate(records, 1)

    @contextmanager
    def _opened(self) -> Iterator[tuple[asyncio.Runner, Log]]:
        """The log; raises ``UsageError`` for what prevents it from being read."""
        try:
            database = ReadOnlyDatabase(database_of(self.folder))
            try:
                with asyncio.Runner() as runner:
                    yield runner, Log(database)
            finally:
                database.close_now()
        except UNUSABLE as error:
            raise UsageError(str(error)) from error

    async def _range(self, log: Log, topic: str, extent: Extent) -> tuple[PartitionRange, Extent]:
        """What is wanted of a topic, and what is read of it: records around that show which traces
        began there, and close some."""
        since, until = self._marks
        asked = await _offset(log, topic, extent, since)
        first = extent.nearest(asked)
        end = max(first, extent.nearest(await _offset(log, topic, extent, until)))
        if since.kind in ("earliest", "offset"):
            self._deleted[topic] = max(0, extent.first - max(asked, 0))
        start, stop = first, end
        if self._around_ms and since != EARLIEST:
            first_ms = await log.time_at(topic, Extent(first, end))
            if first_ms is not None:
                start = await _first_since(log, topic, first_ms - self._around_ms, first)
        if self._around_ms and until != END:
            last_ms = await log.time_at(topic, Extent(end, extent.end))
            if last_ms is not None:
                stop = await _first_since(log, topic, last_ms + self._around_ms, extent.end)
        is_cut = min(start, first) == extent.first > 0
        return PartitionRange(first, end, is_cut), Extent(min(start, first), max(stop, end))

    def _records(
        self, runner: asyncio.Runner, log: Log, topic: str
    ) -> Generator[Record, None, None]:
        extent = self._read[topic]
        at = extent.first
        while at < extent.end:
            read = runner.run(log.read({topic: at}))[topic]
            if not read or read[0].offset != at:
                raise UsageError(
                    f"records of {topic} were deleted before they could be read: from offset {at}. "
                    "Run this again to start from the earliest record left"
                )
            yield from (record for record in read if record.offset < extent.end)
            at = read[-1].offset + 1


async def _offset(log: Log, topic: str, extent: Extent, mark: Mark) -> int:
    """The offset of a mark."""
    if mark.kind == "offset":
        return mark.value
    if mark.kind == "time":
        return await _first_since(log, topic, mark.value, extent.end)
    return 0 if mark == EARLIEST else extent.end


async def _first_since(log: Log, topic: str, time_ms: int, otherwise: int) -> int:
    return (await log.first_since({topic: time_ms})).get(topic, otherwise)
