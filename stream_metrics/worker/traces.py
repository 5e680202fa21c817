"""The topic of traces, as a bridge reads it.

A commit is the offset before the first record of any trace that is not closed. Beside it stand the
record time there, by which whoever reads next finds which traces had records before, and the scopes
of which searches were told.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from stream_metrics.events.record import Extent
from stream_metrics.ports import Position, Unavailable
from stream_metrics.telemetry.assembly import Place as Begin
from stream_metrics.telemetry.teller import Teller
from stream_metrics.worker.bridge import Assemblies
from stream_metrics.worker.clock import Clock
from stream_metrics.worker.inputs import (
    ANSWER_WITHIN_SECONDS,
    CommittedInputs,
    CommittedSource,
    InputOptions,
)
from stream_metrics.worker.lag import Gauges
from stream_metrics.worker.patience import Patience, Reasons
from stream_metrics.worker.source import Commit, Place

log = structlog.get_logger(__name__)

NOTE_BYTES: Final = 3_000  # brokers take 4,096 by default
_TIME, _SCOPES = "time_ms", "scopes"


def note_of(time_ms: int, scopes: frozenset[tuple[str, str]]) -> str:
    """What stands beside an offset.

    >>> said_in(note_of(7, frozenset({("service", "scope")})))
    (7, [('service', 'scope')])
    """
    listed = sorted(scopes)
    while True:
        text = json.dumps({_TIME: time_ms, _SCOPES: listed}, separators=(",", ":"))
        if len(text) <= NOTE_BYTES:
            return text
        listed = listed[: len(listed) // 2]


def said_in(note: str | None) -> tuple[int | None, list[tuple[str, str]]]:
    """Time and scopes in such a text; None and none where it is no text of ours.

    >>> said_in(""), said_in('{"scopes":1}')
    ((None, []), (None, []))
    """
    try:
        said = json.loads(note or "")
        time_ms = int(said[_TIME])
        return time_ms, [(str(service), str(scope)) for service, scope in said[_SCOPES]]
    except (ValueError, TypeError, KeyError):
        return None, []


class TraceInputs(CommittedInputs):
    """``worker.bridge.Inputs``: the topic of traces, from the commits of the bridge's group."""

    def __init__(
        self,
        source: CommittedSource,
        options: InputOptions,
        retry: Patience,
        reasons: Reasons,
        gauges: Gauges,
        clock: Clock,
        assemblies: Assemblies,
        teller: Teller,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(source, options, retry, reasons, gauges, clock, monotonic=monotonic)
        self._assemblies = assemblies
        self._teller = teller

    def ended(self) -> Mapping[int, int]:
        """See ``worker.bridge.Inputs``."""
        return {
            place.partition: one.read_up_to_ms()
            for place, one in self.reading().items()
            if self.source.shows_all(place)
        }

    def commits(self) -> dict[Place, Commit]:
        """What whoever reads next must know."""
        found = {}
        for place, one in self.reading().items():
            begin = self._assemblies.commit(place.partition, one.position.offset)
            if begin is not None:
                found[place] = Commit(begin.offset, note_of(begin.time_ms, self._teller.scopes))
        return found

    async def starts(
        self, extents: Mapping[Place, Extent], commits: Mapping[Place, Commit]
    ) -> dict[Place, int]:
        """From where to read each partition: before the place where it goes on, so that it is known
        which traces had records there. Raises ``TwoScopes``."""
        begins: dict[Place, Begin] = {}
        since_ms: dict[int, int] = {}
        for place, offset in (await super().starts(extents, commits)).items():
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

    async def ask(self) -> None:
        """Ask for the ends too; raises ``TwoScopes``."""
        await super().ask()
        if self._logs and not any(one.halted for one in self._logs.values()):
            until_ms = min(one.read_up_to_ms() for one in self._logs.values())
            self._gauges.complete_until(until_ms / 1000)
        await self._hear_of_others()

    async def _hear_of_others(self) -> None:
        """Learn which scopes other bridges of the group have told."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                commits = await self.source.committed(self._all)
        except (Unavailable, TimeoutError):
            return  # asked again soon
        for commit in commits.values():
            self._teller.know(said_in(commit.note)[1])

    async def _begin(
        self, place: Place, offset: int, extent: Extent, commit: Commit | None
    ) -> Begin:
        """Where the reading of a partition goes on, and the record time there."""
        time_ms, scopes = said_in(commit.note if commit else None)
        self._teller.know(scopes)
        if commit is not None and commit.offset == offset and time_ms is not None:
            return Begin(offset, time_ms)
        if not offset:
            return Begin(0, 0)  # nothing was before
        return Begin(offset, await self._time_ms(place, Extent(offset, extent.end)))

    async def _since_ms(
        self, place: Place, begin: Begin, extent: Extent, commit: Commit | None
    ) -> int:
        """From when on no record of a trace that begins was deleted; 0 if that is so from there."""
        if not extent.first:
            return 0
        deleted_ms = min(begin.time_ms, await self._time_ms(place, extent))  # no later
        since_ms = deleted_ms + self._assemblies.bounds.known_ms
        if begin.time_ms >= since_ms:
            return 0
        if commit is not None and commit.offset >= extent.first:
            self._gauges.offset_gap(place.topic)
        log.warning(
            "records were deleted that may have begun traces, so what begins within the time for "
            "which traces are remembered is not told. Keep the records of the topic for longer",
            partition=place.partition,
            first_offset=extent.first,
            until_ms=since_ms,
        )
        return since_ms

    async def _time_ms(self, place: Place, extent: Extent) -> int:
        """The time of the first record of the extent; the present time if there is none."""
        if extent.first < extent.end:
            found = await self._retry(lambda: self.source.time_at(place, extent))
            if found is not None:
                return found
        return self._clock.now_ms()
