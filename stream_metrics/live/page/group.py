"""Reads the windows of partitions that other workers own from the store, while a page is open.

A round reads the partitions one by one, and one window per call, so that it blocks neither Redis
nor the event loop; of an unchanged partition it reads only the description. Rounds start at most
every ``READ_SECONDS``, and less often if they would read more than ``BYTES_PER_SECOND``. With the
default windows, a partition has some 130 kB of buckets per agent that is active all day.
``Coverage`` reports what cannot be read or is outdated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import structlog

from stream_metrics.core.alerts.thresholds import LAG_SECONDS
from stream_metrics.core.engine.codec import decode_sums
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.engine.window import Window
from stream_metrics.core.engine.windows import Windows
from stream_metrics.live.ports import PartitionState, StateStore, StoreRefused, StoreUnavailable

READ_SECONDS: Final = 5.0  # between the starts of two rounds
BYTES_PER_SECOND: Final = 4 << 20  # read on average, at most
MAX_BYTES: Final = 64 << 20  # of buckets in memory; partitions that do not fit are not shown
STALE_SECONDS: Final = 20.0  # after which figures and heartbeats count as outdated
FIRST_SECONDS: Final = 2.0  # how long the first document waits for the first round
KEEP_SECONDS: Final = 60.0  # after the last request
MAX_FAILURES: Final = 3  # after which a round ends, since each may have taken a timeout

log = structlog.get_logger(__name__)

Bucket = tuple[int, str]


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """The state partitions of this worker; ``total`` is the count of all, None until known.

    ``behind_ms`` is how long ago the time was up to which each has been read, in milliseconds, None
    if that is unknown; a partition that is left out has been read up to now.
    """

    numbers: Sequence[int] = ()
    total: int | None = None
    behind_ms: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateSource:
    """The store of a generation, which has ``total`` partitions, to read state from."""

    store: StateStore
    config: EngineConfig
    agents: tuple[str, ...] = ()
    total: int | None = None

    async def readable(self) -> list[int]:
        """The partitions that exist and are not damaged."""
        numbers = []
        for number in await self.store.partitions():
            try:
                await self.store.describe(number)
            except DamagedState:
                continue
            numbers.append(number)
        return numbers


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """Partitions with the same owner and the same problem.

    ``worker`` is the name of their owner, empty if unknown. ``age_seconds`` is the time since they
    were read, 0 for those of this worker. ``problem`` says why their figures are missing or not
    current; empty if they are current.
    """

    numbers: tuple[int, ...]
    worker: str
    own: bool = False
    age_seconds: float | None = None
    problem: str = ""


def own_coverage(owned: OwnedPartitions) -> Coverage:
    """The coverage of a worker without a group, which shows only its own partitions.

    >>> own_coverage(OwnedPartitions([0, 1], 4)).shares[0].numbers
    (0, 1)
    """
    numbers = tuple(owned.numbers)
    return Coverage(
        [PartitionSet(numbers, "", own=True, age_seconds=0.0)] if numbers else [], owned.total
    )


@dataclass(frozen=True, slots=True)
class Coverage:
    """The partitions that the figures include, their owners and their age.

    ``total`` is the count of all partitions, None until it is known.
    """

    shares: Sequence[PartitionSet]
    total: int | None

    @property
    def problems(self) -> list[str]:
        """Why the figures are not those of all partitions now, one sentence per problem."""
        return [share.problem for share in self.shares if share.problem]

    @property
    def missing(self) -> str:
        """The partitions whose latest events are missing, as text; empty if there are none."""
        return partitions_text([n for share in self.shares if share.problem for n in share.numbers])

    def document(self, owned: int) -> dict[str, Any]:
        """The coverage as plain data."""
        return {
            "owned": owned,
            "total": self.total,
            "shares": [
                {
                    "partitions": list(share.numbers),
                    "text": ranges_text(share.numbers),
                    "worker": share.worker or None,
                    "own": share.own,
                    "age_seconds": None
                    if share.age_seconds is None
                    else round(share.age_seconds, 1),
                    "problem": share.problem or None,
                }
                for share in self.shares
            ],
            "problems": self.problems,
            "missing": self.missing or None,
        }


Kind = Literal["current", "unread", "old", "replaced", "unnamed", "left", "unheard", "behind"]


def _kind_behind(behind_ms: int | None) -> Kind:
    """Whether a partition is current that has been read up to so long ago."""
    if behind_ms is None:
        return "unheard"
    return "behind" if behind_ms > 1000 * LAG_SECONDS else "current"


class _PartitionStatus(NamedTuple):
    """The status of a partition; partitions with equal status are reported together."""

    own: bool
    worker: str = ""
    kind: Kind = "current"
    why: str = ""

    def problem(self, age: float, silent: float, behind: float) -> str:
        """Why the figures are missing or not current; empty if they are current."""
        why = f" ({self.why})" if self.why else ""
        return {
            "current": "",
            "unread": f"no figures{why}",
            "old": f"the figures are {_duration(age)} old{why}",
            "replaced": "another generation of state has taken its place",
            "unnamed": "it is not known which worker works on it: it has just begun, or is of an "
            "earlier release",
            "left": f"no worker has worked on it for {_duration(silent)}; the last one was "
            f"{self.worker}",
            "unheard": f"{self.worker} does not know yet how many records are left to read",
            "behind": f"{self.worker} has read it only up to {_duration(behind)} ago",
        }[self.kind]


@dataclass(slots=True)
class _PartitionCopy:
    """A partition as it was read, at ``at`` by the monotonic clock.

    ``silent_seconds`` is the age of its owner's last heartbeat at that time, None without one.
    """

    state: PartitionState
    windows: Windows
    size: int = 0
    at: float = 0.0
    silent_seconds: float | None = None


FULL_COVERAGE: Final = Coverage((), 0)


@dataclass(slots=True)
class _Round:
    """One round of reading, which started at ``at``."""

    at: float
    size: int = 0
    failures: int = 0


@dataclass(slots=True)
class Group:
    """The partitions of all other workers, for the page; ``name`` is this worker's name.

    ``source`` returns None until there is a store. ``clock`` is monotonic.
    """

    name: str
    source: Callable[[], StateSource | None]
    owned: Callable[[], OwnedPartitions]
    now_us: Callable[[], int]
    specs: tuple[Window, ...]
    first_seconds: float = FIRST_SECONDS
    read_seconds: float = READ_SECONDS
    held_bytes: int = MAX_BYTES
    bytes_a_second: int = BYTES_PER_SECOND
    clock: Callable[[], float] = time.monotonic
    _copies: dict[int, _PartitionCopy] = field(default_factory=dict)
    _errors: dict[int, str] = field(default_factory=dict)  # of what was not read in the last round
    _tried: dict[int, float] = field(default_factory=dict)
    _numbers: Sequence[int] = ()  # that the store has
    _listed: bool = False  # whether it has said which
    _error: str = ""
    _total: int | None = None
    _requested_at: float = float("-inf")
    _next_round_at: float = float("-inf")
    _task: asyncio.Task[None] | None = None
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="group")
    )

    async def look(self) -> None:
        """Start a round if one is due; the first request waits ``first_seconds`` for it."""
        now, task = self.clock(), self._task
        first = now - self._requested_at > STALE_SECONDS
        self._requested_at = now
        if not self.reading and now >= self._next_round_at:
            self._next_round_at = now + self.read_seconds
            task = self._task = asyncio.create_task(self._read_all(_Round(now)))
            task.add_done_callback(self._on_round_done)
        if first and task is not None:
            await asyncio.wait({task}, timeout=self.first_seconds)

    async def read(self) -> None:
        """``look``, and wait for the round, which ends or is old after ``STALE_SECONDS``."""
        await self.look()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=STALE_SECONDS)

    @property
    def reading(self) -> bool:
        """Whether a round is under way."""
        return self._task is not None and not self._task.done()

    def _on_round_done(self, task: asyncio.Task[None]) -> None:
        """Log an unexpected error of a round; the page continues without it."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._error = f"reading failed: {type(error).__name__}"
            log.error("reading other workers' partitions failed", exc_info=error)

    def rest(self) -> None:
        """Drop all copies if nothing was requested for ``KEEP_SECONDS``."""
        if self.clock() - self._requested_at > KEEP_SECONDS:
            self._copies.clear()

    def close(self) -> None:
        """Stop reading, and stop the thread."""
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown(wait=False)

    def windows(self) -> dict[Windows, Windows]:
        """Snapshots of other workers' windows, by the object that they are copies of."""
        own, copies = self.owned().numbers, {}
        for number, held in self._copies.items():
            if number not in own:
                copies[held.windows] = copy = Windows(self.specs)
                copy.buckets = held.windows.buckets  # which are never changed, but replaced
        return copies

    def coverage(self) -> Coverage:
        """The current coverage."""
        owned = self.owned()
        total = owned.total if owned.total is not None else self._total
        now, by_status = self.clock(), dict[_PartitionStatus, list[int]]()
        for number in sorted({*owned.numbers, *self._numbers, *range(total or 0)}):
            own = number in owned.numbers
            status = self._own_status(number, owned) if own else self._status(number, now)
            by_status.setdefault(status, []).append(number)
        shares = [self._share(status, numbers, now, owned) for status, numbers in by_status.items()]
        return Coverage(sorted(shares, key=lambda share: (not share.own, share.numbers)), total)

    def _status(self, number: int, now: float) -> _PartitionStatus:
        held, why = self._copies.get(number), self._errors.get(number) or self._error
        if held is None:
            if not why and self._listed and number not in self._numbers:
                why = "no worker has taken it over yet"
            return _PartitionStatus(False, "", "unread", why or "not read yet")
        worker = held.state.worker
        if now - held.at > STALE_SECONDS:
            return _PartitionStatus(False, worker, "old", why)
        if held.state.frozen_by:
            return _PartitionStatus(False, worker, "replaced")
        if held.silent_seconds is None:
            return _PartitionStatus(False, worker, "unnamed")
        if held.silent_seconds + now - held.at > STALE_SECONDS:
            return _PartitionStatus(False, worker, "left")
        return _PartitionStatus(False, worker, _kind_behind(held.state.behind_ms))

    def _own_status(self, number: int, owned: OwnedPartitions) -> _PartitionStatus:
        return _PartitionStatus(True, self.name, _kind_behind(owned.behind_ms.get(number, 0)))

    def _share(
        self, status: _PartitionStatus, numbers: Sequence[int], now: float, owned: OwnedPartitions
    ) -> PartitionSet:
        copies = [self._copies[n] for n in numbers if n in self._copies and not status.own]
        age = max((now - held.at for held in copies), default=0.0)
        silent = max((now - held.at + (held.silent_seconds or 0) for held in copies), default=0.0)
        behinds = (
            [owned.behind_ms.get(number, 0) for number in numbers]
            if status.own
            else [held.state.behind_ms for held in copies]
        )
        behind = max((behind_ms or 0 for behind_ms in behinds), default=0) / 1000
        problem = status.problem(age, silent, behind)
        return PartitionSet(
            tuple(numbers),
            status.worker,
            own=status.own,
            age_seconds=age if copies or status.own else None,
            problem=problem and f"{partitions_text(numbers)}: {problem}",
        )

    # -- reading --------------------------------------------------------------------------------

    async def _read_all(self, done: _Round) -> None:
        """One round."""
        source = self.source()
        if source is None:
            self._error = "this worker has not connected to Redis yet"
            return
        try:
            self._numbers = await source.store.partitions()
        except (StoreUnavailable, StoreRefused) as error:
            self._error = str(error)
            return
        self._listed, self._error = True, ""
        for gone in self._copies.keys() - set(self._numbers):
            del self._copies[gone]
        # The partition that was tried longest ago comes first, so that failures starve none.
        for number in sorted(self._numbers, key=lambda n: (self._tried.get(n, 0.0), n)):
            if number in self.owned().numbers:
                self._copies.pop(number, None)
                self._errors.pop(number, None)
            elif done.failures < MAX_FAILURES:
                self._tried[number] = self.clock()
                await self._try(source, number, done)
        self._next_round_at = max(self._next_round_at, done.at + done.size / self.bytes_a_second)

    async def _try(self, source: StateSource, number: int, done: _Round) -> None:
        """Read one partition, or record why it cannot be read."""
        try:
            await self._read(source, number, done)
        except (StoreUnavailable, StoreRefused) as error:
            done.failures += 1
            self._errors[number] = str(error)
        except DamagedState as error:
            self._copies.pop(number, None)
            self._errors[number] = str(error)
        except _TooLarge:
            self._copies.pop(number, None)
            self._errors[number] = f"all windows together take more than {self.held_bytes:,} bytes"
        else:
            self._errors.pop(number, None)

    async def _read(self, source: StateSource, number: int, done: _Round) -> None:
        store = source.store
        state = await store.describe(number)
        if state.token is None:  # wiped since it was listed
            self._copies.pop(number, None)
            return
        self._total = source.total
        held = self._copies.get(number)
        if held is None:
            held = _PartitionCopy(state, Windows(self.specs))
        if self._copies.get(number) is not held or held.state.last_batch != state.last_batch:
            size = await self._read_windows(store, number, held, done)
            if (await store.describe(number)).token is None:
                return  # it was wiped meanwhile: the next round reads it
            held.size = size
        held.state, held.at = state, done.at
        silent_ms = max(0, state.store_ms - state.beat_ms)
        held.silent_seconds = silent_ms / 1000 if state.beat_ms else None
        self._copies[number] = held

    async def _read_windows(
        self, store: StateStore, number: int, held: _PartitionCopy, done: _Round
    ) -> int:
        """Update the windows; returns their size in bytes. Raises ``_TooLarge``."""
        others = sum(each.size for n, each in self._copies.items() if n != number)
        loop, size = asyncio.get_running_loop(), 0
        fresh: dict[str, dict[Bucket, bytes]] = {}
        for window in self.specs:
            buckets = await store.buckets(number, window.name)
            first = window.numbers(self.now_us()).start
            before = held.windows.buckets[window.name]
            fresh[window.name], read, kept = await loop.run_in_executor(
                self._thread, _recent_buckets, buckets, before, first
            )
            done.size += read
            size += kept
            if others + size > self.held_bytes:
                raise _TooLarge
        held.windows.buckets = fresh
        return size


