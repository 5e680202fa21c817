"""The operational metrics that the page shows, now and over the last two hours."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry

SAMPLE_SECONDS: Final = 15.0
SAMPLES: Final = 480  # two hours

_PREFIX: Final = "streammetrics_"
_COUNTED: Final = ("dead_letters_total", "events_total", "offset_gaps_total", "halted_partitions")
_KNOWN: Final = (  # without a sample while they are unknown
    "consumer_lag_records",
    "consumer_lag_seconds",
    "complete_until_timestamp_seconds",
    "log_ends_timestamp_seconds",
    "redis_memory_bytes",
    "redis_memory_limit_bytes",
)


@dataclass(frozen=True, slots=True)
class OperationsSample:
    """The worker's operational metrics at one time; None for what is unknown then.

    ``lag_records`` is the sum over partitions, ``lag_seconds`` the maximum. ``lag_known_at`` is the
    last time at which the brokers told the ends of the topics. Counters start with the process.
    ``at``, ``complete_until`` and ``lag_known_at`` are Unix times in seconds.
    """

    at: float
    lag_records: float | None = None
    lag_seconds: float | None = None
    complete_until: float | None = None
    lag_known_at: float | None = None
    memory_bytes: float | None = None
    memory_limit_bytes: float | None = None
    dead_letters: float = 0.0
    events: float = 0.0
    offset_gaps: float = 0.0
    halted_partitions: float = 0.0


def read_sample(registry: CollectorRegistry, at: float) -> OperationsSample:
    """Read the current values from a registry."""
    found: dict[str, list[float]] = {name: [] for name in (*_KNOWN, *_COUNTED)}
    wanted = registry.restricted_registry([_PREFIX + name for name in found])
    for family in wanted.collect():
        for sample in family.samples:
            name = sample.name.removeprefix(_PREFIX)
            if name in found:
                found[name].append(sample.value)
    records = found["consumer_lag_records"]
    known = {name: max(found[name], default=None) for name in _KNOWN}
    counted = {name: sum(found[name]) for name in _COUNTED}
    return OperationsSample(
        at,
        lag_records=sum(records) if records else None,
        lag_seconds=known["consumer_lag_seconds"],
        complete_until=known["complete_until_timestamp_seconds"],
        lag_known_at=known["log_ends_timestamp_seconds"],
        memory_bytes=known["redis_memory_bytes"],
        memory_limit_bytes=known["redis_memory_limit_bytes"],
        dead_letters=counted["dead_letters_total"],
        events=counted["events_total"],
        offset_gaps=counted["offset_gaps_total"],
        halted_partitions=counted["halted_partitions"],
    )


class History:
    """The latest ``SAMPLES`` samples.

    ``failure`` says why the last one could not be taken, empty if it was.
    """

    def __init__(self) -> None:
        self._samples: deque[OperationsSample] = deque(maxlen=SAMPLES)
        self.failure = ""

    def add(self, sample: OperationsSample) -> None:
        """Add a sample."""
        self._samples.append(sample)
        self.failure = ""

    def since(self, at: float) -> OperationsSample | None:
        """The oldest sample taken at or after ``at``."""
        return next((sample for sample in tuple(self._samples) if sample.at >= at), None)

    def before(self, at: float) -> OperationsSample | None:
        """The newest sample taken at or before ``at``."""
        return next((sample for sample in reversed(tuple(self._samples)) if sample.at <= at), None)

    def complete_until(self) -> float | None:
        """The last known time up to which the worker had read all its partitions."""
        known = (sample.complete_until for sample in reversed(tuple(self._samples)))
        return next((at for at in known if at is not None), None)

    def lag(self) -> dict[str, Any]:
        """The lag of each sample, the oldest first."""
        samples: Iterable[OperationsSample] = tuple(self._samples)
        return {
            "times": [round(sample.at, 1) for sample in samples],
            "seconds": [_rounded(sample.lag_seconds) for sample in samples],
            "records": [sample.lag_records for sample in samples],
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def increase(
    now: OperationsSample, before: OperationsSample | None, names: Iterable[str]
) -> Mapping[str, float]:
    """The increase of counters since ``before``; 0 without it."""
    return {
        name: 0.0 if before is None else getattr(now, name) - getattr(before, name)
        for name in names
    }
