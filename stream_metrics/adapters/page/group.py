"""The windows of the partitions that other workers own, read from the store while somebody looks.

A round of reading takes one partition after the other, one window a call, so that neither Redis nor
the event loop is held up; of a partition that has not changed it reads only who works on it. Rounds
begin at most every ``READ_SECONDS``, and so seldom that they read no more than ``BYTES_A_SECOND``.
With the default windows a partition has some 130 kB of buckets for each agent that is busy all day.
Whatever cannot be read, or is old, is said in words: ``Coverage``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import structlog

from stream_metrics.adapters.page.thresholds import LAG_SECONDS
from stream_metrics.engine.codec import decode_sums
from stream_metrics.engine.config import WINDOW_BUCKETS, EngineConfig
from stream_metrics.engine.state import DamagedState
from stream_metrics.engine.windows import Window, Windows
from stream_metrics.ports import PartitionState, StateStore, StoreRefused, StoreUnavailable

READ_SECONDS: Final = 5.0  # between the beginnings of two rounds
BYTES_A_SECOND: Final = 4 << 20  # read at most, on average
HELD_BYTES: Final = 64 << 20  # of buckets at once; partitions beyond that are not shown
OLD_SECONDS: Final = 20.0  # from then on figures, or heartbeats, are not taken for current
FIRST_SECONDS: Final = 2.0  # how long the first document waits for the first round
KEPT_SECONDS: Final = 60.0  # after the last look
FAILURES: Final = 3  # of a round, after which it ends: each may have taken a timeout

log = structlog.get_logger(__name__)

Bucket = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Owned:
    """The state partitions of this worker, of how many; ``total`` is None until it is known."""

    numbers: Sequence[int] = ()
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where state is read from: a generation, which has ``total`` partitions."""

    store: StateStore
    config: EngineConfig
    agents: tuple[str, ...] = ()
    total: int | None = None

    async def readable(self) -> list[int]:
        """The partitions that can be read."""
        numbers = []
        for number in await self.store.partitions():
            try:
                await self.store.describe(number)
            except DamagedState:
                continue
            numbers.append(number)
        return numbers


@dataclass(frozen=True, slots=True)
class Share:
    """Some partitions of which the same holds.

    ``worker`` is the name of who works on them, empty where that is not known. ``age_seconds``: how
    long ago they were read; 0 for those of this worker. ``problem``: why their figures are not
    there, or not as of now; empty if they are.
    """

    numbers: tuple[int, ...]
    worker: str
    own: bool = False
    age_seconds: float | None = None
    problem: str = ""


