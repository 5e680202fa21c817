"""What judges may spend together, and what they have spent.

Each process that judges keeps an ``Entry`` a day: running totals of what it has reserved, by itself
alone. The book of all entries says what all of them together have reserved, so no entry is ever
lost to another writer. Where the entries are in a log, its order decides: a reservation counts if,
with all that stands before it, the limits are kept. ``live/kafka/judge.py`` and
``live/local/judge.py`` store them.

Money is counted in millionths of a millionth of its unit, so that prices of single tokens are whole
numbers, and sums exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import msgspec

DAY_MS: Final = 86_400_000
PICOS: Final = 10**12
WINDOW_SECONDS: Final = 61
"""A call counts for so many seconds, since the seconds are not divided: at least for 60 whole."""
KEPT_DAYS: Final = 8
"""For so many days it is known whether their sample ended early: a window of 7 days needs them."""

Verdict = Literal["granted", "minute", "held", "spent"]
"""``minute``: too many calls in a minute; ``held``: what is in flight may leave room again;
``spent``: nothing will before midnight, UTC."""


def day_of(time_ms: int) -> int:
    """The number of the day, in UTC, since 1970-01-01."""
    return time_ms // DAY_MS


class Cost(NamedTuple):
    """Tokens, and money in ``PICOS``."""

    tokens: int = 0
    picos: int = 0

    def plus(self, other: Cost) -> Cost:
        """The sum."""
        return Cost(self.tokens + other.tokens, self.picos + other.picos)

    def less(self, other: Cost) -> Cost:
        """The difference."""
        return Cost(self.tokens - other.tokens, self.picos - other.picos)


NOTHING: Final = Cost()


class Prices(NamedTuple):
    """What a token costs, in ``PICOS``: of the prompt, and of the answer."""

    prompt: int = 0
    answer: int = 0

    @classmethod
    def per_million(cls, prompt: float, answer: float) -> Prices:
        """From prices of a million tokens; what is below a millionth is rounded.

        >>> Prices.per_million(0.15, 0.6)
        Prices(prompt=150000, answer=600000)
        """
        return cls(round(prompt * 1_000_000), round(answer * 1_000_000))

    def cost(self, prompt_tokens: int, answer_tokens: int) -> Cost:
        """What so many tokens cost."""
        picos = prompt_tokens * self.prompt + answer_tokens * self.answer
        return Cost(prompt_tokens + answer_tokens, picos)


@dataclass(frozen=True, slots=True)
class Limits:
    """What all judges together may do: calls in any minute, tokens and money in a day.

    None: no limit.
    """

    calls_per_minute: int | None = None
    tokens_per_day: int | None = None
    picos_per_day: int | None = None

    def allow(self, cost: Cost) -> bool:
        """Whether so much of a day is within the limits."""
        return (self.tokens_per_day is None or cost.tokens <= self.tokens_per_day) and (
            self.picos_per_day is None or cost.picos <= self.picos_per_day
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """What one process has reserved on a day.

    ``total`` includes ``held``, which is for calls that are in flight. ``seconds`` has the numbers
    of calls by the second of Unix time in which they were reserved, of the last ones only.
    ``rate`` is the day's rate of the sample; None if the process has not needed it. ``ended_ms`` is
    when it found the budget spent. ``written_ms`` is when it last changed the entry; ``revision``
    counts what the process has stored.
    """

    written_ms: int = 0
    revision: int = 0
    calls: int = 0
    total: Cost = NOTHING
    held: Cost = NOTHING
    seconds: Mapping[int, int] = field(default_factory=dict)
    rate: float | None = None
    ended_ms: int | None = None

    def with_call(self, cost: Cost, now_ms: int) -> Entry:
        """The entry after a call was reserved."""
        second = now_ms // 1000
        seconds = {at: n for at, n in self.seconds.items() if at > second - WINDOW_SECONDS}
        seconds[second] = seconds.get(second, 0) + 1
        return self.changed(
            now_ms,
            calls=self.calls + 1,
            total=self.total.plus(cost),
            held=self.held.plus(cost),
            seconds=seconds,
        )

    def settled(self, reserved: Cost, used: Cost, now_ms: int) -> Entry:
        """The entry after a call has ended that has used so much."""
        return self.changed(
            now_ms,
            total=self.total.less(reserved).plus(used),
            held=self.held.less(reserved),
        )

    def changed(self, now_ms: int, **values: Any) -> Entry:
        """The entry with other values."""
        return replace(self, written_ms=now_ms, **values)

    def stamped(self, revision: int) -> Entry:
        """The entry as it is stored: of two of a writer, the one with the later revision counts."""
        return replace(self, revision=revision)

    def encode(self) -> bytes:
        """The entry as JSON."""
        return msgspec.json.encode(
            {
                "written_ms": self.written_ms,
                "revision": self.revision,
                "calls": self.calls,
                "tokens": self.total.tokens,
                "picos": self.total.picos,
                "held_tokens": self.held.tokens,
                "held_picos": self.held.picos,
                "seconds": [[at, n] for at, n in sorted(self.seconds.items())],
                "rate": self.rate,
                "ended_ms": self.ended_ms,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Entry:
        """The inverse of ``encode``; raises ``ValueError``."""
        try:
            found: Any = msgspec.json.decode(data)
            return cls(
                int(found["written_ms"]),
                int(found["revision"]),
                int(found["calls"]),
                Cost(int(found["tokens"]), int(found["picos"])),
                Cost(int(found["held_tokens"]), int(found["held_picos"])),
                {int(at): int(n) for at, n in found["seconds"]},
                None if found["rate"] is None else float(found["rate"]),
                None if found["ended_ms"] is None else int(found["ended_ms"]),
            )
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise ValueError("this is no entry of a judge's budget") from error


@dataclass(frozen=True, slots=True)
class Spending:
    """What all judges have reserved on a day; ``held`` of it is in flight."""

    calls: int
    total: Cost
    held: Cost
    ended_ms: int | None

    @property
    def used(self) -> Cost:
        """What will not come back."""
        return self.total.less(self.held)


class Book:
    """The entries of all judges, by day and writer.

    What a writer has in flight counts as used if it has not written for ``hold_ms``: it is dead
    then, and its calls may have been answered.
    """

    def __init__(self, hold_ms: int) -> None:
        self._hold_ms = hold_ms
        self._days: dict[int, dict[str, Entry]] = {}

    def put(self, day: int, writer: str, entry: Entry | None) -> None:
        """Replace an entry; None removes it. One that came late, after a later one, is ignored."""
        entries = self._days.setdefault(day, {})
        if entry is None:
            entries.pop(writer, None)
            if not entries:
                del self._days[day]
        elif writer not in entries or entries[writer].revision <= entry.revision:
            entries[writer] = entry

    def entry(self, day: int, writer: str) -> Entry:
        """A writer's entry of a day."""
        return self._days.get(day, {}).get(writer, Entry())

    def outdated(self, day: int) -> list[tuple[int, str]]:
        """The days and writers of entries that nobody needs any more."""
        return [
            (old, writer)
            for old, entries in self._days.items()
            if old <= day - KEPT_DAYS - 1
            for writer in entries
        ]

    def rate(self, day: int) -> float | None:
        """The rate of a day's sample; None if nobody has needed one.

        If two processes with different settings have begun a day at the same time, the lower one.
        """
        rates = [one.rate for one in self._entries(day) if one.rate is not None]
        return min(rates, default=None)

    def highest_rate(self) -> float:
        """The highest rate of the days that are known; 0 if none is."""
        return max((rate for day in self._days if (rate := self.rate(day)) is not None), default=0)

    def spending(self, day: int, now_ms: int) -> Spending:
        """What all have reserved on a day."""
        calls, total, held = 0, NOTHING, NOTHING
        ended: list[int] = []
        for entry in self._entries(day):
            calls += entry.calls
            total = total.plus(entry.total)
            if now_ms - entry.written_ms <= self._hold_ms:
                held = held.plus(entry.held)
            if entry.ended_ms is not None:
                ended.append(entry.ended_ms)
        return Spending(calls, total, held, min(ended, default=None))

    def calls_of_minute(self, now_ms: int) -> int:
        """How many calls all have reserved in the last minute."""
        first = now_ms // 1000 - WINDOW_SECONDS
        return sum(
            n
            for entries in self._days.values()
            for entry in entries.values()
            for at, n in entry.seconds.items()
            if at > first
        )

    def incomplete_until_ms(self, now_ms: int) -> int | None:
        """The end of the latest day whose sample ended early; None if none is known."""
        today = day_of(now_ms)
        days = [
            day
            for day in self._days
            if today - KEPT_DAYS <= day
            and any(entry.ended_ms is not None for entry in self._entries(day))
        ]
        return (max(days) + 1) * DAY_MS if days else None

    def verdict(
        self, limits: Limits, wanted: Cost, now_ms: int, *, included: bool = False
    ) -> Verdict:
        """Whether one more call of this cost is within the limits.

        ``included``: the call is in the book already, as it is once it was written.
        """
        found = self.spending(day_of(now_ms), now_ms)
        if found.ended_ms is not None:
            return "spent"
        if not limits.allow(found.total if included else found.total.plus(wanted)):
            return "held" if limits.allow(found.used.plus(wanted)) else "spent"
        calls = self.calls_of_minute(now_ms) + (not included)
        if limits.calls_per_minute is not None and calls > limits.calls_per_minute:
            return "minute"
        return "granted"

    def _entries(self, day: int) -> Iterable[Entry]:
        return self._days.get(day, {}).values()
