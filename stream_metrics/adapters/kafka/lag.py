"""How far behind the ends of the log a worker is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiokafka import TopicPartition

from stream_metrics.adapters.prometheus.operations import Operations
from stream_metrics.ports import Position, of_topics


class Lag:
    """The ends of the log as last heard, and since when a partition is behind."""

    def __init__(self, operations: Operations, now_ms: Callable[[], int]) -> None:
        self._operations = operations
        self._now_ms = now_ms
        self._ends: dict[TopicPartition, int] = {}
        self._asked_ms: dict[TopicPartition, int] = {}
        self._caught_up: dict[TopicPartition, float] = {}

    def heard(self, ends: Mapping[TopicPartition, int], asked_ms: int) -> None:
        """The brokers have said where the log ends; they were asked at that time."""
        self._ends |= ends
        self._asked_ms |= dict.fromkeys(ends, asked_ms)

    def forget(self, place: TopicPartition) -> None:
        """The partition is another worker's now."""
        self._ends.pop(place, None)
        self._asked_ms.pop(place, None)
        self._caught_up.pop(place, None)
        self._operations.forget_partition(place.topic, place.partition)

    def behind(self, place: TopicPartition, offset: int) -> int:
        """Records between an offset and the end as last heard; 0 where nothing was heard."""
        return max(0, self._ends.get(place, offset) - offset)

    def read_up_to_ms(self, number: int, positions: Mapping[str, Position]) -> int | None:
        """Record time up to which every topic has been read; None if an end was never heard.

        A topic at its end counts as read up to when the brokers were asked for that: later records
        may lie there that nobody has seen, however long ago that was.
        """
        times = []
        for topic, position in of_topics(positions).items():
            place = TopicPartition(topic, number)
            end = self._ends.get(place)
            if end is None:
                return None
            at_end = position.offset >= end
            times.append(self._asked_ms[place] if at_end else position.record_time_ms)
        return min(times, default=None)

    def report(self, known: Mapping[int, Mapping[str, Position]]) -> None:
        """Lag of each topic and partition, and up to when the input has been read."""
        now = self._now_ms() / 1000
        oldest = now
        for number, positions in known.items():
            for topic, position in of_topics(positions).items():
                place = TopicPartition(topic, number)
                behind = self.behind(place, position.offset)
                since = self._caught_up.setdefault(place, now)
                if not behind:
                    self._caught_up[place] = now
                read = position.record_time_ms / 1000 or since
                seconds = max(0.0, now - read) if behind else 0.0
                self._operations.lag(topic, number, behind, seconds)
                oldest = min(oldest, read if behind else now)
        self._operations.complete_until(oldest)
