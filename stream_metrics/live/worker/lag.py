"""The lag of a log: records and time behind its end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from stream_metrics.core.events.record import Record
from stream_metrics.live.ports import Position

MIN_TIMESTAMPS: Final = 1_000  # at least one of so many is assumed not to be too late
KNOWN_SECONDS: Final = 10.0  # how long the ends of logs count as known after an answer


class Gauges(Protocol):
    """Receives the lag of partitions; every method is cheap and never raises."""

    def lag(self, topic: str, partition: int, records: int, seconds: float) -> None: ...
    def forget_partition(self, topic: str, partition: int) -> None: ...
    def complete_until(self, seconds: float | None) -> None: ...
    def ends_told(self, unix_seconds: float) -> None: ...
    def offset_gap(self, topic: str) -> None: ...


class AnsweredEnds:
    """Whether the brokers have told the ends of logs lately; if not, the lag is unknown.

    One answer that is late changes nothing, so that it leaves no hole in the lag.
    """

    def __init__(self, gauges: Gauges, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._gauges = gauges
        self._monotonic = monotonic
        self._told_at = float("-inf")

    def told(self) -> None:
        """The brokers have just told the ends."""
        self._told_at = self._monotonic()

    @property
    def known(self) -> bool:
        """Whether the last answer is recent enough to tell the lag from."""
        return self._monotonic() - self._told_at <= KNOWN_SECONDS

    def expire(self, places: Iterable[tuple[str, int]]) -> None:
        """Forget the lag of these topics' partitions, unless it is known."""
        if not self.known:
            for topic, partition in places:
                self._gauges.forget_partition(topic, partition)


class EndMark(NamedTuple):
    """The end of the log at a time: records written until then are before it.

    ``holds_ms`` is that time, or the earliest one of a record behind the end if that is before it.
    """

    end: int
    asked_ms: int
    holds_ms: int


class Behind(NamedTuple):
    """The lag in records and seconds, and the Unix time up to which the log has been read."""

    records: int
    seconds: float
    read_up_to: float


class LogLag:
    """The last known end of one log, and the record time up to which it has been read.

    ``in_order`` tells whether the records are in the order of their timestamps. In a log merged
    from several others they are not, so only reaching a known end tells the time.
    """

    def __init__(self, *, in_order: bool = True) -> None:
        self._in_order = in_order
        self._marks: list[EndMark] = []
        self._caught_up: float | None = None
        self.end: int | None = None  # None while unknown
        self.begin()

    def begin(self, read_up_to_ms: int = 0) -> None:
        """Start at another position, up to which the log is known to be read until that time."""
        self._stamped_ms = read_up_to_ms
        self._minima: deque[tuple[int, int]] = deque()  # number of timestamps, and the smallest
        self._count = 0

    def read(self, stamps_ms: Iterable[int | None], now_ms: int) -> None:
        """Note the timestamps of processed records; those in the future are ignored.

        A record is written no earlier than its timestamp, unless the producer's clock is ahead. So
        the smallest of the last ``MIN_TIMESTAMPS`` is used, and single wrong ones have no effect.
        """
        if not self._in_order:
            return
        usable = [ms for ms in stamps_ms if ms is not None and 0 <= ms <= now_ms]
        if not usable:
            return
        self._minima.append((len(usable), min(usable)))
        self._count += len(usable)
        while self._count - self._minima[0][0] >= MIN_TIMESTAMPS:
            self._count -= self._minima.popleft()[0]
        if self._count >= MIN_TIMESTAMPS:
            smallest = min(stamp for _, stamp in self._minima)
            self._stamped_ms = max(self._stamped_ms, smallest)

    def check(self, records: Sequence[Record]) -> None:
        """Note records behind a known end that are older than it: a clock was set back."""
        for at, mark in enumerate(self._marks):
            if records[-1].offset >= mark.end:
                times = [
                    record.timestamp_ms or 0 for record in records if record.offset >= mark.end
                ]
                self._marks[at] = mark._replace(holds_ms=min(mark.holds_ms, *times))

    def set_end(self, end: int, asked_ms: int) -> None:
        """Set the end of the log; all records written until ``asked_ms`` are before it."""
        self.end = end
        del self._marks[2:]  # keep the last one reached, the next one, and the newest
        self._marks.append(EndMark(end, asked_ms, asked_ms))

    def behind(self, offset: int) -> int:
        """The number of records between an offset and the end; 0 while the end is unknown."""
        return 0 if self.end is None else max(0, self.end - offset)

    def read_up_to_ms(self, offset: int) -> int | None:
        """Record time up to which the log has been read; None while the end is unknown.

        A log that has been read to an end counts as read up to the time at which the brokers were
        asked for that end, because later records may exist. 0 if no end was reached and too few
        records were read.
        """
        if self.end is None:
            return None
        reached = [mark for mark in self._marks if mark.end <= offset]
        if reached:
            self._marks[: len(reached)] = reached[-1:]
            return max(self._stamped_ms, reached[-1].asked_ms)
        return self._stamped_ms

    def no_earlier_ms(self, offset: int) -> int:
        """The time before which no further record is expected, as far as records have shown.

        After a clock was set back that is earlier than the time up to which the log has been read.
        """
        self.read_up_to_ms(offset)
        mark = self._marks[0] if self._marks else None
        return mark.holds_ms if mark is not None and mark.end <= offset else self._stamped_ms

    def report(self, position: Position, now_ms: int) -> Behind:
        """The lag of ``position``."""
        now = now_ms / 1000
        records = self.behind(position.offset)
        if self._caught_up is None or not records:
            self._caught_up = now
        read = position.record_time_ms / 1000 or self._caught_up
        seconds = max(0.0, now - read) if records else 0.0
        if not self._in_order:
            return Behind(records, seconds, (self.read_up_to_ms(position.offset) or 0) / 1000)
        return Behind(records, seconds, read if records else now)
