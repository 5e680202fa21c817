"""Takes over state partitions: finds the offsets to read from, and handles offset gaps.

A log may lack records that the state needs: they were deleted before they were read, the topic was
recreated, or the state was lost although the group has read. Such an offset gap is handled by
policy:

halt      change nothing, and wait for an operator
rebuild   wipe the state partition, and read all its topics from the start of their logs
continue  keep the state, and continue at the nearest offset in the log

A rebuild first commits the starts of the logs to Kafka with the metadata ``NOTHING_WRITTEN``, then
wipes, then claims. If it is interrupted before the wipe, the gap is found again; if later, there is
no state, and reading starts at the committed offsets. A partly wiped state is never read
(``StateStore.wipe``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stream_metrics.core.events.record import Extent
from stream_metrics.live.ports import Fenced, PartitionState, Position, Wiped
from stream_metrics.live.worker.kept_state import KeptState
from stream_metrics.live.worker.options import LoopOptions, Policy, Start
from stream_metrics.live.worker.partition import PartitionLost, StatePartition
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.source import Commit, PartitionId, Source

Positions = Mapping[str, Position]


NOTHING_WRITTEN: Final = "stream-metrics: nothing written yet"
"""Commit metadata: reading starts at the offset, and no state has been written."""


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """The log of ``topic`` lacks records; the nearest offset to continue at is ``offset``."""

    topic: str
    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class TakenOver:
    """This worker owns the partition, and can read from its positions."""

    partition: StatePartition
    extents: Mapping[str, Extent]


@dataclass(frozen=True, slots=True)
class Blocked:
    """The policy is to halt at these gaps; ``positions`` are those of the state."""

    gaps: Sequence[OffsetGap]
    positions: dict[str, Position]


def initial_positions(
    extents: Mapping[str, Extent], commits: Mapping[str, Commit], start: Start
) -> tuple[dict[str, Position], list[OffsetGap]]:
    """The start positions of a partition without state, and its offset gaps.

    A commit without the metadata ``NOTHING_WRITTEN`` shows that there was state.
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
    """The gaps of logs that begin after a position or end before it."""
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


def positions_after(positions: Positions, gaps: Sequence[OffsetGap]) -> dict[str, Position]:
    """The positions to continue at after gaps; without digests, as no record can be verified."""
    targets = dict(positions)
    for gap in gaps:
        targets[gap.topic] = replace(
            targets[gap.topic], offset=gap.offset, last_timestamp_ms=-1, last_digest=b""
        )
    return targets


def offsets(positions: Positions) -> dict[str, int]:
    """The offset of each topic."""
    return {topic: position.offset for topic, position in positions.items()}


class NotPrepared(Exception):
    """A partition cannot be prepared for reading; the message says why and what to do."""


class TakeOver:
    """Takes partition numbers over, one by one.

    ``on_gap`` is called with every offset gap, ``on_step`` after every step of a wipe.
    """

    def __init__(
        self,
        source: Source,
        state: KeptState,
        options: LoopOptions,
        retry: Retry,
        on_gap: Callable[[int, OffsetGap], None],
        on_step: Callable[[], None],
    ) -> None:
        self._source = source
        self._state = state
        self._store = state.store
        self._options = options
        self._retry = retry
        self._on_gap = on_gap
        self._on_step = on_step

    @property
    def policy(self) -> Policy:
        """How offset gaps are handled now."""
        return self._state.gap_policy(self._options.on_offset_gap)

    async def take(
        self,
        number: int,
        kept: StatePartition | None = None,
        gaps_read: Sequence[OffsetGap] = (),
    ) -> TakenOver | Blocked | None:
        """Become the owner; None if the group does not recognise this worker as the owner.

        ``kept`` is reused if it still owns the partition. ``gaps_read`` are gaps that were met
        while reading. Raises ``Superseded`` if another generation has replaced this one.
        """
        while True:
            state = await self._describe(number)
            known = state.token is not None
            extents = await self._extents(number)
            commits = {} if known else await self._commits(number)
            positions, gaps = self._stored(state, extents, commits, gaps_read)
            rebuild = bool(gaps) and self.policy == "rebuild"
            for gap in gaps:
                self._on_gap(number, gap)
            if gaps and self.policy == "halt":
                return Blocked(gaps, positions)
            targets = positions_after(positions, gaps)
            if rebuild:
                targets = {topic: Position(extent.first) for topic, extent in extents.items()}
            fresh = rebuild or not (known or gaps)
            anew = rebuild or not known
            if not await self._confirm(number, targets, NOTHING_WRITTEN if fresh else ""):
                return None
            token = secrets.token_bytes(16)
            if anew and not await self._wiped(number, state.token or token):
                continue
            if anew or kept is None or not _is_owner(kept, state):
                kept = self._state.make_partition(number, token)
                kept.adopt(await self._claim(number, token, targets))
            if offsets(kept.positions) != offsets(targets if anew else positions):
                continue  # another worker has written meanwhile
            try:
                if gaps and kept.positions != targets:
                    await kept.move(targets, self._retry)
                await self._state.prepare(kept)
            except PartitionLost:
                continue
            return TakenOver(kept, extents)

    def _stored(
        self,
        state: PartitionState,
        extents: Mapping[str, Extent],
        commits: Mapping[str, Commit],
        gaps_read: Sequence[OffsetGap],
    ) -> tuple[dict[str, Position], list[OffsetGap]]:
        """The positions that the partition would be read from, and its offset gaps."""
        positions, gaps = state.positions, list[OffsetGap]()
        if state.token is None:
            positions, gaps = initial_positions(extents, commits, self._options.start)
        told = {gap.topic for gap in gaps}
        gaps += [gap for gap in gaps_between(positions, extents) if gap.topic not in told]
        gaps += [
            gap
            for gap in gaps_read
            if gap.topic in state.positions
            and state.positions[gap.topic].offset == gap.offset
            and state.positions[gap.topic].last_digest
        ]
        return positions, gaps

    async def _extents(self, number: int) -> dict[str, Extent]:
        places = self._places(number)
        extents = await self._retry(lambda: self._source.extents(places))
        return {place.topic: extents[place] for place in places}

    async def _commits(self, number: int) -> dict[str, Commit]:
        places = self._places(number)
        commits = await self._retry(lambda: self._source.committed(places))
        return {place.topic: commit for place, commit in commits.items()}

    async def _confirm(self, number: int, targets: Positions, note: str) -> bool:
        """Whether the group recognises this worker as the owner: it accepts this commit."""
        commits = {
            PartitionId(topic, number): Commit(position.offset, note)
            for topic, position in targets.items()
        }
        return await self._retry(lambda: self._source.confirm(commits))

    def _places(self, number: int) -> list[PartitionId]:
        return [PartitionId(topic, number) for topic in self._options.topics]

    async def _describe(self, number: int) -> PartitionState:
        return await self._retry(lambda: self._store.describe(number))

    async def _claim(self, number: int, token: bytes, start: Positions) -> PartitionState:
        return await self._retry(lambda: self._store.claim(number, token, start))

    async def _wiped(self, number: int, token: bytes) -> bool:
        """Wipe the partition; False if another worker has become the owner."""
        while True:
            result = await self._retry(lambda: self._store.wipe(number, token))
            self._on_step()
            if result in (Wiped(), Fenced()):
                return result == Wiped()


def _is_owner(kept: StatePartition, state: PartitionState) -> bool:
    return kept.token == state.token and offsets(kept.positions) == offsets(state.positions)
