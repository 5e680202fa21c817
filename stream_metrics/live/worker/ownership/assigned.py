"""The states of a partition that the group has assigned to this worker.

``TRANSITIONS`` lists the events that can occur in each state; any other event raises ``ValueError``
and changes nothing. ``worker.loop`` acts on the states. Only partitions that are assigned to this
worker have an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.ports import Position
from stream_metrics.live.worker.lag import LogLag
from stream_metrics.live.worker.ownership.takeover import OffsetGap, other_record
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.source import PartitionId


class State(Enum):
    """The state of a partition; only an ``ACTIVE`` one is read, written and exported."""

    PENDING = "the group has assigned it, and it has yet to be taken over"
    TAKING_OVER = "its owner, offsets and logs are being compared, and it is being claimed"
    ACTIVE = "the store holds this worker for its owner"
    BLOCKED = "records that its state needs are missing, and the policy is to halt"
    HALTED = "damaged state, an unreadable record, or an assignment that lacks some topics"
    RELEASED = "the group has revoked it, or another worker may own it"


class Event(Enum):
    """What happens to a partition."""

    REVOKED = "the group rebalances, or has to be asked again"
    ASSIGNED = "the assignment includes it for every topic"
    PARTLY_ASSIGNED = "the assignment includes it for some topics only"
    CLAIM = "this worker begins to take it over"
    CLAIMED = "the take-over is complete; reading starts at the stored offsets"
    UNCONFIRMED = "the group does not recognise this worker as its owner"
    GAP = "records that the state needs are missing, and the policy is to halt"
    FAILED = "its state is damaged, or its next record is unreadable"
    MOVED = "the stored offsets are not the expected ones"
    FENCED = "the store has another owner"
    OTHER_RECORD = "the record before its position is not the one that was read there"


_S, _E = State, Event

TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (_S.PENDING, _E.REVOKED): _S.RELEASED,
    (_S.TAKING_OVER, _E.REVOKED): _S.RELEASED,
    (_S.ACTIVE, _E.REVOKED): _S.RELEASED,
    (_S.BLOCKED, _E.REVOKED): _S.BLOCKED,
    (_S.HALTED, _E.REVOKED): _S.HALTED,
    (_S.RELEASED, _E.REVOKED): _S.RELEASED,
    (_S.BLOCKED, _E.ASSIGNED): _S.PENDING,
    (_S.HALTED, _E.ASSIGNED): _S.PENDING,
    (_S.RELEASED, _E.ASSIGNED): _S.PENDING,
    (_S.BLOCKED, _E.PARTLY_ASSIGNED): _S.HALTED,
    (_S.HALTED, _E.PARTLY_ASSIGNED): _S.HALTED,
    (_S.RELEASED, _E.PARTLY_ASSIGNED): _S.HALTED,
    (_S.PENDING, _E.CLAIM): _S.TAKING_OVER,
    (_S.TAKING_OVER, _E.CLAIMED): _S.ACTIVE,
    (_S.TAKING_OVER, _E.UNCONFIRMED): _S.RELEASED,
    (_S.TAKING_OVER, _E.GAP): _S.BLOCKED,
    (_S.TAKING_OVER, _E.FAILED): _S.HALTED,
    (_S.ACTIVE, _E.FAILED): _S.HALTED,
    (_S.ACTIVE, _E.MOVED): _S.PENDING,
    (_S.ACTIVE, _E.FENCED): _S.RELEASED,
    (_S.ACTIVE, _E.OTHER_RECORD): _S.PENDING,
}


class AssignedPartition:
    """One partition number: its state, its data in memory, and how far its logs have been read.

    ``owned`` is the data in memory; it is kept while the partition is released, because the group
    may assign it to this worker again. ``gaps`` are offset gaps found while reading. A new object
    is ``RELEASED`` until the assignment is processed.
    """

    def __init__(self, number: int, topics: Sequence[str], *, in_order: bool = True) -> None:
        self.number = number
        self.state = State.RELEASED
        self.why = ""  # it is blocked or halted; kept until it is active again
        self.owned: StatePartition | None = None
        self.gaps: list[OffsetGap] = []
        self.logs = {PartitionId(topic, number): LogLag(in_order=in_order) for topic in topics}
        self._last_positions: Mapping[str, Position] = {}
        self._expected: dict[PartitionId, Position] = {}

    def on(self, event: Event) -> None:
        """Change the state as ``TRANSITIONS`` says; raises ``ValueError``."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise ValueError(f"partition {self.number}: {event.name} while {self.state.name}")
        self.state = after
        if after is not State.PENDING:
            self.gaps = []

    def forget(self) -> None:
        """Drop the data in memory, but keep the positions."""
        self._last_positions, self.owned = self.positions, None

    def set_positions(self, positions: Mapping[str, Position]) -> None:
        """Set the stored positions of a partition that has no data in memory."""
        self._last_positions, self.owned = positions, None

    @property
    def positions(self) -> Mapping[str, Position]:
        """The position of each topic, as far as it is known."""
        return self._last_positions if self.owned is None else self.owned.positions

    # -- verifying logs -------------------------------------------------------------------------

    def start_offsets(self, extents: Mapping[str, Extent]) -> dict[PartitionId, int]:
        """The offsets to start reading at: one record before each position, to verify the log.

        If that record is not the one that was read there, the topic was recreated or truncated,
        even though its offsets may look right.
        """
        self._expected = {}
        for place, log in self.logs.items():
            log.begin()
            position = self.positions[place.topic]
            if position.last_digest and position.offset > extents[place.topic].first:
                self._expected[place] = position
        return self.next_offsets()

    def next_offsets(self) -> dict[PartitionId, int]:
        """The offsets to read next."""
        return {
            place: self.positions[place.topic].offset - (place in self._expected)
            for place in self.logs
        }

    def new_records(self, place: PartitionId, records: Sequence[Record]) -> Sequence[Record]:
        """The records that the state does not have; none if the log has changed (see ``gaps``)."""
        if place in self._expected and not self._verify(place, records[0]):
            return ()
        stored = self.positions[place.topic].offset
        if records[0].offset < stored:
            return [record for record in records if record.offset >= stored]
        return records

    def _verify(self, place: PartitionId, first: Record) -> bool:
        assert self.owned is not None
        position = self._expected.pop(place)
        if first.offset != position.offset - 1:
            return True  # compacted away
        if (
            first.timestamp_ms == position.last_timestamp_ms
            and self.owned.record_digest(first) == position.last_digest
        ):
            return True
        self.gaps.append(other_record(place.topic, position.offset))
        return False

    def is_verified(self, passed: Mapping[PartitionId, int]) -> bool:
        """Whether every log is verified, given the offsets up to which each has been read.

        A transaction marker may be where a record was expected.
        """
        for place, offset in passed.items():
            expected = self._expected.get(place)
            if expected is not None and offset >= expected.offset:
                del self._expected[place]
        return not self._expected

    # -- lag ------------------------------------------------------------------------------------

    def behind(self) -> dict[PartitionId, int]:
        """The number of records between each position and the last known end of its log."""
        return {
            place: log.behind(self.positions[place.topic].offset)
            for place, log in self.logs.items()
            if place.topic in self.positions
        }

    def read_up_to_ms(self) -> int | None:
        """Record time up to which every topic has been read; None while an end is unknown."""
        times = [
            self.logs[PartitionId(topic, self.number)].read_up_to_ms(position.offset)
            for topic, position in self.positions.items()
        ]
        known = [time for time in times if time is not None]
        return min(known, default=None) if len(known) == len(times) else None

    def behind_ms(self, now_ms: int) -> int | None:
        """The age of ``read_up_to_ms`` in milliseconds; None if that is not known."""
        read_up_to_ms = self.read_up_to_ms()
        return max(0, now_ms - read_up_to_ms) if read_up_to_ms else None
