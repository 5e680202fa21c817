"""Gathers evidence from the minutes of all partitions, for gauges, pages and notifications.

The minutes of other workers' partitions are read from the store. Of these, only the hours that
have changed are read again, one per call and ``BYTES_PER_SECOND`` at most. All is computed in a
thread, once for each minute.

A minute is told of once all partitions have been read up to its end. A partition does not keep the
others waiting if no worker works on it, or if that is more than ``LAG_SECONDS`` behind: what was
read of it counts, and what is read later counts from then on, each in the minute it arrived.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from stream_metrics.core.alerts.arrivals import counts_of_state
from stream_metrics.core.alerts.minutes import (
    MARKS,
    MINUTE_MS,
    ArrivedMinutes,
    Hour,
    Hours,
    marks_in,
    packed,
    window_of,
)
from stream_metrics.core.alerts.standing import Gathered, Standing
from stream_metrics.core.alerts.thresholds import LAG_SECONDS
from stream_metrics.core.engine.codec import decode_sums
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.events.bugs import Bug
from stream_metrics.live.page.group import (
    BYTES_PER_SECOND,
    FIRST_SECONDS,
    KEEP_SECONDS,
    MAX_FAILURES,
    STALE_SECONDS,
    OwnedPartitions,
    StateSource,
    partitions_text,
)
from stream_metrics.live.ports import StateStore, StoreRefused, StoreUnavailable
from stream_metrics.live.prometheus.evidence import EvidenceGauges

MAX_BYTES: Final = 64 << 20  # of minutes in memory, packed; beyond that no evidence is told
TRY_SECONDS: Final = 2.0  # between looks while the last whole minute cannot be told of
FULL_SECONDS: Final = 60.0  # the same, if the minutes do not fit
OLD_MINUTES: Final = 2  # from then on a page waits for a look
WATCH_SECONDS: Final = 1.0  # between looks at whether this worker tells

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Copy:
    """The minutes of a partition as they were read; ``read_up_to_ms`` is None where its worker
    does not tell."""

    hours: dict[int, Hour] = field(default_factory=dict)
    batch: bytes | None = None
    read_up_to_ms: int | None = None

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return size_of(self.hours)


def size_of(hours: Hours) -> int:
    """The size of minutes in bytes."""
    return sum(len(stored) for hour in hours.values() for stored in hour.agents.values())


@dataclass(slots=True)
class OthersMinutes:
    """The minutes of the partitions that other workers own, as they are in the store.

    ``source`` returns None until there is a store. ``now_ms`` is the clock of records, ``pause``
    waits for some seconds.
    """

    source: Callable[[], StateSource | None]
    owned: Callable[[], OwnedPartitions]
    now_ms: Callable[[], int]
    held_bytes: int = MAX_BYTES
    bytes_a_second: int = BYTES_PER_SECOND
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    copies: dict[int, _Copy] = field(default_factory=dict)
    problem: str = ""
    """Why they are not known; empty if they are."""
    full: bool = False
    """Whether that is because they are too large."""

    async def read(self) -> None:
        """Read what has changed; what cannot be read stays as it was."""
        source = self.source()
        if source is None:
            self.problem = "this worker has not connected to its state yet"
            return
        store, failures = source.store, 0
        try:
            numbers = await store.partitions()
        except (StoreUnavailable, StoreRefused) as error:
            self.problem = str(error)
            return
        self.problem, self.full = "", False
        self.keep(number for number in numbers if number not in self.owned().numbers)
        for number in numbers:
            if number in self.owned().numbers:
                continue
            try:
                await self._read(store, number)
            except (StoreUnavailable, StoreRefused, DamagedState) as error:
                failures += 1
                self._unread(number, str(error))
                if failures >= MAX_FAILURES:  # each may have taken a timeout
                    return

    def keep(self, numbers: Iterable[int]) -> None:
        """Drop all other copies."""
        for gone in self.copies.keys() - set(numbers):
            del self.copies[gone]

    def _unread(self, number: int, why: str) -> None:
        """Note that a partition could not be read; without a copy of it, nothing can be told."""
        if number in self.copies:
            self.copies[number].read_up_to_ms = None
        else:
            self.problem = f"{partitions_text([number])}: {why}"

    async def _read(self, store: StateStore, number: int) -> None:
        state = await store.describe(number)
        if state.token is None:  # wiped since it was listed
            self.copies.pop(number, None)
            return
        copy = self.copies.get(number) or _Copy()
        silent_ms = max(0, state.store_ms - state.beat_ms)
        lives = bool(state.beat_ms) and silent_ms <= 1_000 * STALE_SECONDS
        told = lives and not state.frozen_by and state.behind_ms is not None
        read_up_to_ms = self.now_ms() - silent_ms - (state.behind_ms or 0) if told else None
        if copy.batch != state.last_batch:
            copy.hours = await self._hours(store, number, copy)
            if (await store.describe(number)).token is None:
                return  # it was wiped meanwhile: the next round reads it
        copy.batch, copy.read_up_to_ms = state.last_batch, read_up_to_ms
        self.copies[number] = copy

    async def _hours(self, store: StateStore, number: int, copy: _Copy) -> dict[int, Hour]:
        loop, hours = asyncio.get_running_loop(), dict[int, Hour]()
        for place, mark in marks_in(await store.buckets(number, MARKS)).items():
            held = copy.hours.get(place)
            if held is None or held.mark != mark:
                buckets = await store.buckets(number, window_of(place))
                agents = await loop.run_in_executor(None, _checked, buckets)
                held = Hour(mark, agents)
                await self.pause(size_of({place: held}) / self.bytes_a_second)
            hours[place] = held
        others = sum(each.size for n, each in self.copies.items() if n != number)
        if others + size_of(hours) > self.held_bytes:
            self.copies.pop(number, None)
            self.full = True
            raise StoreRefused(f"minutes of arrival take more than {self.held_bytes:,} bytes")
        return hours


def _checked(buckets: Mapping[tuple[str, int, str], bytes]) -> dict[str, bytes]:
    """Minutes of a window, packed. Raises ``DamagedState``."""
    for sums in buckets.values():
        decode_sums(sums)
    return packed(((minute, agent), sums) for (_, minute, agent), sums in buckets.items())


class Teller(Protocol):
    """Whoever tells the evidence about agents: ``gathered``, and why that is not of now."""

    @property
    def problem(self) -> str: ...
    @property
    def gathered(self) -> Gathered | None: ...
    async def look(self) -> None: ...
    async def read(self) -> None: ...
    def close(self) -> None: ...


class Evidence:
    """The evidence about all agents, as ``gathered`` has it for the last whole minute.

    ``minutes`` are those of the partitions that this worker owns, by number. ``others`` is None
    where it owns all. ``loops`` tells whether the state has figures of loops.
    """

    def __init__(
        self,
        minutes: Callable[[], Mapping[int, ArrivedMinutes]],
        owned: Callable[[], OwnedPartitions],
        now_ms: Callable[[], int],
        thresholds: Mapping[str, float],
        *,
        others: OthersMinutes | None = None,
        pools: Mapping[str, str] | None = None,
        loops: Callable[[], bool] = lambda: True,
        on_bug: Callable[[Bug], None] = lambda _: None,
        first_seconds: float = FIRST_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gathered: Gathered | None = None
        self.problem = ""
        self._minutes = minutes
        self._owned = owned
        self._now_ms = now_ms
        self._thresholds = thresholds
        self._standing = Standing(thresholds)
        self._others = others
        self._pools = pools
        self._loops = loops
        self._on_bug = on_bug
        self._first_seconds = first_seconds
        self._watch_seconds = watch_seconds
        self._clock = clock
        self._looked_at = self._asked_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evidence")

    async def look(self) -> None:
        """Begin to look, if what is told is not of the last whole minute; if it is old, wait for
        that, but ``first_seconds`` at most."""
        begun, told = self._asked(), self.gathered
        old = told is None or told.minute < self._last_minute() - OLD_MINUTES
        if begun and old and self._task is not None:
            await asyncio.wait({self._task}, timeout=self._first_seconds)

    async def read(self) -> None:
        """``look``, and wait for its end, or for ``STALE_SECONDS``."""
        self._asked()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=STALE_SECONDS)

    def _asked(self) -> bool:
        self._asked_at = self._clock()
        return self._begin()

    def _begin(self) -> bool:
        """Whether a look is under way that may tell more."""
        if self._task is not None and not self._task.done():
            return True
        ahead = -1 if self.gathered is None else self.gathered.minute - self._last_minute()
        told = 0 <= ahead < OLD_MINUTES  # if it is further ahead, the clock was set back
        seconds = FULL_SECONDS if self._others is not None and self._others.full else TRY_SECONDS
        if told or self._clock() - self._looked_at < seconds:
            return False
        self._looked_at = self._clock()
        self._task = asyncio.create_task(self._look())
        self._task.add_done_callback(self._on_done)
        return True

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.gathered, self.problem = None, f"a bug: {type(error).__name__}"
            self._on_bug(Bug.of(error))

    async def run(self, gauges: EvidenceGauges, tells: Callable[[], bool]) -> None:
        """Export what is told while this worker ``tells``, until it is cancelled."""
        try:
            while True:
                if tells():
                    self._begin()
                    gauges.gathered = self.gathered
                else:
                    gauges.gathered = None
                    self._rest()
                await asyncio.sleep(self._watch_seconds)
        finally:
            gauges.gathered = None

    def _rest(self) -> None:
        """Drop everything if nothing was asked for a while."""
        looking = self._task is not None and not self._task.done()
        if not looking and self._clock() - self._asked_at > KEEP_SECONDS:
            self.gathered = None
            self._standing = Standing(self._thresholds)
            if self._others is not None:
                self._others.keep(())

    def close(self) -> None:
        """Stop looking, and stop the thread."""
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown(wait=False)

    def _last_minute(self) -> int:
        """The last minute that is over."""
        return self._now_ms() // MINUTE_MS - 1

    async def _look(self) -> None:
        if self._others is not None:
            await self._others.read()
            if self._others.problem:
                self._refuse(self._others.problem)
                return
        owned, minutes = self._owned(), self._minutes()
        partitions: dict[int, Hours] = {number: one.hours() for number, one in minutes.items()}
        now_ms = self._now_ms()
        read: dict[int, int | None] = {}
        for number in owned.numbers:
            behind_ms = owned.behind_ms.get(number, 0)
            read[number] = None if behind_ms is None else now_ms - behind_ms
        if self._others is not None:
            for number, copy in self._others.copies.items():
                if number not in read:
                    partitions[number], read[number] = dict(copy.hours), copy.read_up_to_ms
        total = owned.total if self._others is not None else len(read)
        missing = sorted(set(range(total or 0)) - read.keys())
        if missing or not total:
            self._refuse(f"{partitions_text(missing)}: not read yet" if missing else "not begun")
            return
        minute = self._told_minute(read, now_ms)
        if minute is None:
            self._refuse("it is not known yet how many records are left to read")
            return
        if self.gathered is not None and self.gathered.minute == minute:
            self.problem = ""
            return
        loop, counts = asyncio.get_running_loop(), counts_of_state(self._loops())
        try:
            stands = await loop.run_in_executor(
                self._thread, self._standing.update, partitions, minute, self._pools, counts
            )
        except DamagedState as error:
            self._refuse(str(error))
            return
        late = [
            number
            for number, until_ms in read.items()
            if until_ms is None or until_ms < (minute + 1) * MINUTE_MS
        ]
        self.gathered, self.problem = Gathered(minute, stands, tuple(sorted(late))), ""

    def _told_minute(self, read: Mapping[int, int | None], now_ms: int) -> int | None:
        """The last minute that all partitions have been read up to the end of, without those that
        are far behind; if all are, without those of which nothing is known."""
        known = [until_ms for until_ms in read.values() if until_ms is not None]
        near = [until_ms for until_ms in known if now_ms - until_ms <= 1_000 * LAG_SECONDS]
        if not known:
            return None
        found = min(near or known) // MINUTE_MS - 1
        if self.gathered is not None:  # a partition that has fallen behind takes nothing back
            found = max(found, min(self.gathered.minute, self._last_minute()))
        return found

    def _refuse(self, why: str) -> None:
        """Tell nothing new; what was told before stands, with the time that it is of."""
        if why != self.problem:
            say = log.info if self.gathered is None else log.warning
            say("no evidence is told", why=why)
        self.problem = why
