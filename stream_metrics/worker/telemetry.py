"""What the worker tells about its own work; the Prometheus adapter listens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stream_metrics.engine.changes import Observations
from stream_metrics.ports import OutputMessage


class Telemetry(Protocol):
    """Receives operational counts; every method is cheap and never raises."""

    def observe(self, observations: Observations) -> None: ...
    def bad_records(self, counts: Mapping[str, int]) -> None: ...
    def published(self, messages: Sequence[OutputMessage]) -> None: ...
    def batch(self, records: int) -> None: ...
    def stage(self, name: str, seconds: float) -> None: ...
    def state_written(self, sent_bytes: int) -> None: ...
    def redis(self, seconds: float) -> None: ...
    def redis_error(self) -> None: ...


class Silent:
    """Telemetry for replays, demos and tests: nobody listens."""

    def observe(self, observations: Observations) -> None:
        """Ignore."""

    def bad_records(self, counts: Mapping[str, int]) -> None:
        """Ignore."""

    def published(self, messages: Sequence[OutputMessage]) -> None:
        """Ignore."""

    def batch(self, records: int) -> None:
        """Ignore."""

    def stage(self, name: str, seconds: float) -> None:
        """Ignore."""

    def state_written(self, sent_bytes: int) -> None:
        """Ignore."""

    def redis(self, seconds: float) -> None:
        """Ignore."""

    def redis_error(self) -> None:
        """Ignore."""
