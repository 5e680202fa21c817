"""Detects a worker that is stuck: it has work, waits for nothing, and makes no progress.

Progress means that stored positions advance or that a take-over completes a step. Waiting for
Redis, Kafka or the dead-letter topic is no reason to restart, nor is a rebalance within its
timeout, nor a partition that is blocked by policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PartitionKey = tuple[int, str]  # partition number and topic

# A partition may have to wait while others are read. It counts as stuck only after so many rounds
# of the loop without a record.
ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The progress of a worker at a moment.

    ``offsets`` are the stored positions of all partitions that are not blocked by policy, and
    ``behind`` their lag in records. ``steps`` counts steps of take-overs, ``rounds`` those of the
    loop. ``waiting`` names what the worker waits for.
    """

    offsets: Mapping[PartitionKey, int] = field(default_factory=dict)
    behind: Mapping[PartitionKey, int] = field(default_factory=dict)
    taking_over: bool = False
    rebalancing: bool = False
    steps: int = 0
    rounds: int = 0
    waiting: frozenset[str] = frozenset()

    @property
    def excused(self) -> bool:
        """Whether the worker waits for others."""
        return self.rebalancing or bool(self.waiting)

    @property
    def busy(self) -> bool:
        """Whether there is something to do."""
        return self.taking_over or any(self.behind.values())


@dataclass(slots=True)
class _Still:
    """Since when a partition has lag without progress."""

    offset: int
    since: float
    rounds: int


class Watchdog:
    """Checks successive statuses; ``seconds`` without progress mean stuck, 0 disables the check.

    The caller supplies the time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.moved = False  # whether the last check saw progress
        self._before = WorkerStatus()
        self._since: float | None = None
        self._still: dict[PartitionKey, _Still] = {}

    def check(self, now: float, status: WorkerStatus) -> str | None:
        """Why the worker is stuck, or None."""
        before, self._before = self._before, status
        self.moved = status.offsets != before.offsets or status.steps != before.steps
        if self._since is None or self.moved or status.excused or not status.busy:
            self._since = now
        self._note_places(now, status)
        if not self.seconds:
            return None
        silent = now - self._since
        if silent >= self.seconds:
            return f"no progress for {silent:.0f} s: {_left(status)}, and nothing to wait for"
        stuck = [
            place
            for place, still in self._still.items()
            if now - still.since >= self.seconds and status.rounds - still.rounds >= ROUNDS
        ]
        if not stuck:
            return None
        named = ", ".join(f"partition {number} of {topic}" for number, topic in sorted(stuck))
        return f"nothing read from {named} for {self.seconds:.0f} s, although it has more records"

    def _note_places(self, now: float, status: WorkerStatus) -> None:
        if status.excused:
            self._still.clear()
        for place in self._still.keys() - status.offsets.keys():
            del self._still[place]
        for place, offset in status.offsets.items():
            still = self._still.get(place)
            if not status.behind.get(place):
                self._still.pop(place, None)
            elif still is None or still.offset != offset:
                self._still[place] = _Still(offset, now, status.rounds)


def _left(status: WorkerStatus) -> str:
    behind = sum(status.behind.values())
    return f"{behind} records left to read" if behind else "still taking over partitions"
