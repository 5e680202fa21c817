"""What has arrived in each minute, by agent, as a state partition keeps it beside its windows.

A minute is that in which a record was written to the log, so that the same log gives the same
minutes, however late and in whatever batches it is read.

Minutes are stored by hours, and each hour has a mark that changes with it, so that whoever reads
partitions again and again reads little more than what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from stream_metrics.core.alerts.arrivals import COUNTS, counts_of
from stream_metrics.core.alerts.shifts import HORIZON
from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.codec import decode_sums, encode_sums
from stream_metrics.core.engine.config import OTHER
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.windows import (
    MIN_DELETIONS,
    BucketChanges,
    Names,
    Sums,
    add,
    added_bucket,
)

MINUTE_MS: Final = 60_000
HOURS: Final = HORIZON // 60 + 3  # that are kept; partitions are not all read up to the same one
OPEN: Final = 4  # hours that are not packed
MARKS: Final = "arrived"  # among the names of windows; the others begin with it
MARK_BYTES: Final = 6  # that it takes for no two to be alike

_MARK: Final = "n"
_HEAD: Final = Struct(">IH")  # a minute, and the length of what follows
_SHORT: Final = {  # of counts that no series has as they are; stored
    "labelled_gate_decisions": "q",
    "missed_searches": "qm",
    "labelled_routes": "R",
    "wrong_routes": "Rw",
    "rerank_ndcg_shown": "ks",
    "rerank_ndcg_baseline": "kb",
}
_LABELS: Final = ("u", "l")  # which alerts need for other counts only
_HEADS: Final = {CODES[head].name: head for head in CODES}
_STORED: Final = {name: _SHORT.get(name) or _HEADS[name] for name in COUNTS} | {
    CODES[head].name: head for head in _LABELS
}
_COUNT_OF: Final = {code: name for name, code in _STORED.items()}

Bucket = tuple[int, str]  # a minute and an agent
Counts = dict[str, int]

Arrivals = tuple[int, Sequence[tuple[int, Cell]]]
"""A minute, and the cells that are added (1) or taken back (-1) in it."""


class Hour(NamedTuple):
    """The minutes of an hour in one partition, packed by agent; no two contents share a mark."""

    mark: int
    agents: Mapping[str, bytes]


Hours = Mapping[int, Hour]
"""Those of a partition, by their place among ``HOURS``."""


def place_of(minute: int) -> int:
    """Where the hour of a minute is stored, in turn."""
    return minute // 60 % HOURS


def window_of(place: int) -> str:
    """The name of an hour, among those of windows."""
    return f"{MARKS}:{place}"


_PLACES: Final = {window_of(place): place for place in range(HOURS)}


def keeps_minutes(window: str) -> bool:
    """Whether this is not a window, but minutes or their marks.

    >>> keeps_minutes("arrived:63"), keeps_minutes("arrived"), keeps_minutes("1h")
    (True, True, False)
    """
    return window == MARKS or window in _PLACES


def marks_in(buckets: Mapping[tuple[str, int, str], bytes]) -> dict[int, int]:
    """The marks of hours, by place, from what is stored as ``MARKS``. Raises ``DamagedState``."""
    return {
        place: decode_sums(stored).get(_MARK, 0)
        for (window, place, _), stored in buckets.items()
        if window == MARKS
    }


def packed(buckets: Iterable[tuple[Bucket, bytes]]) -> dict[str, bytes]:
    """Minutes by agent, as ``Hour`` has them."""
    found: dict[str, list[bytes]] = {}
    for (minute, agent), sums in sorted(buckets):
        found.setdefault(agent, []).extend((_HEAD.pack(minute, len(sums)), sums))
    return {agent: b"".join(parts) for agent, parts in found.items()}


def _unpacked(stored: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(stored):
        minute, length = _HEAD.unpack_from(stored, at)
        at += _HEAD.size + length
        yield minute, stored[at - length : at]


class ArrivedMinutes:
    """The minutes of one state partition.

    They are kept encoded, like those of windows; of hours that did not change lately also packed,
    which takes a quarter of the memory.
    """

    def __init__(self) -> None:
        self._open: dict[int, dict[Bucket, bytes]] = {}  # by place; what changed last is the last
        self._closed: dict[int, dict[str, bytes]] = {}
        self._first: dict[int, int] = {}  # by place, a lower bound of its minutes
        self._marks: dict[int, int] = {}
        self._hours: dict[int, Hour] = {}

    def load(self, window: str, number: int, agent: str, sums: bytes) -> None:
        """Load one stored minute, or mark; raises ``DamagedState``."""
        if keeps_minutes(window):
            decode_sums(sums)
            self.install({(window, number, agent): sums})

    def install(self, touched: BucketChanges) -> None:
        """Store what ``changes`` has returned."""
        for (window, number, agent), sums in touched.items():
            if window == MARKS:
                self._marks[number] = decode_sums(sums or b"").get(_MARK, 0)
                continue
            place = _PLACES[window]
            minutes = self._opened(place)
            if sums is None:
                minutes.pop((number, agent), None)
            else:
                minutes[number, agent] = sums
                self._first[place] = min(number, self._first.get(place, number))
        while len(self._open) > OPEN:
            place = next(iter(self._open))
            self._closed[place] = packed(self._open.pop(place).items())

    def _opened(self, place: int) -> dict[Bucket, bytes]:
        minutes = self._open.pop(place, None)
        if minutes is None:
            minutes = {
                (minute, agent): sums
                for agent, stored in self._closed.pop(place, {}).items()
                for minute, sums in _unpacked(stored)
            }
        self._open[place] = minutes
        return minutes

    def hours(self) -> dict[int, Hour]:
        """The hours as they are now."""
        for place, mark in self._marks.items():
            held = self._hours.get(place)
            if held is None or held.mark != mark:
                closed = self._closed.get(place)
                found = packed(self._open.get(place, {}).items()) if closed is None else closed
                self._hours[place] = Hour(mark, found)
        return dict(self._hours)

    def changes(
        self, arrivals: Iterable[Arrivals], names: Names, record_time_us: int, mark: int
    ) -> BucketChanges:
        """The new content of each minute that changes, and deletions of some that are too old.

        Changes nothing itself. ``mark`` becomes that of the hours that change. Raises
        ``DamagedState``.
        """
        oldest = (record_time_us // (60_000 * MINUTE_MS) - HOURS + 1) * 60
        net: dict[Bucket, Sums] = {}
        for minute, cells in arrivals:
            if minute < oldest:
                continue
            for sign, cell in cells:
                at = minute, cell.agent
                if at not in net:
                    net[at] = {}
                into = net[at]
                for code in cell.sums:
                    for stored in _STORED_OF[code]:
                        value = sign * cell.sums[code]
                        into[stored] = into[stored] + value if stored in into else value
        named: dict[Bucket, Sums] = {}
        for (minute, agent), sums in net.items():
            add(named.setdefault((minute, names.agent(agent)), {}), sums, 1)
        touched: BucketChanges = {}
        marks: BucketChanges = {}
        for (minute, agent), sums in named.items():
            if any(sums.values()):
                place = place_of(minute)
                before = self._opened(place).get((minute, agent))
                touched[window_of(place), minute, agent] = added_bucket(before, sums, set(sums))
                marks[MARKS, place, OTHER] = encode_sums({_MARK: mark})
        touched.update(islice(self._outdated(oldest), max(MIN_DELETIONS, 2 * len(touched))))
        return touched | marks

    def _outdated(self, oldest: int) -> Iterator[tuple[tuple[str, int, str], None]]:
        for place in [place for place, first in self._first.items() if first < oldest]:
            any_outdated = False
            for minute, agent in self._opened(place):
                if minute < oldest:
                    any_outdated = True
                    yield (window_of(place), minute, agent), None
            if not any_outdated:
                self._first[place] = oldest


class _StoredOf(dict[str, tuple[str, ...]]):
    """By series code, the stored codes to which it adds.

    >>> found = _StoredOf()
    >>> found["q|skip|yes"], found["u"], found["s"], found["i"]
    (('q', 'qm'), ('u',), ('s',), ())
    """

    def __missing__(self, code: str) -> tuple[str, ...]:
        if len(self) >= _CODES_KEPT:
            self.clear()
        found = (code,) if code in _LABELS else tuple(_STORED[name] for name in counts_of(code))
        self[code] = found
        return found


_CODES_KEPT: Final = 8_192
_STORED_OF: Final = _StoredOf()


class Arrived:
    """What has arrived over several partitions, by agent and minute.

    It is kept from one ``update`` to the next, and only agents' hours that changed are counted
    anew.
    """

    def __init__(self) -> None:
        self.agents: dict[str, dict[int, Counts]] = {}
        self._held: dict[int, dict[int, Hour]] = {}

    def update(self, partitions: Mapping[int, Hours]) -> None:
        """Go on to what is in the partitions now. Raises ``DamagedState``."""
        for number in self._held.keys() | partitions.keys():
            held, after = self._held.setdefault(number, {}), partitions.get(number, {})
            for place in held.keys() | after.keys():
                before, now = held.get(place, _EMPTY), after.get(place, _EMPTY)
                if before.mark != now.mark:  # else it may be of an earlier moment
                    self._change(before, now)
                    held[place] = now
            if number not in partitions:
                del self._held[number]

    def _change(self, before: Hour, after: Hour) -> None:
        for agent in before.agents.keys() | after.agents.keys():
            old, new = before.agents.get(agent, b""), after.agents.get(agent, b"")
            if old != new:
                self._add(agent, old, -1)
                self._add(agent, new, 1)
                if not self.agents[agent]:
                    del self.agents[agent]

    def _add(self, agent: str, stored: bytes, sign: int) -> None:
        minutes = self.agents.setdefault(agent, {})
        for minute, sums in _unpacked(stored):
            counts = minutes.setdefault(minute, {})
            named = {_COUNT_OF[c]: n for c, n in decode_sums(sums).items() if c in _COUNT_OF}
            add(counts, named, sign)
            if not counts:
                del minutes[minute]


_EMPTY: Final = Hour(0, {})
