"""Building a new generation of state: what differs from the live one, how far back the log must
reach, and whether the new one has caught up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.engine.window import Window
from stream_metrics.core.events.record import Extent
from stream_metrics.live.layout import Generation, Identity, Layout
from stream_metrics.live.ports import StateStore
from stream_metrics.live.worker.options import Policy
from stream_metrics.live.worker.ownership.identity import VALUE_FORMAT, changed_settings

PartitionId = tuple[str, int]  # topic and partition

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000  # how long producers may still use an earlier partition count
HEARTBEAT_TIMEOUT_MS: Final = 20_000
CAUGHT_UP_MS: Final = 10_000  # the largest lag of a generation that has caught up
PAUSE_ABOVE: Final = 0.85  # share of the store's memory in use above which a build pauses
RESUME_BELOW: Final = 0.83
SAMPLE: Final = 64  # conversations per partition whose size is measured
KEY_BYTES: Final = 100  # overhead of a key in Redis


class CannotBuild(Exception):
    """A build is impossible as requested; the message says why and what to do."""


class Logs(Protocol):
    """Reads the bounds of logs from Kafka."""

    async def extents(self, places: Collection[PartitionId]) -> Mapping[PartitionId, Extent]:
        """The current first and end offset of each log."""
        ...

    async def oldest_ms(self, places: Collection[PartitionId]) -> Mapping[PartitionId, int]:
        """The timestamp of the first record of each log; logs without one are left out."""
        ...


def differences(stored: Identity, ours: Identity) -> list[str]:
    """How a state with identity ``ours`` would differ from ``stored``, one line per difference."""
    changes = [str(change) for change in changed_settings(stored, ours)]
    if not changes and stored.fingerprint != ours.fingerprint:
        changes.append(f"settings: fingerprint {stored.fingerprint}, now {ours.fingerprint}")
    before, now = dict(stored.partition_counts), dict(ours.partition_counts)
    if before != now:
        changes.append(f"topics and their partitions were {before}, are {now}")
    if stored.schema_version != ours.schema_version:
        changes.append(f"schema was {stored.schema_version}, is {ours.schema_version}")
    return changes


def check_counts(layout: Layout, ours: Identity, oldest_ms: Mapping[PartitionId, int]) -> None:
    """Raise ``CannotBuild`` if records of one conversation may be on several partition numbers.

    That is so if partitions were added to a topic after its oldest record was written.
    ``oldest_ms`` has the timestamps of the first records of the logs that would be read.
    """
    live = layout.in_force
    for topic, count in ours.partition_counts.items():
        before = None if live is None else live.identity.partition_counts.get(topic)
        grown_ms = layout.grown.get(topic)
        first_ms = min((ms for (name, _), ms in oldest_ms.items() if name == topic), default=None)
        if grown_ms is None:
            split = before not in (None, count)  # the time of the change is unknown
        else:
            split = first_ms is not None and first_ms <= grown_ms + HOUR_MS
        if not split:
            continue
        raise CannotBuild(
            f"partitions were added to topic {topic}, and it still has earlier records, so records "
            "of one conversation are on several partitions. Let the workers repartition them: set "
            "kafka.repartition_topic to a new topic (docs/guides/partitions.md)"
        )


def check_copies(live: Identity, ours: Identity, internal_topic: str | None) -> None:
    """Raise ``CannotBuild`` if records of the internal topic were copied in another value format.

    They were taken out of their envelopes when they were copied, or not.
    """
    changed = {change.name for change in changed_settings(live, ours)}
    if internal_topic in live.partition_counts and VALUE_FORMAT in changed:
        raise CannotBuild(
            f"{internal_topic} has records that were copied under another {VALUE_FORMAT}. Name a "
            "new topic as well: kafka.repartition_topic (docs/guides/partitions.md)"
        )


def complete_since_ms(windows: Collection[Window], ttl_ms: int, now_ms: int) -> int:
    """The time from which the log must be complete, in milliseconds.

    A conversation may be as old as its ttl when it adds to the oldest bucket of the longest window,
    and records may be written up to a day after their events.
    """
    longest_us = max((window.length_us for window in windows), default=0)
    return now_ms - ttl_ms - longest_us // 1000 - DAY_MS


async def short_logs(
    logs: Logs,
    places: Collection[PartitionId],
    windows: Collection[Window],
    ttl_ms: int,
    now_ms: int,
) -> list[str]:
    """Logs that do not reach back far enough, and until when figures would be too low."""
    extents = await logs.extents(places)
    cut = [place for place, extent in extents.items() if extent.first > 0]
    oldest, needed, short = (
        await logs.oldest_ms(cut),
        complete_since_ms(windows, ttl_ms, now_ms),
        [],
    )
    for topic, number in sorted(cut):
        first_ms = oldest.get((topic, number), now_ms)
        if first_ms > needed:
            until = _time(first_ms + now_ms - needed)
            short.append(
                f"{topic}/{number} begins at {_time(first_ms)}, so figures would be too low until "
                f"{until}"
            )
    return short


async def needed_bytes(store: StateStore, generation: Generation) -> int | None:
    """The estimated memory of a generation in bytes, from a sample of each partition.

    A damaged partition counts as the average of the others; None if all are damaged.
    """
    state, count, readable = store.generation(generation), generation.identity.count, list[int]()
    for number in range(count):
        with suppress(DamagedState):
            readable.append(await _partition_bytes(state, number))
    return count * sum(readable) // len(readable) if readable else None


async def _partition_bytes(state: StateStore, number: int) -> int:
    held = (await state.describe(number)).conversations
    keys = await state.by_age(number, 0, 1 << 53, SAMPLE, newest=True)
    conversations = await state.load(number, [(key, True) for key in keys])
    sizes = [
        2 * KEY_BYTES + _size(stored.hot) + _size(stored.fingerprints or {})
        for stored in conversations
    ]
    buckets = sum(len(sums) + 40 for sums in (await state.buckets(number)).values())
    return held * sum(sizes) // max(1, len(sizes)) + buckets


def gap_policy(layout: Layout, generation: Generation, configured: Policy) -> Policy:
    """How a worker of a generation handles offset gaps: while it is built, a partition is wiped and
    read from the start.

    Once the generation has replaced another one, its state is in use, although it is still muted.
    """
    mine = layout.of(generation.number)
    return "rebuild" if mine is not None and mine.state == "building" else configured


def pause_reason(share: float, *, paused: bool) -> str:
    """Why a build pauses with this share of the store's memory in use; empty if it does not.

    >>> pause_reason(0.84, paused=False), pause_reason(0.82, paused=True)
    ('', '')
    """
    if share <= (RESUME_BELOW if paused else PAUSE_ABOVE):
        return ""
    return (
        f"Redis uses {share:.0%} of maxmemory: the build waits until that is {RESUME_BELOW:.0%} or "
        "less, so that the workers in force can go on. Raise maxmemory, or give the build up "
        "(`stream-metrics build --give-up`)"
    )


def _size(parts: Mapping[bytes, bytes]) -> int:
    return sum(len(name) + len(part) for name, part in parts.items())


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a build: how many of all partitions have a running worker, and the largest
    lag in milliseconds, None unless it is known for all partitions."""

    working: int
    total: int
    behind_ms: int | None

    @property
    def caught_up(self) -> bool:
        """Whether it may replace the generation in force."""
        return (
            self.working == self.total
            and self.behind_ms is not None
            and (self.behind_ms <= CAUGHT_UP_MS)
        )

    def __str__(self) -> str:
        """The progress as text.

        >>> str(Progress(2, 4, None))
        '2 of 4 partitions are worked on; behind: not known yet'
        """
        behind = "not known yet" if self.behind_ms is None else f"{self.behind_ms // 1000:,} s"
        return f"{self.working} of {self.total} partitions are worked on; behind: {behind}"


async def progress(store: StateStore, generation: Generation) -> Progress:
    """The progress of a generation, from the last heartbeats of its workers."""
    state, total = store.generation(generation), generation.identity.count
    behind: list[int | None] = []
    for number in range(total):
        described = await state.describe(number)
        if described.beat_ms and described.store_ms - described.beat_ms <= HEARTBEAT_TIMEOUT_MS:
            behind.append(described.behind_ms)
    known = [ms for ms in behind if ms is not None]
    whole = len(behind) == total and len(known) == total
    return Progress(len(behind), total, max(known, default=0) if whole else None)


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%FT%TZ}"
