"""How far a log has been read: records and time behind its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from stream_metrics.live.ports import Position

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


class Behind(NamedTuple):
    """Records and seconds behind the end, and the Unix time up to which the log has been read."""

    records: int
    seconds: float
    read_up_to: float


class LogLag:
    """The end of one log as last heard, and up to when it has been read.

    ``in_order``: the records of the log come about in the order of their times. Where several logs
    were merged into one they do not, and only an end that was passed tells the time.
    """

    def __init__(self, *, in_order: bool = True) -> None:
        self._in_order = in_order
        self._marks: list[Mark] = []
        self._caught_up: float | None = None
        self.end: int | None = None  # None until it was heard
        self.begin()

    def begin(self, read_up_to_ms: int = 0) -> None:
        """The log is read from some other position, and is known to be read up to that time."""
        self._stamped_ms = read_up_to_ms
        self._parts: deque[tuple[int, int]] = deque()  # how many timestamps, the smallest of them
        self._count = 0

    def read(self, stamps_ms: Iterable[int | None], now_ms: int) -> None:
        """Records with these timestamps have been worked off; those ahead of now tell nothing.

        A record is there no earlier than its producer's clock says, unless that clock is ahead. So
        the smallest of the last ``ENOUGH_STAMPS`` counts: one wild timestamp moves nothing.
        """
        if not self._in_order:
            return
        told = [ms for ms in stamps_ms if ms is not None and 0 <= ms <= now_ms]
        if not told:
            return
        self._parts.append((len(told), min(told)))
        self._count += len(told)
        while self._count - self._parts[0][0] >= ENOUGH_STAMPS:
            self._count -= self._parts.popleft()[0]
        if self._count >= ENOUGH_STAMPS:
            smallest = min(stamp for _, stamp in self._parts)
            self._stamped_ms = max(self._stamped_ms, smallest)

    def heard(self, end: int, asked_ms: int) -> None:
        """The brokers have said where the log ends; all records up to that time lie before it."""
        self.end = end
        del self._marks[2:]  # one that is passed, one to be passed next, and the newest one
        self._marks.append(Mark(end, asked_ms))

    def behind(self, offset: int) -> int:
        """Records between an offset and the end as last heard; 0 before any was heard."""
        return 0 if self.end is None else max(0, self.end - offset)

    def read_up_to_ms(self, offset: int) -> int | None:
        """Record time up to which the log has been read; None before an end was heard.

        A log that was read up to an end counts as read up to when the brokers were asked for it:
        later records may lie there that nobody has seen, however long ago that was. 0 if no end
        was passed and not enough was read.
        """
        if self.end is None:
            return None
        passed = [mark for mark in self._marks if mark.end <= offset]
        if passed:
            self._marks[: len(passed)] = passed[-1:]
            return max(self._stamped_ms, passed[-1].asked_ms)
        return self._stamped_ms

    def report(self, position: Position, now_ms: int) -> Behind:
        """How far reading up to ``position`` is behind."""
        now = now_ms / 1000
        records = self.behind(position.offset)
        if self._caught_up is None or not records:
            self._caught_up = now
        read = position.record_time_ms / 1000 or self._caught_up
        seconds = max(0.0, now - read) if records else 0.0
        if not self._in_order:
            return Behind(records, seconds, (self.read_up_to_ms(position.offset) or 0) / 1000)
        return Behind(records, seconds, read if records else now)
