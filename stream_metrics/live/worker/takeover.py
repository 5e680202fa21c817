"""Becoming the owner of a state partition: from where to read, and what if records are gone.

The log does not always hold what the state needs: records were deleted before they were read, a
topic was made anew, or the state is gone though the group has read. Such an offset gap is handled
by policy:

halt      nothing is changed; somebody has to decide
rebuild   the state partition is wiped, and all its topics are read from the start of their logs
continue  what state there is stays, and reading goes on at the nearest offset that the log has

A rebuild first commits the starts of the logs to Kafka with the note that nothing is written yet,
then wipes, then claims. Cut off before the wipe it finds the gap again; cut off later it finds no
state, and the note, and begins where the note says. Half a state is never read
(``StateStore.wipe``).
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from stream_metrics.core.events.record import Extent
from stream_metrics.live.ports import Fenced, PartitionState, Position, StateStore, Wiped
from stream_metrics.live.worker.partition import PartitionLost, StatePartition
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.source import Commit, PartitionId, Source

Policy = Literal["halt", "rebuild", "continue"]
Start = Literal["earliest", "latest"]
Positions = Mapping[str, Position]


NOTHING_WRITTEN: Final = "stream-metrics: nothing written yet"
"""The note of a commit that says where to begin, and that no state was written."""


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """The log of ``topic`` does not hold what the state needs; one could go on at ``offset``."""

    topic: str
    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The partition is ours, and can be read from its positions."""

    partition: StatePartition
    extents: Mapping[str, Extent]


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing was changed because of these gaps; ``positions`` are those of the state."""

    gaps: Sequence[OffsetGap]
    positions: dict[str, Position]


def initial_positions(
    extents: Mapping[str, Extent], commits: Mapping[str, Commit], start: Start
) -> tuple[dict[str, Position], list[OffsetGap]]:
    """Where a partition begins that the store does not know, and what speaks against it.

    A commit without the note says that there was state.
    """
    positions: dict[str, Position] = {}
    gaps = []
    for topic, extent in extents.items():
        commit = commits.get(topic)
        if commit is None:
            positions[topic] = Position(extent.end if start == "latest" else extent.first)
            continue
        positions[topic] = Position(commit.offset)
        if commit.note != NOTHING_WRITTEN:
            message = (
                f"the group has committed offset {commit.offset} of {topic}, but the store "
                "has no state for it: the state is lost, or redis.namespace is wrong"
            )
            gaps.append(OffsetGap(topic, extent.nearest(commit.offset), message))
    return positions, gaps


def gaps_between(positions: Positions, extents: Mapping[str, Extent]) -> list[OffsetGap]:
    """Where a log begins behind a position or ends before it."""
    gaps = []
    for topic, extent in extents.items():
        offset = positions[topic].offset
        if offset < extent.first:
            message = (
                f"{topic} begins at offset {extent.first}, but the state needs {offset}: records "
                "were deleted before they were read"
            )
            gaps.append(OffsetGap(topic, extent.first, message))
        if offset > extent.end:
            message = (
                f"{topic} ends at offset {extent.end}, but the state has read up to {offset}: the "
                "topic was recreated or has lost records"
            )
            gaps.append(OffsetGap(topic, extent.end, message))
    return gaps


def other_record(topic: str, offset: int) -> OffsetGap:
    """The record before ``offset`` is not the one that was read there."""
    message = (
        f"the record at offset {offset - 1} of {topic} is not the one that was read there: the "
        "topic was recreated"
    )
    return OffsetGap(topic, offset, message)


def behind(positions: Positions, gaps: Sequence[OffsetGap]) -> dict[str, Position]:
    """Where to go on behind gaps: no record before is there to be recognised."""
    aims = dict(positions)
    for gap in gaps:
        aims[gap.topic] = replace(
            aims[gap.topic], offset=gap.offset, last_timestamp_ms=-1, last_digest=b""
        )
    return aims


def offsets(positions: Positions) -> dict[str, int]:
    """The offset of each topic."""
    return {topic: position.offset for topic, position in positions.items()}


class NotPrepared(Exception):
    """A partition cannot be made ready to read; the message says why and what to do."""


class TakeOver:
    """Takes partition numbers over, one by one.

    ``on_gap`` is called with every offset gap, ``on_step`` after every step of a wipe. ``prepare``
    is called with a claimed partition before any record of it is read; it may raise
    ``PartitionLost`` or ``NotPrepared``.
    """

    def __init__(
        self,
        source: Source,
        topics: Sequence[str],
        store: StateStore,
        make_partition: Callable[[int, bytes], StatePartition],
        retry: Retry,
        policy: Policy,
        start: Start,
        on_gap: Callable[[int, OffsetGap], None],
        on_step: Callable[[], None],
        prepare: Callable[[StatePartition], Awaitable[None]] | None = None,
    ) -> None:
        self._source = source
        self._topics = tuple(topics)
        self._store = store
        self._make_partition = make_partition
        self._retry = retry
        self.policy: Policy = policy
        self._prepare = prepare
        self._start = start
        self._on_gap = on_gap
        self._on_step = on_step

    async def take(
        self,
        number: int,
        kept: StatePartition | None = None,
        found: Sequence[OffsetGap] = (),
    ) -> TakenOver | Blocked | None:
        """Become the owner; None if the group does not hold us for that.

        ``kept`` is used as it is if it is the owner still. ``found`` are gaps that reading has
        shown. Raises ``Superseded`` once another generation has taken the place of the state.
        """
        while True:
            state = await self._describe(number)
            known = state.token is not None
            extents = await self._extents(number)
            commits = {} if known else await self._commits(number)
            positions, gaps = self._stored(state, extents, commits, found)
            rebuild = bool(gaps) and self.policy == "rebuild"
            for gap in gaps:
                self._on_gap(number, gap)
            if gaps and self.policy == "halt":
                return Blocked(gaps, positions)
            aims = behind(positions, gaps)
            if rebuild:
                aims = {topic: Position(extent.first) for topic, extent in extents.items()}
            fresh = rebuild or not (known or gaps)
            anew = rebuild or not known
            if not await self._confirm(number, aims, NOTHING_WRITTEN if fresh else ""):
                return None
            token = secrets.token_bytes(16)
            if anew and not await self._wiped(number, state.token or token):
                continue
            if anew or kept is None or not _is_owner(kept, state):
                kept = self._make_partition(number, token)
                kept.adopt(await self._claim(number, token, aims))
            if offsets(kept.positions) != offsets(aims if anew else positions):
                continue  # somebody has written in between: look again
            try:
                if gaps and kept.positions != aims:
                    await kept.move(aims, self._retry)
                if self._prepare is not None:
                    await self._prepare(kept)
            except PartitionLost:
                continue
            return TakenOver(kept, extents)

    def _stored(
        self,
        state: PartitionState,
        extents: Mapping[str, Extent],
        commits: Mapping[str, Commit],
        found: Sequence[OffsetGap],
    ) -> tuple[dict[str, Position], list[OffsetGap]]:
        """From where the partition would be read, and what speaks against it."""
        positions, gaps = state.positions, list[OffsetGap]()
        if state.token is None:
            positions, gaps = initial_positions(extents, commits, self._start)
        told = {gap.topic for gap in gaps}
        gaps += [gap for gap in gaps_between(positions, extents) if gap.topic not in told]
        gaps += [
            gap
            for gap in found
            if gap.topic in state.positions
            and state.positions[gap.topic].offset == gap.offset
            and state.positions[gap.topic].last_digest
        ]
        return positions, gaps

    async def _extents(self, number: int) -> dict[str, Extent]:
        places = self._places(number)
        found = await self._retry(lambda: self._source.extents(places))
        return {place.topic: found[place] for place in places}

    async def _commits(self, number: int) -> dict[str, Commit]:
        places = self._places(number)
        found = await self._retry(lambda: self._source.committed(places))
        return {place.topic: commit for place, commit in found.items()}

    async def _confirm(self, number: int, aims: Positions, note: str) -> bool:
        """Whether the group holds us for the owner: a commit of these offsets succeeds."""
        commits = {
            PartitionId(topic, number): Commit(position.offset, note)
            for topic, position in aims.items()
        }
        return await self._retry(lambda: self._source.confirm(commits))

    def _places(self, number: int) -> list[PartitionId]:
        return [PartitionId(topic, number) for topic in self._topics]

    async def _describe(self, number: int) -> PartitionState:
        return await self._retry(lambda: self._store.describe(number))

    async def _claim(self, number: int, token: bytes, start: Positions) -> PartitionState:
        return await self._retry(lambda: self._store.claim(number, token, start))

    async def _wiped(self, number: int, token: bytes) -> bool:
        """Wipe what is there; False if somebody else has become the owner."""
        while True:
            result = await self._retry(lambda: self._store.wipe(number, token))
            self._on_step()
            if result in (Wiped(), Fenced()):
                return result == Wiped()


def _is_owner(kept: StatePartition, state: PartitionState) -> bool:
    return kept.token == state.token and offsets(kept.positions) == offsets(state.positions)
