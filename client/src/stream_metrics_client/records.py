"""What a sink takes and returns: records, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

_MAX_ERROR_LENGTH: Final = 500


class Record(NamedTuple):
    """An event in JSON with its key, the conversation id."""

    key: bytes
    value: bytes
    is_label: bool


@dataclass
class WriteResult:
    """What became of a batch; the records that are not named here were delivered."""

    retry: list[Record] = field(default_factory=list)
    error: str | None = None
    """Why records must be retried; None if there are none."""

    failed: int = 0
    """The number of records that failed permanently."""

    failure: str | None = None
    """Why the last of these failed; None if there are none."""

    refused: Counter[str] = field(default_factory=Counter)
    """Those of the failed records that the server refused, by its reason."""

    pause: float = 0.0
    """For how many seconds the server wants nothing; 0 if it did not say."""

    def add_failed(self, reason: str) -> None:
        """Count a record that failed permanently."""
        self.failed += 1
        self.failure = reason

    def add_refused(self, reason: str, message: str) -> None:
        """Count a record that the server refused."""
        self.add_failed(f"{reason}: {message}")
        self.refused[reason] += 1

    def add_retry(self, record: Record, reason: str) -> None:
        """Add a record that is to be retried."""
        self.retry.append(record)
        self.error = reason


class Sink(Protocol):
    """Delivers records."""

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Deliver records in order; returns when the outcome of each is known."""

    def close(self) -> None:
        """Release the sink's resources."""


Report = Callable[[str], None]
"""Says why records are being kept back, while a sink still tries to deliver them."""

SinkOpener = Callable[[Report], Sink]


def describe(error: BaseException) -> str:
    """The type of an error, and the beginning of its message if it has one."""
    name = type(error).__name__
    try:
        said = str(error)[:_MAX_ERROR_LENGTH]
        return said if said.startswith(name) else f"{name}: {said}" if said else name
    except Exception:
        return name
