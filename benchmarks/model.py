"""The capacity model of ``docs/guides/sizing.md``: the cost of an event by content and reader.

``MEASURED`` are the constants that the last ``python -m benchmarks scaling`` stored with its
report; ``python -m benchmarks.sizing --write`` then updates the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stream_metrics.live.worker.batches import BatchSizer

BATCH_RECORDS = 500  # state.batch_records
POLL_RECORDS = 2_000  # kafka.max_poll_records


@dataclass(frozen=True, slots=True)
class Mix:
    """The average content of a record. ``searches`` is the share of records with searches; the
    others have labels."""

    searches: float
    results: float
    labels: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Batches:
    """The size of batches: events per batch, and conversations of a batch per event.

    ``touched`` counts all conversations, ``loaded`` those that are not in the worker's cache.
    ``held`` is the average number of results of a loaded conversation, 0 for a new one.
    """

    events: float
    touched: float
    loaded: float
    held: float = 0.0


@dataclass(frozen=True, slots=True)
class Constants:
    """What was measured by ``run``: CPU in µs of a core like the one that was measured on, bytes
    of Redis, and how long a worker takes over one state partition."""

    run: str
    search_us: float
    result_us: float
    labelling_us: float
    label_us: float
    batch_us: float
    touch_us: float
    load_us: float
    load_result_us: float
    redis_search_us: float
    redis_result_us: float
    redis_label_us: float
    redis_batch_us: float
    redis_touch_us: float
    redis_load_us: float
    redis_load_result_us: float
    broker_us: float
    take_over_ms: float
    conversation_bytes: float
    event_bytes: float
    result_bytes: float
    value_bytes: float
    label_bytes: float


WORKER = {
    "search_us": "CPU µs of a worker per search event",
    "result_us": "CPU µs of a worker per result",
    "labelling_us": "CPU µs of a worker per label event",
    "label_us": "CPU µs of a worker per label",
    "batch_us": "CPU µs of a worker per batch",
    "touch_us": "CPU µs of a worker per conversation in a batch",
    "load_us": "CPU µs of a worker per conversation that it loads from Redis",
    "load_result_us": "CPU µs of a worker per result of such a conversation",
}
REDIS = {
    "redis_search_us": "CPU µs of Redis per search event",
    "redis_result_us": "CPU µs of Redis per result",
    "redis_label_us": "CPU µs of Redis per label",
    "redis_batch_us": "CPU µs of Redis per batch",
    "redis_touch_us": "CPU µs of Redis per conversation in a batch",
    "redis_load_us": "CPU µs of Redis per conversation that is loaded",
    "redis_load_result_us": "CPU µs of Redis per result of such a conversation",
}
OTHERS = {
    "broker_us": "CPU µs of the broker per event that is fetched",
    "take_over_ms": "CPU ms of a worker per state partition that it takes over",
    "conversation_bytes": "bytes of Redis per conversation",
    "event_bytes": "bytes of Redis per search event",
    "result_bytes": "bytes of Redis per result",
    "value_bytes": "bytes of Redis per further value of a result",
    "label_bytes": "bytes of Redis per label",
}
NAMES = {**WORKER, **REDIS, **OTHERS}

CONSTANTS_FILE = Path(__file__).with_name("results") / "constants.json"
MEASURED = Constants(**json.loads(CONSTANTS_FILE.read_text(encoding="utf-8")))


def store_constants(found: Constants, place: Path = CONSTANTS_FILE) -> None:
    """Store constants with three digits; they are ``MEASURED`` from the next start on."""
    kept = {
        name: float(f"{value:.3g}") if isinstance(value, float) else value
        for name, value in asdict(found).items()
    }
    place.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def worker_terms(mix: Mix, batches: Batches) -> tuple[float, ...]:
    """The factors of the worker's constants."""
    each = (mix.searches, mix.results, 1 - mix.searches, mix.labels)
    return (*each, *_read_terms(batches))


def redis_terms(mix: Mix, batches: Batches) -> tuple[float, ...]:
    """The factors of Redis' constants."""
    return (mix.searches, mix.results, mix.labels, *_read_terms(batches))


