"""Sliding windows over event time, each of 60 buckets of integer sums.

A bucket holds absolute sums by agent. A correction goes to the bucket of the iteration's time,
however late it arrives, and is dropped only if that bucket has left its window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from math import gcd
from typing import Final, NamedTuple

from stream_metrics.core import compiled
from stream_metrics.core.engine.cells import split_code
from stream_metrics.core.engine.codec import decode_sums, encode_sums
from stream_metrics.core.engine.config import OTHER
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, Window

Sums = dict[str, int]
BucketChanges = dict[tuple[str, int, str], bytes | None]  # None deletes the bucket
NamedCell = tuple[int, int, str, Sums]  # sign, time in microseconds, agent, sums
KernelWindow = tuple[str, int, int, int, frozenset[str], dict[tuple[int, str], bytes]]
_BucketSums = dict[tuple[int, str], Sums]  # by bucket and agent

# A batch deletes up to this many buckets that have left their windows, or up to twice as many as it
# changes if that is more: batches stay small, and such buckets do not accumulate. No figure counts
# them.
MIN_DELETIONS: Final = 500

# The prefix of the names under which the sums of expired conversations are stored.
EXPIRED: Final = "left:"


def expired_windows(windows: Iterable[Window]) -> tuple[Window, ...]:
    """The windows that store what expired conversations have added to ``windows``."""
    return tuple(window._replace(name=EXPIRED + window.name) for window in windows)


class Names(NamedTuple):
    """The agents and routes that have series of their own; all others are ``other``."""

    agents: frozenset[str]
    routes: frozenset[str]

    def agent(self, agent: str) -> str:
        """The label of an agent in series."""
        return agent if agent in self.agents else OTHER

    def sums(self, cell: Cell) -> Sums:
        """The sums of a cell, with other routes under ``other``."""
        return cell.sums if cell.routes <= self.routes else self.named(cell.sums)

    def named(self, sums: Mapping[str, int]) -> Sums:
        """Sums with other routes under ``other``."""
        named: Sums = {}
        for code, value in sums.items():
            if code.startswith("R|"):
                route, correct = split_code(code)[1]
                if route not in self.routes:
                    code = f"R|{OTHER}|{correct}"
            named[code] = named.get(code, 0) + value
        return named


def routes_of(cells: Iterable[Cell]) -> set[str]:
    """The routes in cells."""
    return set().union(*(cell.routes for cell in cells))


def routes_in(sums: Iterable[str]) -> frozenset[str]:
    """The routes in series codes."""
    return frozenset(split_code(code)[1][0] for code in sums if code.startswith("R|"))


def names_with_series(
    names: Iterable[str], configured: Iterable[str], limit: int
) -> frozenset[str]:
    """The names that get series of their own: ``configured``, then ``names`` by code point."""
    chosen = dict.fromkeys(configured)
    for name in sorted(names):
        if len(chosen) >= limit:
            break
        chosen.setdefault(name)
    return frozenset(chosen)


def add(into: Sums, sums: Mapping[str, int], sign: int) -> None:
    """Add (``sign`` 1) or subtract (-1) sums in place; a sum that becomes 0 is removed."""
    if not into and sign == 1:
        into.update(sums)
        return
    for code, value in sums.items():
        total = into.get(code, 0) + sign * value
        if total:
            into[code] = total
        else:
            into.pop(code, None)


def added_bucket(stored: bytes | None, sums: Sums, kept: set[str]) -> bytes | None:
    """A stored bucket with the ``kept`` codes of ``sums`` added, None if it becomes empty.

    Raises ``DamagedState``.
    """
    into = {} if stored is None else decode_sums(stored)
    for code, value in sums.items():
        if code in kept:
            total = into.get(code, 0) + value
            if total:
                into[code] = total
            else:
                into.pop(code, None)
    return encode_sums(into) if into else None


class Windows:
    """The buckets of one state partition.

    They are kept encoded, by bucket and agent: fifty agents with traffic all day take about 25 MB,
    a quarter of the size of dictionaries.
    """

    def __init__(self, windows: Iterable[Window] = DEFAULT_WINDOWS) -> None:
        self.windows = tuple(windows)
        self.buckets: dict[str, dict[tuple[int, str], bytes]] = {w.name: {} for w in self.windows}
        self._first: dict[str, int] = {}  # by window, a lower bound of its buckets
        self.base_us = gcd(*(w.bucket_us for w in self.windows))
        self._window_sources = self._sources()

    def _sources(self) -> list[tuple[Window, int]]:
        """Each window with the bucket width, of another window, that its buckets are summed from.

        That is the widest one that divides the window's own.
        """
        plan: list[tuple[Window, int]] = []
        widths = [self.base_us]
        for window in sorted(self.windows, key=lambda w: w.bucket_us):
            plan.append((window, max(w for w in widths if window.bucket_us % w == 0)))
            widths.append(window.bucket_us)
        return plan

    def load(self, window: str, bucket: int, agent: str, sums: bytes) -> None:
        """Load one stored bucket; raises ``DamagedState``."""
        if window in self.buckets:
            self._set(window, bucket, agent, encode_sums(decode_sums(sums)))

    def install(self, touched: BucketChanges) -> None:
        """Store the changed buckets that ``changes`` has returned."""
        for (window, bucket, agent), sums in touched.items():
            if sums is not None:
                self._set(window, bucket, agent, sums)
            else:
                self.buckets[window].pop((bucket, agent), None)

    def _set(self, window: str, bucket: int, agent: str, sums: bytes) -> None:
        self.buckets[window][bucket, agent] = sums
        if bucket < self._first.get(window, bucket + 1):
            self._first[window] = bucket

    def changes(
        self, cells: Iterable[tuple[int, Cell]], names: Names, record_time_us: int
    ) -> BucketChanges:
        """The new content of each bucket that the signed cells change; changes nothing itself.

        Includes deletions of some of the buckets that have left their window at ``record_time_us``.
        Raises ``DamagedState``.
        """
        named = [
            (sign, cell.time_us, names.agent(cell.agent), names.sums(cell)) for sign, cell in cells
        ]
        plan = self.kernel_plan(record_time_us)
        touched = compiled.changed_buckets(named, self.base_us, plan)
        if touched is None:
            touched = self.plain_changes(named, record_time_us)
        most = max(MIN_DELETIONS, 2 * len(touched))
        touched.update(islice(self._outdated(record_time_us), most))
        return touched

    def kernel_plan(self, record_time_us: int) -> list[KernelWindow]:
        """The windows in the form in which the kernel's ``changed_buckets`` takes them."""
        return [
            (
                window.name,
                window.bucket_us,
                source_us,
                oldest_bucket(window, record_time_us),
                window.heads,
                self.buckets[window.name],
            )
            for window, source_us in self._window_sources
        ]

    def plain_changes(self, cells: Iterable[NamedCell], record_time_us: int) -> BucketChanges:
        """The Python implementation of the kernel's ``changed_buckets``."""
        base: _BucketSums = {}
        for sign, time_us, agent, sums in cells:
            key = (time_us // self.base_us, agent)
            into = base.get(key)
            if into is None:
                into = base[key] = {}
            add(into, sums, sign)
        levels = {self.base_us: base}
        touched: BucketChanges = {}
        for window, source_us in self._window_sources:
            level = levels.get(window.bucket_us)
            if level is None:
                level = levels[window.bucket_us] = _coarser(
                    levels[source_us], window.bucket_us // source_us
                )
            self._change_window(window, level, record_time_us, touched)
        return touched

    def _change_window(
        self, window: Window, level: _BucketSums, record_time_us: int, touched: BucketChanges
    ) -> None:
        oldest = oldest_bucket(window, record_time_us)
        buckets, codes = self.buckets[window.name], _code_filter(window.heads)
        for (bucket, agent), sums in level.items():
            if bucket < oldest or not sums:
                continue
            stored = buckets.get((bucket, agent))
            kept = codes.kept(sums)
            touched[window.name, bucket, agent] = added_bucket(stored, sums, kept)

    def _outdated(self, record_time_us: int) -> Iterator[tuple[tuple[str, int, str], None]]:
        """The buckets that have left their windows.

        The buckets of a window are searched only if some may have left it.
        """
        for window in self.windows:
            oldest = oldest_bucket(window, record_time_us)
            if self._first.get(window.name, oldest) >= oldest:
                continue
            any_outdated = False
            for bucket, agent in self.buckets[window.name]:
                if bucket < oldest:
                    any_outdated = True
                    yield (window.name, bucket, agent), None
            if not any_outdated:
                self._first[window.name] = oldest

    def late(self, cells: Iterable[tuple[int, Cell]], record_time_us: int) -> Counter[str]:
        """The number of added cells of iterations and turns that have already left each window."""
        ends = [window.bucket_us * oldest_bucket(window, record_time_us) for window in self.windows]
        latest = max(ends, default=0)
        times = [
            cell.time_us
            for sign, cell in cells
            if sign > 0 and cell.time_us < latest and not next(iter(cell.sums), "").startswith("L|")
        ]
        times.sort()
        return Counter(
            {
                window.name: bisect_left(times, end)
                for window, end in zip(self.windows, ends, strict=True)
            }
        )

    @property
    def empty(self) -> bool:
        """Whether no window has a bucket."""
        return not any(self.buckets.values())

    def snapshot(self) -> Windows:
        """A copy that is independent of later changes."""
        copy = Windows(self.windows)
        copy.buckets = {name: dict(buckets) for name, buckets in self.buckets.items()}
        copy._first = dict(self._first)
        return copy


def oldest_bucket(window: Window, record_time_us: int) -> int:
    """The oldest bucket that a window keeps at ``record_time_us``."""
    return (record_time_us - window.length_us) // window.bucket_us


def _coarser(level: _BucketSums, factor: int) -> _BucketSums:
    """The sums in buckets that are ``factor`` times as wide."""
    wider: _BucketSums = {}
    for (bucket, agent), sums in level.items():
        key = (bucket // factor, agent)
        into = wider.get(key)
        if into is None:
            wider[key] = dict(sums)
        else:
            add(into, sums, 1)
    return wider


def in_window(sums: Sums, window: Window) -> Sums:
    """The ``sums`` whose series the window has."""
    kept = _code_filter(window.heads).kept(sums)
    return {code: value for code, value in sums.items() if code in kept}


class _CodeFilter:
    """Selects the codes whose series a window has, with a cache of codes."""

    __slots__ = ("_kept", "_known", "heads")

    def __init__(self, heads: frozenset[str]) -> None:
        self.heads = heads
        self._known: set[str] = set()
        self._kept: set[str] = set()

    def kept(self, codes: Sums) -> set[str]:
        """The known codes that the window has, after ``codes`` were added to the known ones."""
        if not self._known.issuperset(codes):
            if len(self._known) >= _CODES_KEPT:
                self._known.clear()
                self._kept.clear()
            self._known.update(codes)
            self._kept.update(c for c in codes if c.partition("|")[0] in self.heads)
        return self._kept


_CODES_KEPT: Final = 8_192


@lru_cache(maxsize=64)
def _code_filter(heads: frozenset[str]) -> _CodeFilter:
    return _CodeFilter(heads)


def add_to_buckets(
    buckets: dict[tuple[str, int, str], Sums],
    cells: Iterable[Cell],
    names: Names,
    windows: Iterable[Window],
    record_time_us: int,
) -> None:
    """Add cells to ``buckets``, except where they have left the window.

    The direct way to compute what ``Windows.changes`` updates incrementally.
    """
    specs = [(window, oldest_bucket(window, record_time_us)) for window in windows]
    for cell in cells:
        agent, sums = names.agent(cell.agent), names.sums(cell)
        for window, oldest in specs:
            bucket = cell.time_us // window.bucket_us
            if bucket >= oldest:
                into = buckets.setdefault((window.name, bucket, agent), {})
                add(into, in_window(sums, window), 1)