class _TooLarge(Exception):
    """A partition's windows do not fit into ``MAX_BYTES``."""


def _recent_buckets(
    buckets: Mapping[tuple[str, int, str], bytes], before: Mapping[Bucket, bytes], first: int
) -> tuple[dict[Bucket, bytes], int, int]:
    """The buckets from ``first`` on, the bytes that were read, and the bytes that are kept.

    An unchanged bucket keeps its identity, by which running sums recognize it. Raises
    ``DamagedState``.
    """
    kept: dict[Bucket, bytes] = {}
    read = size = 0
    for (_, bucket, agent), sums in buckets.items():
        length = len(sums) + len(agent) + 12
        read += length
        if bucket < first:
            continue
        size += length
        held = before.get((bucket, agent))
        if held == sums:
            sums = held
        else:
            decode_sums(sums)
        kept[bucket, agent] = sums
    return kept, read, size


def ranges_text(numbers: Iterable[int]) -> str:
    """Numbers as text, with consecutive ones as a range; empty for none.

    >>> ranges_text([0, 3, 4, 5, 7])
    '0, 3-5 and 7'
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    *most, last = ["-".join(map(str, each)) for each in ranges] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def partitions_text(numbers: Collection[int]) -> str:
    """Partition numbers as text; empty for none.

    >>> partitions_text([3, 4]), partitions_text([2])
    ('partitions 3-4', 'partition 2')
    """
    several = "s" if len(numbers) > 1 else ""
    return f"partition{several} {ranges_text(numbers)}" if numbers else ""


def _duration(seconds: float) -> str:
    """A duration in whole seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
