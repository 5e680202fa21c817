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
from typing import Literal, Protocol

from stream_metrics.ports import Fenced, PartitionState, Position, StateStore, Wiped
from stream_metrics.worker.partition import Lost, Retry, StatePartition

Policy = Literal["halt", "rebuild", "continue"]
Start = Literal["earliest", "latest"]
Positions = Mapping[str, Position]


@dataclass(frozen=True, slots=True)
class Extent:
    """One topic's log of a partition number, and what the group has committed there.

    ``fresh``: the commit carries the note that nothing was written yet.
    """

    first: int
    end: int
    commit: int | None = None
    fresh: bool = False

    def nearest(self, offset: int) -> int:
        """The offset itself if one can read from there, else the end that is next to it."""
        return max(self.first, min(offset, self.end))


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """The log of ``topic`` does not hold what the state needs; one could go on at ``offset``."""

    topic: str
    offset: int
    message: str


class Log(Protocol):
    """What Kafka says of a partition number, by input topic."""

    async def extents(self, number: int, *, commits: bool) -> Mapping[str, Extent]:
        """Every topic's log; with ``commits`` also what the group has committed."""
        ...

    async def confirm(self, number: int, positions: Positions, *, fresh: bool) -> bool:
        """Commit these offsets; True if that worked, so that the group holds us for the owner."""
        ...


@dataclass(frozen=True, slots=True)
class Ready:
    """The partition is ours, and can be read from its positions."""

    partition: StatePartition
    extents: Mapping[str, Extent]


@dataclass(frozen=True, slots=True)
class Held:
    """Nothing was changed because of these gaps; ``positions`` are those of the state."""

    gaps: Sequence[OffsetGap]
    positions: dict[str, Position]


def beginnings(
    extents: Mapping[str, Extent], start: Start
) -> tuple[dict[str, Position], list[OffsetGap]]:
    """Where a partition begins that the store does not know, and what speaks against it.

    A commit without the note says that there was state.
    """
    positions: dict[str, Position] = {}
    gaps = []
    for topic, extent in extents.items():
        if extent.commit is None:
            positions[topic] = Position(extent.end if start == "latest" else extent.first)
            continue
        positions[topic] = Position(extent.commit)
        if not extent.fresh:
            message = (
                f"the group has committed offset {extent.commit} of {topic}, but the store "
                "has no state for it: the state is lost, or redis.namespace is wrong"
            )
            gaps.append(OffsetGap(topic, extent.nearest(extent.commit), message))
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


class TakeOver:
    """Takes partition numbers over, one by one.

    ``tell`` hears of every gap; ``step`` is called after every step of a wipe. ``prepare`` makes a
    partition ready that was just claimed, before anything is read; it may raise ``Lost``.
    """

    def __init__(
        self,
        log: Log,
        store: StateStore,
        make_partition: Callable[[int, bytes], StatePartition],
        retry: Retry[object],
        policy: Policy,
        start: Start,
        tell: Callable[[int, OffsetGap], None],
        step: Callable[[], None],
        prepare: Callable[[StatePartition], Awaitable[None]] | None = None,
    ) -> None:
        self._log = log
        self._store = store
        self._make_partition = make_partition
        self._retry = retry
        self.policy: Policy = policy
        self._prepare = prepare
        self._start = start
        self._tell = tell
        self._step = step

    async def take(
        self,
        number: int,
        kept: StatePartition | None = None,
        found: Sequence[OffsetGap] = (),
    ) -> Ready | Held | None:
        """Become the owner; None if the group does not hold us for that.

        ``kept`` is used as it is if it is the owner still. ``found`` are gaps that reading has
        shown. Raises ``Superseded`` once another generation has taken the place of the state.
        """
        while True:
            state = await self._describe(number)
            known = state.token is not None
            extents = await self._log.extents(number, commits=not known)
            positions, gaps = self._standing(state, extents, found)
            rebuild = bool(gaps) and self.policy == "rebuild"
            for gap in gaps:
                self._tell(number, gap)
            if gaps and self.policy == "halt":
                return Held(gaps, positions)
            aims = behind(positions, gaps)
            if rebuild:
                aims = {topic: Position(extent.first) for topic, extent in extents.items()}
            fresh = rebuild or not (known or gaps)
            anew = rebuild or not known
            if not await self._log.confirm(number, aims, fresh=fresh):
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
            except Lost:
                continue
            return Ready(kept, extents)

    def _standing(
        self, state: PartitionState, extents: Mapping[str, Extent], found: Sequence[OffsetGap]
    ) -> tuple[dict[str, Position], list[OffsetGap]]:
        """From where the partition would be read, and what speaks against it."""
        positions, gaps = state.positions, list[OffsetGap]()
        if state.token is None:
            positions, gaps = beginnings(extents, self._start)
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

    async def _describe(self, number: int) -> PartitionState:
        found = await self._retry(lambda: self._store.describe(number))
        assert isinstance(found, PartitionState)
        return found

    async def _claim(self, number: int, token: bytes, start: Positions) -> PartitionState:
        claimed = await self._retry(lambda: self._store.claim(number, token, start))
        assert isinstance(claimed, PartitionState)
        return claimed

    async def _wiped(self, number: int, token: bytes) -> bool:
        """Wipe what is there; False if somebody else has become the owner."""
        while True:
            result = await self._retry(lambda: self._store.wipe(number, token))
            self._step()
            if result in (Wiped(), Fenced()):
                return result == Wiped()


def _is_owner(kept: StatePartition, state: PartitionState) -> bool:
    return kept.token == state.token and offsets(kept.positions) == offsets(state.positions)