def _read_terms(batches: Batches) -> tuple[float, ...]:
    loaded = batches.loaded
    return (1 / batches.events, batches.touched, loaded, loaded * batches.held)


def batch_catching_up(partitions: Collection[Sequence[int]]) -> float:
    """Events per batch for these numbers of records on each state partition, by topic.

    The worker's batch size grows with each batch up to ``state.batch_records``. A batch ends where
    a partition has no more records of a topic, because smaller records are read far ahead of
    others, and where a fetch ends.

    >>> round(batch_catching_up([(2_300, 1_450)] * 8))
    316

    Raises:
        ValueError: No partition has a record.
    """
    records = sum(map(sum, partitions))
    if not records:
        raise ValueError("no batch has any events: pass partitions with records on them")
    cut = sum(map(_cuts, partitions)) + records / POLL_RECORDS
    return records / cut


def _cuts(logs: Sequence[int]) -> int:
    """The number of batches of a state partition whose topics are read alternately."""
    sizer, batches, left = BatchSizer(), 0, list(logs)
    while any(left):
        for topic, records in enumerate(left):
            if records:
                size = min(records, sizer.records, BATCH_RECORDS)
                sizer.note(size, 0.0)
                left[topic] -= size
                batches += 1
    return batches


def distinct(draws: float, things: float) -> float:
    """The expected number of different things in a number of draws with replacement.

    >>> round(distinct(400, 250)), round(distinct(400, 250_000))
    (200, 400)
    """
    return things * -math.expm1(draws * math.log1p(-1 / things)) if things > 1 else 1.0


def full_batch() -> float:
    """Events per batch if each partition has more records than a batch may have.

    >>> round(full_batch())
    400
    """
    return 1 / (1 / BATCH_RECORDS + 1 / POLL_RECORDS)


def batch_keeping_up(rate: float, partitions: int, each_us: float, batch_us: float) -> float:
    """Events per batch of one worker that keeps up with ``rate`` events per second.

    Each round reads the events that arrived during the round before, so that a round lasts as long
    as its events take to arrive. At lower rates, batches are smaller and more frequent. ``each_us``
    and ``batch_us`` are the worker's costs per event and per batch.

    >>> round(batch_keeping_up(5_000, 8, 100, 2_000), 1), batch_keeping_up(100, 8, 100, 2_000)
    (20.0, 1.0)
    """
    free = 1 - rate * each_us / 1e6
    if free <= 0:
        return min(BATCH_RECORDS, POLL_RECORDS / partitions)
    found = rate * batch_us / 1e6 / free
    return max(1.0, min(found, BATCH_RECORDS, POLL_RECORDS / partitions))


def keeping_up(
    rate: float, partitions: int, mix: Mix, read: Batches, measured: Constants = MEASURED
) -> tuple[float, float]:
    """Events per batch of such a worker, and its cores; the batch size of ``read`` is not used.

    The cores are an upper bound: rounds that also wait for Redis or the broker are longer, and have
    larger batches.
    """
    each_us = worker_us(mix, replace(read, events=math.inf), measured)
    batch = batch_keeping_up(rate, partitions, each_us, measured.batch_us)
    return batch, rate * (each_us + measured.batch_us / batch) / 1e6


def conversation_bytes(
    events: float,
    results: float,
    labels: float,
    further: float = 0.0,
    measured: Constants = MEASURED,
) -> float:
    """Bytes of Redis for a conversation, by its search events, results, labels, further values."""
    m = measured
    held = events * m.event_bytes + results * m.result_bytes + labels * m.label_bytes
    return m.conversation_bytes + held + further * m.value_bytes


def worker_us(mix: Mix, batches: Batches, measured: Constants = MEASURED) -> float:
    """CPU µs per event of a worker."""
    return _sum(measured, WORKER, worker_terms(mix, batches))


def redis_us(mix: Mix, batches: Batches, measured: Constants = MEASURED) -> float:
    """CPU µs per event of Redis."""
    return _sum(measured, REDIS, redis_terms(mix, batches))


def _sum(measured: Constants, names: Iterable[str], terms: Sequence[float]) -> float:
    pairs = zip(names, terms, strict=True)
    return float(sum(getattr(measured, name) * term for name, term in pairs))
