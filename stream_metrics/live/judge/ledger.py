"""Reserves calls in the book of all judges, before they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stream_metrics.core.judge.budget import (
    KEPT_DAYS,
    Book,
    Cost,
    Entry,
    Limits,
    Spending,
    Verdict,
    day_of,
)
from stream_metrics.live.ports import Unavailable


class EntryStore(Protocol):
    """Stores entries, and reads those of all writers into a book.

    Every method raises ``Unavailable``; an entry may be stored then, or not.
    """

    async def refresh(self) -> None:
        """Read what others have written."""
        ...

    async def write(self, day: int, writer: str, entry: Entry | None) -> None:
        """Store an entry, or delete it. On return, the book has it and all that were stored before
        it."""
        ...


class Hold(NamedTuple):
    """A call that was reserved: on which day, and at most for how much."""

    day: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class State:
    """What all judges have spent today, their limits, the day's rate, and until when the sample is
    incomplete; None if it is complete."""

    spending: Spending
    limits: Limits
    rate: float | None
    incomplete_until_ms: int | None


class Ledger:
    """The budget, as one process sees it; ``writer`` is a name that no other process has."""

    def __init__(
        self,
        store: EntryStore,
        book: Book,
        limits: Limits,
        writer: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._book = book
        self._limits = limits
        self._writer = writer
        self.now_ms = now_ms
        self._lock = asyncio.Lock()
        self._mine: dict[int, Entry] = {}  # what is true of this process, be it stored or not
        self._revision = 0

    async def open(self) -> None:
        """Read the book, and delete entries that nobody needs any more."""
        async with self._lock:
            await self._store.refresh()
            for day, writer in self._book.outdated(day_of(self.now_ms())):
                await self._store.write(day, writer, None)
                self._book.put(day, writer, None)

    async def refresh(self) -> None:
        """Read what others have written, for ``state``."""
        async with self._lock:
            await self._store.refresh()

    async def reserve(self, cost: Cost) -> Hold | Verdict:
        """Reserve a call that costs at most so much; the verdict if it must not be made."""
        async with self._lock:
            await self._store.refresh()
            now_ms = self.now_ms()
            day = day_of(now_ms)
            verdict = self._book.verdict(self._limits, cost, now_ms)
            if verdict == "granted":
                self._keep(day, self._entry(day))  # it counts if the call is not granted in the end
                await self._write(day, self._entry(day).with_call(cost, now_ms))
                verdict = self._book.verdict(self._limits, cost, now_ms, included=True)
                if verdict == "granted":
                    self._keep(day, self._entry(day).with_call(cost, now_ms))
                    return Hold(day, cost)
                await self._write(day, self._entry(day))
            if verdict == "spent" and self._book.spending(day, now_ms).ended_ms is None:
                self._keep(day, self._entry(day).changed(now_ms, ended_ms=now_ms))
                await self._write(day, self._entry(day))
            return verdict

    async def settle(self, hold: Hold, used: Cost | None) -> None:
        """End a call that was reserved; ``used`` None: all of it may have been used.

        If it cannot be stored now, it is with what is written next.
        """
        async with self._lock:
            entry = self._entry(hold.day)
            settled = entry.settled(hold.cost, hold.cost if used is None else used, self.now_ms())
            self._keep(hold.day, settled)
            with suppress(Unavailable):
                await self._write(hold.day, settled)

    async def rate(self, day: int, configured: float) -> float:
        """The rate of a day's sample: the one that it was begun with, else that of the settings."""
        found = self._book.rate(day)
        if found is not None:
            return found
        async with self._lock:
            await self._store.refresh()
            now_ms = self.now_ms()
            if self._book.rate(day) is None and -KEPT_DAYS <= day - day_of(now_ms) <= 1:
                self._keep(day, self._entry(day).changed(now_ms, rate=configured))
                await self._write(day, self._entry(day))
        found = self._book.rate(day)
        return configured if found is None else found

    def highest_rate(self, configured: float) -> float:
        """The highest rate of any day that is known."""
        return max(configured, self._book.highest_rate())

    @property
    def is_spent(self) -> bool:
        """Whether today's sample has ended, as far as is known."""
        now_ms = self.now_ms()
        return self._book.spending(day_of(now_ms), now_ms).ended_ms is not None

    def state(self) -> State:
        """What is known of today."""
        now_ms = self.now_ms()
        day = day_of(now_ms)
        return State(
            self._book.spending(day, now_ms),
            self._limits,
            self._book.rate(day),
            self._book.incomplete_until_ms(now_ms),
        )

    def abandon(self, hold: Hold) -> None:
        """End a call that was interrupted, so that all of it may have been used.

        It is stored with what is written next.
        """
        entry = self._entry(hold.day).settled(hold.cost, hold.cost, self.now_ms())
        self._keep(hold.day, entry)

    def _entry(self, day: int) -> Entry:
        found = self._mine.get(day)
        return self._book.entry(day, self._writer) if found is None else found

    def _keep(self, day: int, entry: Entry) -> None:
        recent = {at: one for at, one in self._mine.items() if at >= day - KEPT_DAYS}
        self._mine = recent | {day: entry}

    async def _write(self, day: int, entry: Entry) -> None:
        self._revision += 1
        await self._store.write(day, self._writer, entry.stamped(self._revision))
