"""How far behind the ends of the log a worker is."""

from __future__ import annotations

import time
from collections.abc import Mapping

from aiokafka import TopicPartition

from stream_metrics.adapters.prometheus.operations import Operations
from stream_metrics.ports import Position


class Lag:
    """The ends of the log as last heard, and since when a partition is behind."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._ends: dict[TopicPartition, int] = {}
        self._caught_up: dict[TopicPartition, float] = {}

    def heard(self, ends: Mapping[TopicPartition, int]) -> None:
        """The brokers have said where the log ends."""
        self._ends |= ends

    def forget(self, place: TopicPartition) -> None:
        """The partition is another worker's now."""
        self._ends.pop(place, None)
        self._caught_up.pop(place, None)
        self._operations.forget_partition(place.topic, place.partition)

    def behind(self, place: TopicPartition, offset: int) -> int:
        """Records between an offset and the end as last heard; 0 where nothing was heard."""
        return max(0, self._ends.get(place, offset) - offset)

    def read_up_to_ms(self, number: int, positions: Mapping[str, Position]) -> int | None:
        """Record time up to which every topic has been read; a topic at its end counts as now."""
        now_ms = int(time.time() * 1000)
        times = []
        for topic, position in positions.items():
            end = self._ends.get(TopicPartition(topic, number))
            if end is None:
                return None
            times.append(now_ms if position.offset >= end else position.record_time_ms)
        return min(times, default=None)

    def report(self, known: Mapping[int, Mapping[str, Position]]) -> None:
        """Lag of each topic and partition, and up to when the input has been read."""
        now = time.time()
        oldest = now
        for number, positions in known.items():
            for topic, position in positions.items():
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
