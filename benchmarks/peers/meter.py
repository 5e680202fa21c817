"""A peer's report: CPU and wall time from its first record on, and its figures."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.peers.turns import Figures


class Task(NamedTuple):
    """What a peer is told on its command line; ``folder`` is an empty one for its state."""

    bootstrap: str
    redis_url: str
    topics: tuple[str, str]
    records: int
    folder: str
    name: str


def task() -> Task:
    """The task of this process."""
    bootstrap, redis_url, events, labels, records, folder, name = sys.argv[1:]
    return Task(bootstrap, redis_url, (events, labels), int(records), folder, name)


@dataclass(slots=True)
class Meter:
    """Counts records; the clocks begin with the first, so that no import and no start is in them.

    ``process_time`` is of all threads of the process, those of libraries too.
    """

    expected: int
    taken: int = 0
    invalid: int = 0
    _began: tuple[float, float] = field(default=(0.0, 0.0))
    _ended: tuple[float, float] = field(default=(0.0, 0.0))

    def record(self) -> None:
        """Count a record before it is processed."""
        if not self.taken:
            self.begin()
        self.taken += 1

    def begin(self) -> None:
        """Start the clocks."""
        self._began = (time.process_time(), time.perf_counter())

    @property
    def done(self) -> bool:
        """Whether all records were read."""
        return self.taken >= self.expected

    def end(self) -> None:
        """Stop the clocks: everything is counted and was passed to the store."""
        self._ended = (time.process_time(), time.perf_counter())

    def report(self, totals: dict[str, Figures]) -> None:
        """Print one JSON object, on a line of its own."""
        cpu, wall = (end - start for start, end in zip(self._began, self._ended, strict=True))
        print(
            json.dumps(
                {
                    "cpu": cpu,
                    "wall": wall,
                    "records": self.taken,
                    "invalid": self.invalid,
                    "totals": totals,
                }
            ),
            flush=True,
        )
