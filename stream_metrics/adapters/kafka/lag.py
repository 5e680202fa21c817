"""How far behind the ends of the log a worker is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from aiokafka import TopicPartition

from stream_metrics.adapters.prometheus.operations import Operations
from stream_metrics.ports import Position, of_topics


class Mark(NamedTuple):
    """All records up to a time lie before an end of the log."""

    end: int
    asked_ms: int


class Lag:
    """The ends of the log as last heard, and since when a partition is behind.

    ``in_order``: whether the records of a log come about in the order of their times. Where several
    logs were merged into one they do not.
    """

    def __init__(
        self, operations: Operations, now_ms: Callable[[], int], *, in_order: bool = True
    ) -> None:
        self._operations = operations
        self._now_ms = now_ms
        self._in_order = in_order
        self._ends: dict[TopicPartition, int] = {}
        self._marks: dict[TopicPartition, list[Mark]] = {}
        self._caught_up: dict[TopicPartition, float] = {}

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
        for topic, position in of_topics(positions).items():
            place = TopicPartition(topic, number)
            if place not in self._ends:
                return None
            times.append(self._read_up_to_ms(place, position))
        return min(times, default=None)

    def _read_up_to_ms(self, place: TopicPartition, position: Position) -> int:
        """The same of one log: before its end by the newest record, if records come in order, else
        by the newest end that was passed; 0 if none was."""
        marks = self._marks.get(place, [])
        passed = [mark for mark in marks if mark.end <= position.offset]
        if self._in_order and len(passed) < len(marks):
            return position.record_time_ms
        if passed:
            marks[: len(passed)] = passed[-1:]
        return passed[-1].asked_ms if passed else 0

    def report(self, known: Mapping[int, Mapping[str, Position]]) -> None:
        """Lag of each topic and partition, and up to when the input has been read."""
        now = self._now_ms() / 1000
        oldest = now
        for number, positions in known.items():
            for topic, position in of_topics(positions).items():
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
