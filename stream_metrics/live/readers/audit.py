"""Recompute the windows of a namespace from its conversations, and compare with what is stored.

For every bucket that has not left its window, and every series in it:

    stored = sums of the conversations in the store + sums of expired conversations

The second term is written by the step that deletes them (``worker.partition``). A forgotten
conversation adds nothing, because it was subtracted from its buckets. Both sides are equal, so each
difference is an error. ``docs/guides/operations.md`` says what it may mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from stream_metrics.core.alerts.minutes import keeps_minutes
from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.engine.codec import decode_conversation, decode_sums
from stream_metrics.core.engine.config import MAX_ROUTES, EngineConfig
from stream_metrics.core.engine.conversation_cells import conversation_cells
from stream_metrics.core.engine.step import Step
from stream_metrics.core.engine.window import Window
from stream_metrics.core.engine.windows import (
    EXPIRED,
    Names,
    Sums,
    add,
    add_to_buckets,
    oldest_bucket,
)
from stream_metrics.live.ports import StateStore

RetryRead = Callable[[], Awaitable[bool]]
BucketKey = tuple[str, int, str]  # window, bucket, agent


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A stored sum that differs from the sum of the conversations; ``code`` names the series."""

    partition: int
    window: str
    time_us: int
    agent: str
    code: str
    stored: int
    computed: int


@dataclass(slots=True)
class Audit:
    """The result of an audit.

    ``unreadable`` describes stored values that cannot be decoded. ``busy`` are the partitions that
    could not be read without concurrent writes.
    """

    partitions: int = 0
    conversations: int = 0
    sums: int = 0
    differences: list[Difference] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The settings that the state was built with."""

    engine: EngineConfig
    windows: tuple[Window, ...]
    agents: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Reading:
    """A consistent read of a state partition: its stored buckets, and the computed ones."""

    record_time_us: int
    buckets: Mapping[BucketKey, bytes]
    computed: dict[BucketKey, Sums] = field(default_factory=dict)
    conversations: int = 0
    unreadable: list[str] = field(default_factory=list)


async def audit(store: StateStore, options: AuditOptions, retry: RetryRead) -> Audit:
    """Compare every state partition, without writing.

    Memory holds the buckets of one partition and one page of its conversations at a time. A
    partition that was written to meanwhile is read again if ``retry`` returns true.
    """
    found = Audit()
    for number in await store.partitions():
        reading = await _read(store, number, options, retry)
        if reading is None:
            found.busy.append(number)
            continue
        _compare(number, reading, options, found)
    found.differences.sort()
    return found


async def _read(
    store: StateStore, number: int, options: AuditOptions, retry: RetryRead
) -> _Reading | None:
    """Read a partition until nothing was written meanwhile; None if the retries end before."""
    while True:
        before = await store.describe(number)
        times = [position.record_time_ms for position in before.positions.values()]
        reading = _Reading(1000 * max(times, default=0), await store.buckets(number))
        # names are admitted before buckets are written, so read the names after the buckets
        await _add_up(store, number, reading, await _names(store, options), options)
        after = await store.describe(number)
        if (before.positions, before.last_batch) == (after.positions, after.last_batch):
            return reading
        if not await retry():
            return None


async def _names(store: StateStore, options: AuditOptions) -> Names:
    """The names that have their own series."""
    engine, layout = options.engine, await store.layout()
    kind = f"{engine.dimension}s"
    return Names(
        layout.chosen(kind, options.agents, engine.max_names),
        layout.chosen("routes", options.routes, MAX_ROUTES),
    )


async def _add_up(
    store: StateStore, number: int, reading: _Reading, names: Names, options: AuditOptions
) -> None:
    """Add the contributions of every stored conversation to ``reading``."""
    engine = options.engine
    dedup = deduplicator(engine.rules, b"")
    step = Step(engine, lambda _: dedup)
    async for key, stored in store.conversations(number):
        try:
            conversation = decode_conversation("", stored.hot, "")
            step.restore(conversation)
            cells = conversation_cells(conversation, engine)
        except MemoryError:
            raise
        except Exception as error:  # any error in decoding stored bytes is a finding
            reading.unreadable.append(
                f"partition {number}: conversation {key.hex()}: {type(error).__name__}"
            )
        else:
            reading.conversations += bool(conversation.turns)  # not tombstones
            add_to_buckets(reading.computed, cells, names, options.windows, reading.record_time_us)


def _compare(number: int, reading: _Reading, options: AuditOptions, found: Audit) -> None:
    computed = reading.computed
    stored: dict[BucketKey, Sums] = {}
    for (name, bucket, agent), data in reading.buckets.items():
        if keeps_minutes(name):
            continue  # conversations do not say when their parts arrived
        sums = _sums(number, (name, bucket, agent), data, reading)
        if name.startswith(EXPIRED):
            add(computed.setdefault((name.removeprefix(EXPIRED), bucket, agent), {}), sums, 1)
        else:
            stored[name, bucket, agent] = dict(sums)
    found.partitions += 1
    found.conversations += reading.conversations
    found.unreadable += reading.unreadable
    for window in options.windows:
        oldest = oldest_bucket(window, reading.record_time_us)
        places = {place for place in stored.keys() | computed.keys() if place[0] == window.name}
        for place in places:
            _, bucket, agent = place
            if bucket < oldest:
                continue
            ours, theirs = computed.get(place, {}), stored.get(place, {})
            codes = ours.keys() | theirs.keys()
            found.sums += len(codes)
            found.differences += (
                Difference(
                    number, window.name, bucket * window.bucket_us, agent, code,
                    theirs.get(code, 0), ours.get(code, 0),
                )
                for code in codes
                if theirs.get(code, 0) != ours.get(code, 0)
            )  # fmt: skip


def _sums(number: int, place: BucketKey, data: bytes, found: _Reading) -> Mapping[str, int]:
    try:
        sums = decode_sums(data)
        if not all(type(code) is str and type(value) is int for code, value in sums.items()):
            raise TypeError
    except MemoryError:
        raise
    except Exception as error:  # as above
        window, bucket, agent = place
        found.unreadable.append(
            f"partition {number}: window {window}, bucket {bucket} of {agent!r}: "
            f"{type(error).__name__}"
        )
        return {}
    return sums
