"""How far behind the ends of the log a worker is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from aiokafka import TopicPartition

from stream_metrics.ports import Position, Record

ENOUGH_STAMPS: Final = 1_000  # of which one at least must not lie ahead of its time


class Gauges(Protocol):
    """Receives how far partitions are read; every method is cheap and never raises."""

    def lag(self, topic: str, partition: int, records: int, seconds: float) -> None: ...
    def forget_partition(self, topic: str, partition: int) -> None: ...
    def complete_until(self, seconds: float) -> None: ...
    def offset_gap(self, topic: str) -> None: ...


class Mark(NamedTuple):
    """All records up to a time lie before an end of the log."""

    end: int
    asked_ms: int


class _Stamps:
    """Up to when a log has been read, by the timestamps of its records alone.

    A record is there no earlier than its producer's clock says, unless that clock is ahead. So the
    smallest of the last ``ENOUGH_STAMPS`` timestamps counts: one wild timestamp moves nothing.
    """

    def __init__(self, read_up_to_ms: int = 0) -> None:
        self.read_up_to_ms = read_up_to_ms
        self._parts: deque[tuple[int, int]] = deque()  # how many, and the smallest of them
        self._count = 0

    def add(self, stamps_ms: Sequence[int]) -> None:
        """Take the timestamps of the next records."""
        self._parts.append((len(stamps_ms), min(stamps_ms)))
        self._count += len(stamps_ms)
        while self._count - self._parts[0][0] >= ENOUGH_STAMPS:
            self._count -= self._parts.popleft()[0]
        if self._count >= ENOUGH_STAMPS:
            smallest = min(stamp for _, stamp in self._parts)
            self.read_up_to_ms = max(self.read_up_to_ms, smallest)


class Lag:
    """The ends of the log as last heard, and since when a partition is behind.

    ``in_order``: whether the records of a log come about in the order of their times. Where several
    logs were merged into one they do not.
    """

    def __init__(
        self, operations: Gauges, now_ms: Callable[[], int], *, in_order: bool = True
    ) -> None:
        self._operations = operations
        self._now_ms = now_ms
        self._in_order = in_order
        self._ends: dict[TopicPartition, int] = {}
        self._marks: dict[TopicPartition, list[Mark]] = {}
        self._stamps: dict[TopicPartition, _Stamps] = {}
        self._caught_up: dict[TopicPartition, float] = {}

    def begin(self, place: TopicPartition, read_up_to_ms: int = 0) -> None:
        """A log is read from some other position, and is known to be read up to that time."""
        self._stamps[place] = _Stamps(read_up_to_ms)

    def read(self, records: Iterable[Record]) -> None:
        """These have been worked off, those of each log in its order."""
        if not self._in_order:
            return
        now_ms = self._now_ms()
        found: dict[tuple[str, int], list[int]] = {}
        for record in records:
            stamp_ms = record.timestamp_ms
            if stamp_ms is not None and 0 <= stamp_ms <= now_ms:
                place = (record.topic, record.partition)
                stamps_ms = found.get(place)
                if stamps_ms is None:
                    stamps_ms = found[place] = []
                stamps_ms.append(stamp_ms)
        for place, stamps_ms in found.items():
            self._stamps.setdefault(TopicPartition(*place), _Stamps()).add(stamps_ms)

    def heard(self, ends: Mapping[TopicPartition, int], asked_ms: int) -> None:
        """The brokers have said where the log ends; all records up to that time lie before it."""
        self._ends |= ends
        for place, end in ends.items():
            marks = self._marks.setdefault(place, [])
            # One that is passed, one to be passed next, and the newest one.
            del marks[2:]
            marks.append(Mark(end, asked_ms))

    def forget(self, place: TopicPartition) -> None:
        """The partition is another worker's now."""
        self._ends.pop(place, None)
        self._marks.pop(place, None)
        self._stamps.pop(place, None)
        self._caught_up.pop(place, None)
        self._operations.forget_partition(place.topic, place.partition)

    def behind(self, place: TopicPartition, offset: int) -> int:
        """Records between an offset and the end as last heard; 0 where nothing was heard."""
        return max(0, self._ends.get(place, offset) - offset)

    def read_up_to_ms(self, number: int, positions: Mapping[str, Position]) -> int | None:
        """Record time up to which every topic has been read; None if an end was never heard.

        A topic that was read up to an end counts as read up to when the brokers were asked for it:
        later records may lie there that nobody has seen, however long ago that was.
        """
        times = []
        for topic, position in positions.items():
            place = TopicPartition(topic, number)
            if place not in self._ends:
                return None
            times.append(self._read_up_to_ms(place, position))
        return min(times, default=None)

    def behind_ms(self, number: int, positions: Mapping[str, Position]) -> int | None:
        """How long ago it was up to which every topic has been read; None if that is not known."""
        read_up_to_ms = self.read_up_to_ms(number, positions)
        return max(0, self._now_ms() - read_up_to_ms) if read_up_to_ms else None

    def _read_up_to_ms(self, place: TopicPartition, position: Position) -> int:
        """The same of one log: by the newest end that was passed, or by what was read since.

        0 if no end was passed, and not enough was read.
        """
        stamps = self._stamps.get(place)
        read_up_to_ms = 0 if stamps is None else stamps.read_up_to_ms
        marks = self._marks.get(place, [])
        passed = [mark for mark in marks if mark.end <= position.offset]
        if passed:
            marks[: len(passed)] = passed[-1:]
            read_up_to_ms = max(read_up_to_ms, passed[-1].asked_ms)
        return read_up_to_ms

    def report(self, known: Mapping[int, Mapping[str, Position]]) -> None:
        """Lag of each topic and partition, and up to when the input has been read."""
        now = self._now_ms() / 1000
        oldest = now
        for number, positions in known.items():
            for topic, position in positions.items():
                oldest = min(oldest, self.report_one(TopicPartition(topic, number), position))
        self._operations.complete_until(oldest)

    def report_one(self, place: TopicPartition, position: Position) -> float:
        """Lag of one log; the Unix time up to which it has been read."""
        now = self._now_ms() / 1000
        behind = self.behind(place, position.offset)
        since = self._caught_up.setdefault(place, now)
        if not behind:
            self._caught_up[place] = now
        read = position.record_time_ms / 1000 or since
        seconds = max(0.0, now - read) if behind else 0.0
        self._operations.lag(place.topic, place.partition, behind, seconds)
        if not self._in_order:
            return self._read_up_to_ms(place, position) / 1000
        return read if behind else now
