"""What the windows have shown through all of recorded time, for those who look back at it.

Live, a bucket goes when it has left its window. A replay has all cells at its end, and keeps their
sums in buckets that each window's buckets can be put together from, under names as they were sent:
so histories of several replays add up.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Final

from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.codec import decode_sums, encode_sums
from stream_metrics.core.engine.config import MAX_ROUTES, EngineConfig
from stream_metrics.core.engine.state import Cell, DamagedState
from stream_metrics.core.engine.window import Window, window_specs, windows_by_group
from stream_metrics.core.engine.window_sums import sliding_sums
from stream_metrics.core.engine.windows import (
    Names,
    Sums,
    add,
    in_window,
    names_with_series,
    routes_in,
)

SCHEMA_VERSION: Final = 1
PENDING: Final = 20_000  # buckets that are held as dictionaries before they are packed

_CORE: Final = tuple(code for code, series in CODES.items() if not series.group)


class UnfitHistory(Exception):
    """What is to be read is no history, or one of other windows; the message says why."""


@dataclass(frozen=True, slots=True)
class Course:
    """One series through time: a value at each step."""

    window: str
    agent: str
    code: str
    values: Sequence[int]


class History:
    """Sums by bucket and agent.

    ``dimension`` is what agents are (agents, or releases); ``agents`` and ``routes`` have series of
    their own before others. ``last_event_us`` is the largest event time of a valid event.
    """

    def __init__(
        self,
        windows: Iterable[Window],
        *,
        dimension: str = "agent",
        agents: Iterable[str] = (),
        routes: Iterable[str] = (),
    ) -> None:
        self.windows = tuple(windows)
        self.dimension = dimension
        self.agents, self.routes = tuple(agents), tuple(routes)
        self.width_us = gcd(*(window.bucket_us for window in self.windows))
        self.last_event_us = 0
        self._buckets: dict[tuple[int, str], bytes] = {}
        self._pending: dict[tuple[int, str], Sums] = {}

    def add(self, cells: Iterable[Cell]) -> None:
        """Add what conversations add to the windows."""
        for cell in cells:
            self._add((cell.time_us // self.width_us, cell.agent), cell.sums)

    def _add(self, place: tuple[int, str], sums: Mapping[str, int]) -> None:
        add(self._pending.setdefault(place, {}), sums, 1)
        if len(self._pending) >= PENDING:
            self._pack()

    def _pack(self) -> None:
        for place, sums in self._pending.items():
            stored = self._buckets.get(place)
            if stored is not None:
                add(sums, decode_sums(stored), 1)
            self._buckets[place] = encode_sums(sums)
        self._pending = {}

    # -- as lines of a file

    def header(self) -> dict[str, Any]:
        """What is to be known of the lines."""
        return {
            "schema_version": SCHEMA_VERSION,
            "width_us": self.width_us,
            "windows": [window.name for window in self.windows],
            "series_windows": windows_by_group(self.windows),
            "dimension": self.dimension,
            "agents": list(self.agents),
            "routes": list(self.routes),
            "last_event_us": self.last_event_us,
        }

    def lines(self) -> Iterator[dict[str, Any]]:
        """The header, then a line for each bucket and agent, sorted; equal sums, equal lines.

        Sums are by series code, as the state keeps them.
        """
        yield self.header()
        for bucket, agent, sums in self.buckets():
            ordered = {code: sums[code] for code in sorted(sums)}
            yield {"bucket": bucket, self.dimension: agent, "sums": ordered}

    def buckets(self) -> Iterator[tuple[int, str, Sums]]:
        """Number, agent and sums of each bucket that has any, sorted."""
        if self._buckets:
            self._pack()
        # Few buckets were never packed, and need not be now.
        for place in sorted(self._buckets or self._pending):
            sums = decode_sums(self._buckets[place]) if self._buckets else self._pending[place]
            if sums:
                yield *place, sums

    @classmethod
    def of_header(cls, header: Any) -> History:
        """An empty history as a header describes it; raises ``UnfitHistory``."""
        try:
            if header["schema_version"] != SCHEMA_VERSION:
                raise UnfitHistory(
                    f"schema version {header['schema_version']!r} is not {SCHEMA_VERSION}: another "
                    "release wrote it. Replay again with this release"
                )
            found = cls(
                window_specs(header["windows"], header["series_windows"]),
                dimension=header["dimension"],
                agents=header["agents"],
                routes=header["routes"],
            )
            found.last_event_us = header["last_event_us"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UnfitHistory("the first line is not a header of a replay's buckets") from error
        return found

    def join(self, header: Any) -> None:
        """Let the lines of another history with this header be taken; raises ``UnfitHistory``."""
        other = History.of_header(header)
        ours, theirs = self.header(), other.header()
        for name in ("windows", "series_windows", "dimension", "agents", "routes"):
            if ours[name] != theirs[name]:
                raise UnfitHistory(
                    f"{name} are {theirs[name]}, but {ours[name]} in the first directory: the "
                    "replays were run with different settings"
                )
        self.last_event_us = max(self.last_event_us, other.last_event_us)

    def take(self, line: Any) -> None:
        """Add a line that ``lines`` gave; raises ``UnfitHistory``."""
        try:
            sums = decode_sums(encode_sums(line["sums"]))
            place = (int(line["bucket"]), str(line[self.dimension]))
            if not all(code.partition("|")[0] in CODES for code in sums):
                raise ValueError
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            DamagedState,
        ) as error:
            raise UnfitHistory("not a line of a replay's buckets") from error
        self._add(place, sums)

    # -- through time

    @property
    def first_us(self) -> int | None:
        """The beginning of the first bucket; None if there is none."""
        self._pack()
        return min(bucket for bucket, _ in self._buckets) * self.width_us if self._buckets else None

    def courses(self, steps_us: range) -> Iterator[Course]:
        """Each series at each of the steps: what ``windows.json`` would say at that time.

        Left out are series that are never other than 0, but for the first families of each agent.
        One window of one agent is worked out at a time.
        """
        self._pack()
        names = self._names()
        places: dict[str, list[tuple[int, str]]] = {agent: [] for agent in self.agents}
        for place in self._buckets:
            places.setdefault(names.agent(place[1]), []).append(place)
        for window in self.windows:
            for agent in sorted(places):
                buckets = self._coarse(window, places[agent], names)
                by_code = _through(buckets, window, steps_us)
                zeros = array("q", bytes(8 * len(steps_us)))
                for code in dict.fromkeys((*_CORE, *sorted(by_code))):
                    yield Course(window.name, agent, code, by_code.get(code, zeros))

    def _names(self) -> Names:
        routes: set[str] = set()
        for sums in self._buckets.values():
            if b"R|" in sums:
                routes |= routes_in(decode_sums(sums))
        limit = EngineConfig(dimension=self.dimension).max_names
        return Names(
            names_with_series({agent for _, agent in self._buckets}, self.agents, limit),
            names_with_series(routes, self.routes, MAX_ROUTES),
        )

    def _coarse(
        self, window: Window, places: Iterable[tuple[int, str]], names: Names
    ) -> dict[int, Sums]:
        """A window's buckets of these places, as series name them."""
        factor = window.bucket_us // self.width_us
        found: dict[int, Sums] = {}
        for place in places:
            sums = in_window(names.named(decode_sums(self._buckets[place])), window)
            add(found.setdefault(place[0] // factor, {}), sums, 1)
        return found


def _through(buckets: Mapping[int, Sums], window: Window, steps_us: range) -> dict[str, array[int]]:
    """The sums of a window at each step, by series code."""
    found: dict[str, array[int]] = {}
    for step, sums in enumerate(sliding_sums(buckets, map(window.numbers, steps_us))):
        for code, value in sums.items():
            values = found.get(code)
            if values is None:
                values = found[code] = array("q", bytes(8 * len(steps_us)))
            values[step] = value
    return found
