"""The sums of windows, by window and agent: what scrapes, pages, exports and replays show.

``WindowSums`` keeps those of the buckets of partitions as time moves, ``SumsAt`` adds up those of
one time from whatever is given to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from stream_metrics.core.engine.cells import split_code
from stream_metrics.core.engine.codec import decode_sums
from stream_metrics.core.engine.window import Window
from stream_metrics.core.engine.windows import Names, Sums, Windows, add, in_window

Bucket = tuple[int, str]  # number, agent
Entry = tuple[str, str, Sums]  # window, agent, sums

MOST_CODES: Final = 2_000
"""Series by which sums are held before routes without series of their own are put together."""


class WindowSums:
    """The sums of each window over several partitions; ``sums`` has them by window and agent.

    They are kept from one ``update`` to the next, and only buckets that changed, entered their
    window or left it are added or subtracted. Sums are integers, so that no error accumulates.
    """

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, Sums]] = {}
        self._now_us = 0
        self._held: dict[Windows, dict[str, dict[Bucket, bytes]]] = {}

    @classmethod
    def of_partitions(cls, partitions: Iterable[Windows], now_us: int) -> WindowSums:
        """The sums at one time."""
        found = cls()
        found.update({partition: partition for partition in partitions}, now_us)
        return found

    def update(self, partitions: Mapping[Windows, Windows], now_us: int) -> None:
        """Update the sums to ``now_us``; ``partitions`` maps each partition to its snapshot."""
        self._now_us = now_us
        for gone in self._held.keys() - partitions.keys():
            for name, before in self._held.pop(gone).items():
                self._change(name, before, {})
        for partition, copy in partitions.items():
            held = self._held.setdefault(partition, {})
            for window in copy.windows:
                numbers = window.numbers(now_us)
                first, last = numbers[0], numbers[-1]
                buckets = copy.buckets[window.name]
                inside = {at: sums for at, sums in buckets.items() if first <= at[0] <= last}
                self._change(window.name, held.get(window.name, {}), inside)
                held[window.name] = inside

    def _change(
        self, window: str, before: Mapping[Bucket, bytes], after: Mapping[Bucket, bytes]
    ) -> None:
        for at, sums in after.items():
            old = before.get(at)
            if old is sums:
                continue
            if old is not None:
                self.add(window, at, decode_sums(old), -1)
            self.add(window, at, decode_sums(sums), 1)
        for at in before.keys() - after.keys():
            self.add(window, at, decode_sums(before[at]), -1)

    def add(self, window: str, at: Bucket, sums: Sums, sign: int) -> None:
        """Add what a bucket has, or subtract what it had."""
        add(self.sums.setdefault(window, {}).setdefault(at[1], {}), sums, sign)

    def of(self, window: str, agent: str | None = None) -> Sums:
        """The sums of an agent, by default of all agents together."""
        by_agent = self.sums.get(window, {})
        if agent is not None:
            return by_agent.get(agent, {})
        total: Sums = {}
        for sums in by_agent.values():
            add(total, sums, 1)
        return total

    def buckets(self, window: Window, agent: str | None = None) -> list[Sums]:
        """The sums of an agent (by default, of all) in each bucket, the oldest first."""
        found: dict[int, Sums] = {number: {} for number in window.numbers(self._now_us)}
        for held in self._held.values():
            for (number, name), sums in held.get(window.name, {}).items():
                if agent in (None, name):
                    add(found[number], decode_sums(sums), 1)
        return list(found.values())

    def agents(self) -> set[str]:
        """The agents with a sum other than 0."""
        return {agent for by in self.sums.values() for agent, sums in by.items() if sums}

    def entries(self) -> Iterator[Entry]:
        """Each window and agent with their sums."""
        for window, by_agent in self.sums.items():
            for agent, sums in by_agent.items():
                yield window, agent, sums

    def document(self, dimension: str = "agent") -> dict[str, Any]:
        """The content of ``windows.json``; ``dimension`` is ``agent`` or ``release``."""
        return windows_document(self.entries(), self._now_us, dimension)


class SumsAt:
    """The sums of ``windows`` at one time, of what is taken in any order."""

    def __init__(self, windows: Iterable[Window], names: Names, now_us: int) -> None:
        self._names, self._now_us = names, now_us
        self._windows = [(w, w.numbers(now_us)[0], w.numbers(now_us)[-1]) for w in windows]
        self._totals: dict[tuple[tuple[Window, ...], str], Sums] = {}  # by the windows they are in

    def take(self, time_us: int, agent: str, sums: Mapping[str, int]) -> None:
        """Add what happened at a time, under names as they were sent."""
        windows = tuple(
            window
            for window, first, last in self._windows
            if first <= time_us // window.bucket_us <= last
        )
        if windows:
            place = (windows, self._names.agent(agent))
            total = self._totals.setdefault(place, {})
            add(total, sums, 1)
            if len(total) > MOST_CODES:
                self._totals[place] = self._names.named(total)

    def entries(self) -> Iterator[Entry]:
        """Each window and agent with their sums."""
        totals: dict[tuple[str, str], Sums] = {}
        for (windows, agent), sums in self._totals.items():
            named = self._names.named(sums)
            for window in windows:
                add(totals.setdefault((window.name, agent), {}), in_window(named, window), 1)
        for (name, agent), total in totals.items():
            yield name, agent, total

    def document(self, dimension: str = "agent") -> dict[str, Any]:
        """The content of ``windows.json``; ``dimension`` is ``agent`` or ``release``."""
        return windows_document(self.entries(), self._now_us, dimension)


def sliding_sums(buckets: Mapping[int, Sums], spans: Iterable[range]) -> Iterator[Sums]:
    """The sums over each span of bucket numbers, of which none begins or ends before the last.

    It is the same dictionary each time.

    >>> spans = [range(0, 2), range(1, 3), range(9, 11)]
    >>> [dict(sums) for sums in sliding_sums({0: {"r": 1}, 2: {"r": 5, "d": 1}}, spans)]
    [{'r': 1}, {'r': 5, 'd': 1}, {}]
    """
    total: Sums = {}
    held: range | None = None
    for span in spans:
        before = range(span.start, span.start) if held is None else held
        for number in range(max(span.start, before.stop), span.stop):
            if number in buckets:
                add(total, buckets[number], 1)
        for number in range(before.start, min(before.stop, span.start)):
            if number in buckets:
                add(total, buckets[number], -1)
        held = span
        yield total


def windows_document(entries: Iterable[Entry], now_us: int, dimension: str) -> dict[str, Any]:
    """The content of ``windows.json`` at one time."""
    return {"schema_version": 1, "now": now_us, "sums": window_rows(entries, dimension)}


def window_rows(entries: Iterable[Entry], dimension: str = "agent") -> list[dict[str, Any]]:
    """The entries of ``windows.json``: sums other than 0, sorted by everything but the value."""
    totals: dict[tuple[str, ...], tuple[dict[str, Any], int]] = {}
    for window, agent, values in entries:
        for code, value in values.items():
            series, labels = split_code(code)
            entry = {"name": series.name, dimension: agent, "window": window}
            entry |= zip(series.labels, labels, strict=True)
            key = tuple(entry.values())
            held = totals.get(key)
            totals[key] = (entry, value + (held[1] if held else 0))
    return [{**entry, "value": value} for _, (entry, value) in sorted(totals.items()) if value]
