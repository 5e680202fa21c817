"""Reads the topic of traces for a bridge.

The committed offset is that of the first record of any open trace. Its metadata hold the record
time there, with which the next reader finds the traces that had earlier records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from stream_metrics.core.events.record import Extent, Record
from stream_metrics.core.telemetry.assembly import ReadPosition
from stream_metrics.live.bridge.bridge import Assemblies
from stream_metrics.live.ports import Position
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.inputs import (
    CommittedSource,
    InputLog,
    InputOptions,
    ReportingInputs,
)
from stream_metrics.live.worker.lag import Gauges
from stream_metrics.live.worker.retry import Reasons, RetryPolicy
from stream_metrics.live.worker.source import Commit, PartitionId

log = structlog.get_logger(__name__)

_TIME: Final = "time_ms"


def note_of(time_ms: int) -> str:
    """The metadata of a committed offset.

    >>> parse_note(note_of(7))
    7
    """
    # Bridges of the release before expect the list, and take the note for malformed without it.
    return json.dumps({_TIME: time_ms, "scopes": []}, separators=(",", ":"))


def parse_note(note: str | None) -> int | None:
    """The time in commit metadata; None if the text is malformed.

    >>> parse_note(""), parse_note('{"time_ms":"x"}')
    (None, None)
    """
    try:
        return int(json.loads(note or "")[_TIME])
    except (ValueError, TypeError, KeyError):
        return None


class TraceInputs(ReportingInputs):
    """Implements ``bridge.bridge.Inputs``, starting at the commits of the bridge's group."""

    def __init__(
        self,
        source: CommittedSource,
        options: InputOptions,
        retry: RetryPolicy,
        reasons: Reasons,
        gauges: Gauges,
        clock: Clock,
        assemblies: Assemblies,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(source, options, retry, reasons, gauges, clock, monotonic=monotonic)
        self._assemblies = assemblies

    def ended(self) -> Mapping[int, int]:
        """See ``bridge.bridge.Inputs``."""
        return {
            place.partition: one.lag.no_earlier_ms(one.position.offset)
            for place, one in self.reading().items()
            if self.source.shows_all(place)
        }

    def commits(self) -> dict[PartitionId, Commit]:
        """The offsets and metadata that the next reader needs."""
        found = {}
        for place, one in self.reading().items():
            begin = self._assemblies.commit(place.partition, one.position.offset)
            if begin is not None:
                found[place] = Commit(begin.offset, note_of(begin.time_ms))
        return found

    async def start_offsets(
        self, extents: Mapping[PartitionId, Extent], commits: Mapping[PartitionId, Commit]
    ) -> dict[PartitionId, int]:
        """Where to start reading each partition: before its read position, so that the traces that
        had records there are known."""
        begins: dict[PartitionId, ReadPosition] = {}
        since_ms: dict[int, int] = {}
        for place, offset in (await super().start_offsets(extents, commits)).items():
            extent, commit = extents[place], commits.get(place)
            begins[place] = await self._begin(place, offset, extent, commit)
            since_ms[place.partition] = await self._since_ms(place, begins[place], extent, commit)
        before_ms = self._assemblies.bounds.known_ms
        wanted = {place: max(0, begin.time_ms - before_ms) for place, begin in begins.items()}
        found = await self._retry(lambda: self.source.first_since(wanted)) if wanted else {}
        starts = {p: min(found.get(p, begin.offset), begin.offset) for p, begin in begins.items()}
        for place, offset in starts.items():
            self._logs[place].position = Position(offset)
        self._assemblies.begin(
            {place.partition: begin for place, begin in begins.items()}, since_ms
        )
        log.info(
            "partitions of traces",
            partitions={place.partition: begin.offset for place, begin in begins.items()},
        )
        return starts

    def _read(self, input_log: InputLog, records: Sequence[Record]) -> None:
        super()._read(input_log, records)
        input_log.lag.check(records)

    async def _begin(
        self, place: PartitionId, offset: int, extent: Extent, commit: Commit | None
    ) -> ReadPosition:
        """The read position of a partition."""
        time_ms = parse_note(commit.note if commit else None)
        if commit is not None and commit.offset == offset and time_ms is not None:
            return ReadPosition(offset, time_ms)
        if not offset:
            return ReadPosition(0, 0)  # there are no earlier records
        return ReadPosition(offset, await self._time_ms(place, Extent(offset, extent.end)))

    async def _since_ms(
        self, place: PartitionId, begin: ReadPosition, extent: Extent, commit: Commit | None
    ) -> int:
        """The time from which traces cannot have begun in deleted records; 0 if that is always
        so."""
        if not extent.first:
            return 0
        deleted_ms = min(begin.time_ms, await self._time_ms(place, extent))  # at the latest
        since_ms = deleted_ms + self._assemblies.bounds.known_ms
        next_ms = await self._time_ms(place, Extent(begin.offset, extent.end))
        if max(begin.time_ms, next_ms) >= since_ms:
            return 0
        if commit is not None and commit.offset >= extent.first:
            self._gauges.offset_gap(place.topic)
        log.warning(
            "deleted records may have begun traces, so traces that begin within the time for which "
            "traces are remembered are not used. Increase the retention of the topic",
            partition=place.partition,
            first_offset=extent.first,
            until_ms=since_ms,
        )
        return since_ms

    async def _time_ms(self, place: PartitionId, extent: Extent) -> int:
        """The time of the first record of the extent; the present time if there is none."""
        if extent.first < extent.end:
            found = await self._retry(lambda: self.source.time_at(place, extent))
            if found is not None:
                return found
        return self._clock.now_ms()
