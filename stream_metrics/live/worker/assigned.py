"""What a partition that the group has assigned to this worker goes through.

``TRANSITIONS`` has a cell for each event that can come about in a state; any other raises
``ValueError`` and changes nothing. ``worker.loop`` says what is done in each. A partition that the
group has not assigned to this worker has no object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.ports import Position
from stream_metrics.live.worker.lag import LogLag
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.source import PartitionId
from stream_metrics.live.worker.takeover import OffsetGap, other_record


class State(Enum):
    """Where a partition stands; only an ``ACTIVE`` one is read, written and exported."""

    PENDING = "the group has assigned it; it is to be taken over"
    TAKING_OVER = "its owner, offsets and logs are being compared, and it is being claimed"
    ACTIVE = "the store holds this worker for its owner"
    BLOCKED = "its logs lack what the state needs; by policy somebody has to decide"
    HALTED = "it cannot go on: damaged state, an unreadable record, or only some of its topics"
    RELEASED = "the group has taken it back, or another may own it; the group will say"


class Event(Enum):
    """What happens to a partition."""

    REVOKED = "the group assigns anew, or is to be asked again"
    ASSIGNED = "the assignment has it for every topic"
    PARTLY_ASSIGNED = "the assignment has it for some topics only"
    CLAIM = "its take-over begins"
    CLAIMED = "it was taken over, and is read from its stored offsets"
    UNCONFIRMED = "the group does not hold this worker for its member"
    GAP = "its logs lack what the state needs, and the policy is to halt"
    FAILED = "its state is damaged, or its next record cannot be read"
    MOVED = "the store has other offsets than expected"
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
    """One partition number: its state, what is in memory of it, and how far its logs are read.

    ``owned`` is what is in memory, also while the partition is given away: it may come back.
    ``gaps`` are those that reading has shown. A new one counts as given away until the assignment
    says what is ours of it.
    """

    def __init__(self, number: int, topics: Sequence[str], *, in_order: bool = True) -> None:
        self.number = number
        self.state = State.RELEASED
        self.why = ""  # of a partition that is held or halted, until it is active again
        self.owned: StatePartition | None = None
        self.gaps: list[OffsetGap] = []
        self.logs = {PartitionId(topic, number): LogLag(in_order=in_order) for topic in topics}
        self._stands: Mapping[str, Position] = {}
        self._expected: dict[PartitionId, Position] = {}

    def on(self, event: Event) -> None:
        """Go to the state that the table says."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise ValueError(f"partition {self.number}: {event.name} while {self.state.name}")
        self.state = after
        if after is not State.PENDING:
            self.gaps = []

    def forget(self) -> None:
        """Drop what is in memory; where the partition stands remains known."""
        self._stands, self.owned = self.positions, None

    def set_positions(self, positions: Mapping[str, Position]) -> None:
        """The store has these positions, and nothing is in memory."""
        self._stands, self.owned = positions, None

    @property
    def positions(self) -> Mapping[str, Position]:
        """Where each topic stands, as far as that is known."""
        return self._stands if self.owned is None else self.owned.positions

    # -- recognising logs -----------------------------------------------------------------------

    def starts(self, extents: Mapping[str, Extent]) -> dict[PartitionId, int]:
        """From where to read: one record back, where there is one to be recognised.

        That record must be the one that was read there. If it is another one, the topic was made
        anew or truncated, though its offsets may look right.
        """
        self._expected = {}
        for place, log in self.logs.items():
            log.begin()
            position = self.positions[place.topic]
            if position.last_digest and position.offset > extents[place.topic].first:
                self._expected[place] = position
        return self.next_offsets()

    def next_offsets(self) -> dict[PartitionId, int]:
        """What is to be read next."""
        return {
            place: self.positions[place.topic].offset - (place in self._expected)
            for place in self.logs
        }

    def new_records(self, place: PartitionId, records: Sequence[Record]) -> Sequence[Record]:
        """Those that the state does not have; none of a log that is another one (``gaps``)."""
        if place in self._expected and not self._recognise(place, records[0]):
            return ()
        stored = self.positions[place.topic].offset
        if records[0].offset < stored:
            return [record for record in records if record.offset >= stored]
        return records

    def _recognise(self, place: PartitionId, first: Record) -> bool:
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

    def recognised(self, passed: Mapping[PartitionId, int]) -> bool:
        """Whether every log is, once reading has come so far: where a record is expected there may
        be a marker."""
        for place, offset in passed.items():
            expected = self._expected.get(place)
            if expected is not None and offset >= expected.offset:
                del self._expected[place]
        return not self._expected

    # -- how far it is --------------------------------------------------------------------------

    def behind(self) -> dict[PartitionId, int]:
        """Records between each position and the end of its log as last heard."""
        return {
            place: log.behind(self.positions[place.topic].offset)
            for place, log in self.logs.items()
            if place.topic in self.positions
        }

    def read_up_to_ms(self) -> int | None:
        """Record time up to which every topic has been read; None if an end was never heard."""
        times = [
            self.logs[PartitionId(topic, self.number)].read_up_to_ms(position.offset)
            for topic, position in self.positions.items()
        ]
        known = [time for time in times if time is not None]
        return min(known, default=None) if len(known) == len(times) else None

    def behind_ms(self, now_ms: int) -> int | None:
        """How long ago it was up to which every topic has been read; None if that is not known."""
        read_up_to_ms = self.read_up_to_ms()
        return max(0, now_ms - read_up_to_ms) if read_up_to_ms else None
