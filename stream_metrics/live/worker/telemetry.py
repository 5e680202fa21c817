"""The interface for the worker's operational metrics; the Prometheus adapter implements it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.record import DeadLetter
from stream_metrics.live.ports import OutputMessage
from stream_metrics.live.runaways import RunawayTurn
from stream_metrics.live.worker.lag import Gauges
from stream_metrics.live.worker.retry import Retry

T = TypeVar("T")


class BugCounts(Protocol):
    """Receives bugs; the method is cheap and never raises."""

    def bug(self, bug: Bug) -> None: ...


class Telemetry(BugCounts, Protocol):
    """Receives operational counts; every method is cheap and never raises."""

    def observe(self, observations: Observations) -> None: ...
    def bad_records(self, counts: Mapping[str, int]) -> None: ...
    def published(self, messages: Sequence[OutputMessage]) -> None: ...
    def batch(self, records: int) -> None: ...
    def stage(self, name: str, seconds: float) -> None: ...
    def state_written(self, sent_bytes: int) -> None: ...
    def agents_known(self, agents: Iterable[str]) -> None: ...
    def ran_away(self, turns: Sequence[RunawayTurn]) -> None: ...
    def forgotten(self, conversation_id: str) -> None: ...
    def redis(self, seconds: float) -> None: ...
    def redis_error(self) -> None: ...


class LoopMetrics(Gauges, Protocol):
    """Receives metrics of the loop; every method is cheap and never raises."""

    def assigned(self, partitions: int) -> None: ...
    def fenced(self) -> None: ...
    def rewound(self) -> None: ...
    def offset_holes(self, holes: int) -> None: ...
    def counted(self, now_ms: int, stamps_ms: Iterable[int]) -> None: ...
    def progressed(self, now: float) -> None: ...


class NoTelemetry:
    """Telemetry that discards everything, for replays, demos and tests."""

    def observe(self, observations: Observations) -> None:
        """Ignore."""

    def bad_records(self, counts: Mapping[str, int]) -> None:
        """Ignore."""

    def bug(self, bug: Bug) -> None:
        """Ignore."""

    def published(self, messages: Sequence[OutputMessage]) -> None:
        """Ignore."""

    def batch(self, records: int) -> None:
        """Ignore."""

    def stage(self, name: str, seconds: float) -> None:
        """Ignore."""

    def state_written(self, sent_bytes: int) -> None:
        """Ignore."""

    def agents_known(self, agents: Iterable[str]) -> None:
        """Ignore."""

    def ran_away(self, turns: Sequence[RunawayTurn]) -> None:
        """Ignore."""

    def forgotten(self, conversation_id: str) -> None:
        """Ignore."""

    def redis(self, seconds: float) -> None:
        """Ignore."""

    def redis_error(self) -> None:
        """Ignore."""


async def timed(call: Callable[[], Awaitable[T]], retry: Retry, telemetry: Telemetry) -> T:
    """Call the store with retries, and report the duration."""
    started = time.perf_counter()
    answer = await retry(call)
    telemetry.redis(time.perf_counter() - started)
    return answer


def report_bugs(letters: Iterable[DeadLetter], counts: BugCounts) -> None:
    """Report the bugs that records met; before their letters are sent, which may have to wait."""
    for letter in letters:
        if letter.bug is not None:
            counts.bug(letter.bug)
