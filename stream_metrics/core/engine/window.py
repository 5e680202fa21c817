"""A window over event time: its name, its length, and the series that it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Final, NamedTuple

from stream_metrics.core.engine.cells import CODES, ESTIMATES, LOOPS, Series
from stream_metrics.core.engine.config import MAX_ROUTES, WINDOW_BUCKETS
from stream_metrics.core.events.times import MICROS

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_WINDOW_UNITS: Final = (("h", 3_600), ("m", 60), ("s", 1))


ALL_FAMILIES: Final = frozenset(CODES)


class Window(NamedTuple):
    """A window: its name, its length in microseconds (a multiple of 60), and its series.

    ``heads`` are the codes of the families of series that it has.
    """

    name: str
    length_us: int
    heads: frozenset[str] = ALL_FAMILIES

    @property
    def bucket_us(self) -> int:
        """The width of a bucket."""
        return self.length_us // WINDOW_BUCKETS

    def numbers(self, now_us: int) -> range:
        """The buckets of the window whose last one contains ``now_us``.

        >>> Window("1m", 60_000_000).numbers(90_500_000)
        range(31, 91)
        """
        end = now_us // self.bucket_us + 1
        return range(end - WINDOW_BUCKETS, end)

    def span_us(self, now_us: int) -> tuple[int, int]:
        """The start and (exclusive) end of the window whose last bucket contains ``now_us``.

        >>> Window("1m", 60_000_000).span_us(90_500_000)
        (31000000, 91000000)
        """
        numbers = self.numbers(now_us)
        return numbers.start * self.bucket_us, numbers.stop * self.bucket_us


def parse_duration(text: str) -> int:
    """A duration such as 90s, 5m, 24h or 7d in microseconds.

    >>> parse_duration("5m")
    300000000
    """
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and int(number) > 0 and unit in _UNITS):
        raise ValueError(f"{text!r} is not a duration. Write a number and s, m, h or d, such as 5m")
    return int(number) * _UNITS[unit] * MICROS


def parse_window(name: str) -> Window:
    """The window of that name, with all families.

    >>> parse_window("5m").bucket_us
    5000000
    >>> parse_window("7d").length_us == parse_window("168h").length_us
    True
    """
    length_us = parse_duration(name)
    if length_us % (WINDOW_BUCKETS * 1_000):
        raise ValueError(f"window {name!r} cannot be cut into {WINDOW_BUCKETS} buckets")
    seconds = length_us // MICROS
    usual = next(f"{seconds // size}{unit}" for unit, size in _WINDOW_UNITS if not seconds % size)
    days, rest = divmod(seconds, _UNITS["d"])
    if name != usual and (rest or days < 2 or name != f"{days}d"):
        raise ValueError(f"window {name!r}: write it as {usual!r}")
    return Window(name, length_us)


_DEFAULT_NAMES: Final = ("1m", "5m", "30m", "1h", "6h", "24h")


def window_specs(
    names: Iterable[str], series_windows: Mapping[str, Collection[str]] | None = None
) -> tuple[Window, ...]:
    """The windows of these names, with their families.

    A family whose group is in ``series_windows`` is in the windows listed there. Of the other
    families, default windows have those that ``CODES`` gives them, and other windows have all.

    >>> ["ts" in window.heads for window in window_specs(["30m", "1h", "2h"])]
    [False, True, True]
    >>> ["ts" in window.heads for window in window_specs(["30m", "1h"], {"turns": ["30m"]})]
    [True, False]
    """
    chosen = series_windows or {}

    def has(name: str, series: Series) -> bool:
        if series.windows is None or series.group in chosen:
            return series.windows is None or name in chosen[series.group]
        return name not in _DEFAULT_NAMES or name in series.windows

    return tuple(
        parse_window(name)._replace(
            heads=frozenset(head for head, series in CODES.items() if has(name, series))
        )
        for name in names
    )


def without_loops(windows: Iterable[Window]) -> tuple[Window, ...]:
    """Windows as state has them whose tables keep nothing for figures of loops."""
    of_loops = frozenset(head for head, series in CODES.items() if series.group == LOOPS)
    return tuple(window._replace(heads=window.heads - of_loops) for window in windows)


DEFAULT_WINDOWS: Final = window_specs(_DEFAULT_NAMES)


def windows_by_group(windows: Collection[Window]) -> dict[str, list[str]]:
    """The names of windows that have each group of series; the inverse of ``window_specs``.

    The group of estimates is left out where its windows are those by default: it is newer than
    files that name the groups.

    >>> windows_by_group(window_specs(["30m", "1h"]))["turns"]
    ['1h']
    """
    found = _by_group(windows)
    usual = _by_group(window_specs([window.name for window in windows]))
    if found[ESTIMATES] == usual[ESTIMATES]:
        del found[ESTIMATES]
    return found


def _by_group(windows: Collection[Window]) -> dict[str, list[str]]:
    return {
        series.group: [window.name for window in windows if head in window.heads]
        for head, series in CODES.items()
        if series.group
    }


def series_of_agent(windows: Iterable[Window], retrieval: int) -> int:
    """The most series that an agent can have in these windows, with ``retrieval`` metrics."""
    sizes: Counter[str] = Counter()
    for head, series in CODES.items():
        open_labels = {"retrieval": retrieval, ESTIMATES: 2 + retrieval}.get(
            series.group, MAX_ROUTES + 1
        )
        sizes[head] = prod(
            open_labels if values is None else len(values) for values in series.values
        )
    return sum(sizes[head] for window in windows for head in window.heads)