def alone(owned: Owned) -> Coverage:
    """That of a worker that knows of no other: all partitions that there are to show are its own.

    >>> alone(Owned([0, 1], 4)).shares[0].numbers
    (0, 1)
    """
    numbers = tuple(owned.numbers)
    return Coverage([Share(numbers, "", own=True, age_seconds=0.0)] if numbers else [], owned.total)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which partitions the figures are of, who owns what, and how old they are.

    ``total`` is None until it is known how many partitions there are.
    """

    shares: Sequence[Share]
    total: int | None

    @property
    def problems(self) -> list[str]:
        """Why figures are not of all partitions as of now, a sentence each; none if they are."""
        return [share.problem for share in self.shares if share.problem]

    @property
    def missing(self) -> str:
        """The partitions whose latest events are missing, in words; empty if there are none."""
        return spoken([n for share in self.shares if share.problem for n in share.numbers])

    def document(self, owned: int) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "owned": owned,
            "total": self.total,
            "shares": [
                {
                    "partitions": list(share.numbers),
                    "text": ranges(share.numbers),
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


class _Standing(NamedTuple):
    """What holds of a partition; those that are alike are told together."""

    own: bool
    worker: str = ""
    kind: Literal[
        "current", "unread", "old", "replaced", "unnamed", "left", "unheard", "behind"
    ] = "current"
    why: str = ""

    def problem(self, age: float, silent: float, behind: float) -> str:
        """Why the figures are not there, or not as of now; empty if they are."""
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
class _Held:
    """A partition as it was read; ``at`` by the monotonic clock.

    ``silent_seconds``: how long before that its owner had sent its last heartbeat; None if it had
    sent none.
    """

    state: PartitionState
    windows: Windows
    size: int = 0
    at: float = 0.0
    silent_seconds: float | None = None


WHOLE: Final = Coverage((), 0)


@dataclass(slots=True)
class _Round:
    """One round of reading, which began at ``at``."""

    at: float
    size: int = 0
    failures: int = 0


@dataclass(slots=True)
class Group:
    """What this worker's page knows of all others; ``name`` is how they call this one.

    ``source`` gives None while there is no store yet. ``clock`` is a monotonic one.
    """

    name: str
    source: Callable[[], Source | None]
    owned: Callable[[], Owned]
    now_us: Callable[[], int]
    specs: tuple[Window, ...]
    read_seconds: float = READ_SECONDS
    held_bytes: int = HELD_BYTES
    bytes_a_second: int = BYTES_A_SECOND
    clock: Callable[[], float] = time.monotonic
    _held: dict[int, _Held] = field(default_factory=dict)
    _why: dict[int, str] = field(default_factory=dict)  # of what was not read in the last round
    _tried: dict[int, float] = field(default_factory=dict)
    _numbers: Sequence[int] = ()  # that the store has
    _listed: bool = False  # whether it has said which
    _error: str = ""
    _total: int | None = None
    _asked: float = float("-inf")
    _next: float = float("-inf")
    _task: asyncio.Task[None] | None = None
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="group")
    )

    async def look(self) -> None:
        """Somebody looks: begin a round if it is time. Whoever comes first waits for it a while."""
        now, task = self.clock(), self._task
        first = now - self._asked > OLD_SECONDS
        self._asked = now
        if not self.reading and now >= self._next:
            self._next = now + self.read_seconds
            task = self._task = asyncio.create_task(self._read_all(_Round(now)))
            task.add_done_callback(self._ended)
        if first and task is not None:
            await asyncio.wait({task}, timeout=FIRST_SECONDS)

    @property
    def reading(self) -> bool:
        """Whether a round is under way."""
        return self._task is not None and not self._task.done()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The page goes on without a round that failed for a reason nobody thought of."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._error = f"reading failed: {type(error).__name__}"
            log.error("reading other workers' partitions failed", exc_info=error)

    def rest(self) -> None:
        """Let go of what nobody has looked at for a while."""
        if self.clock() - self._asked > KEPT_SECONDS:
            self._held.clear()

    def close(self) -> None:
        """Stop reading, and let go of the thread."""
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown(wait=False)

    def windows(self) -> dict[Windows, Windows]:
        """Copies of the windows of others that were read, each under what it copies."""
        own, copies = self.owned().numbers, {}
        for number, held in self._held.items():
            if number not in own:
                copies[held.windows] = copy = Windows(self.specs)
                copy.buckets = held.windows.buckets  # which are never changed, but replaced
        return copies

    def coverage(self) -> Coverage:
        """Which partitions figures are of now."""
        owned = self.owned()
        total = owned.total if owned.total is not None else self._total
        now, alike = self.clock(), dict[_Standing, list[int]]()
        for number in sorted({*owned.numbers, *self._numbers, *range(total or 0)}):
            own = number in owned.numbers
            standing = _Standing(True, self.name) if own else self._standing(number, now)
            alike.setdefault(standing, []).append(number)
        shares = [self._share(standing, numbers, now) for standing, numbers in alike.items()]
        return Coverage(sorted(shares, key=lambda share: (not share.own, share.numbers)), total)

    def _standing(self, number: int, now: float) -> _Standing:
        held, why = self._held.get(number), self._why.get(number) or self._error
        if held is None:
            if not why and self._listed and number not in self._numbers:
                why = "no worker has taken it over yet"
            return _Standing(False, "", "unread", why or "not read yet")
        worker = held.state.worker
        if now - held.at > OLD_SECONDS:
            return _Standing(False, worker, "old", why)
        if held.state.frozen_by:
            return _Standing(False, worker, "replaced")
        if held.silent_seconds is None:
            return _Standing(False, worker, "unnamed")
        if held.silent_seconds + now - held.at > OLD_SECONDS:
            return _Standing(False, worker, "left")
        if held.state.behind_ms is None:
            return _Standing(False, worker, "unheard")
        if held.state.behind_ms > 1000 * LAG_SECONDS:
            return _Standing(False, worker, "behind")
        return _Standing(False, worker)

    def _share(self, standing: _Standing, numbers: Sequence[int], now: float) -> Share:
        found = [self._held[n] for n in numbers if n in self._held and not standing.own]
        age = max((now - held.at for held in found), default=0.0)
        silent = max((now - held.at + (held.silent_seconds or 0) for held in found), default=0.0)
        behind = max((held.state.behind_ms or 0 for held in found), default=0) / 1000
        problem = standing.problem(age, silent, behind)
        return Share(
            tuple(numbers),
            standing.worker,
            own=standing.own,
            age_seconds=age if found or standing.own else None,
            problem=problem and f"{spoken(numbers)}: {problem}",
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
        for gone in self._held.keys() - set(self._numbers):
            del self._held[gone]
        # What was tried longest ago comes first, so that failures leave nothing out for ever.
        for number in sorted(self._numbers, key=lambda n: (self._tried.get(n, 0.0), n)):
            if number in self.owned().numbers:
                self._held.pop(number, None)
                self._why.pop(number, None)
            elif done.failures < FAILURES:
                self._tried[number] = self.clock()
                await self._try(source, number, done)
        self._next = max(self._next, done.at + done.size / self.bytes_a_second)

    async def _try(self, source: Source, number: int, done: _Round) -> None:
        """Read one partition, or note why not."""
        try:
            await self._read(source, number, done)
        except (StoreUnavailable, StoreRefused) as error:
            done.failures += 1
            self._why[number] = str(error)
        except DamagedState as error:
            self._held.pop(number, None)
            self._why[number] = str(error)
        except _TooLarge:
            self._held.pop(number, None)
            self._why[number] = f"all windows together take more than {self.held_bytes:,} bytes"
        else:
            self._why.pop(number, None)

    async def _read(self, source: Source, number: int, done: _Round) -> None:
        store = source.store
        state = await store.describe(number)
        if state.token is None:  # wiped since it was listed
            self._held.pop(number, None)
            return
        self._total = source.total
        held = self._held.get(number)
        if held is None:
            held = _Held(state, Windows(self.specs))
        if self._held.get(number) is not held or held.state.last_batch != state.last_batch:
            size = await self._read_windows(store, number, held, done)
            if (await store.describe(number)).token is None:
                return  # it was wiped meanwhile: the next round reads it
            held.size = size
        held.state, held.at = state, done.at
        silent_ms = max(0, state.store_ms - state.beat_ms)
        held.silent_seconds = silent_ms / 1000 if state.beat_ms else None
        self._held[number] = held

    async def _read_windows(self, store: StateStore, number: int, held: _Held, done: _Round) -> int:
        """Bring the windows up to date; their size in bytes. Raises ``_TooLarge``."""
        others = sum(each.size for n, each in self._held.items() if n != number)
        loop, size = asyncio.get_running_loop(), 0
        fresh: dict[str, dict[Bucket, bytes]] = {}
        for window in self.specs:
            found = await store.buckets(number, window.name)
            first = self.now_us() // window.bucket_us - WINDOW_BUCKETS + 1
            before = held.windows.buckets[window.name]
            fresh[window.name], read, kept = await loop.run_in_executor(
                self._thread, _taken_over, found, before, first
            )
            done.size += read
            size += kept
            if others + size > self.held_bytes:
                raise _TooLarge
        held.windows.buckets = fresh
        return size


class _TooLarge(Exception):
    """There is no room for a partition's windows."""


def _taken_over(
    found: Mapping[tuple[str, int, str], bytes], before: Mapping[Bucket, bytes], first: int
) -> tuple[dict[Bucket, bytes], int, int]:
    """The buckets from ``first`` on, how many bytes were read, and how many are kept.

    A bucket that has not changed is the object that it was, by which running sums know it. Raises
    ``DamagedState``.
    """
    kept: dict[Bucket, bytes] = {}
    read = size = 0
    for (_, bucket, agent), sums in found.items():
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


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in words, those that follow each other as a range; empty for none.

    >>> ranges([0, 3, 4, 5, 7])
    '0, 3-5 and 7'
    """
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    *most, last = ["-".join(map(str, each)) for each in found] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def spoken(numbers: Collection[int]) -> str:
    """Partitions in words; empty for none.

    >>> spoken([3, 4]), spoken([2])
    ('partitions 3-4', 'partition 2')
    """
    several = "s" if len(numbers) > 1 else ""
    return f"partition{several} {ranges(numbers)}" if numbers else ""


def _duration(seconds: float) -> str:
    """A duration in whole seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
