"""What has arrived in each minute, by agent, as a state partition keeps it beside its windows.

A minute is that in which a record was written to the log, so that the same log gives the same
minutes, however late and in whatever batches it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from stream_metrics.core.alerts.arrivals import COUNTS, counts_of
from stream_metrics.core.alerts.shifts import HORIZON
from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.codec import decode_sums, encode_sums
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.windows import (
    MIN_DELETIONS,
    BucketChanges,
    Names,
    Sums,
    add,
    added_bucket,
)

ARRIVED: Final = "arrived"  # among the names of windows
MINUTE_MS: Final = 60_000
KEPT: Final = HORIZON + 60  # minutes; partitions are not all read up to the same one

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


Arrivals = tuple[int, Sequence[tuple[int, Cell]]]
"""A minute, and the cells that are added (1) or taken back (-1) in it."""


class ArrivedMinutes:
    """The minutes of one state partition; kept encoded, like those of windows."""

    def __init__(self) -> None:
        self.buckets: dict[Bucket, bytes] = {}
        self._first: int | None = None  # a lower bound of the minutes

    def load(self, window: str, minute: int, agent: str, sums: bytes) -> None:
        """Load one stored minute; raises ``DamagedState``."""
        if window == ARRIVED:
            self._set(minute, agent, encode_sums(decode_sums(sums)))

    def install(self, touched: BucketChanges) -> None:
        """Store what ``changes`` has returned."""
        for (_, minute, agent), sums in touched.items():
            if sums is None:
                self.buckets.pop((minute, agent), None)
            else:
                self._set(minute, agent, sums)

    def _set(self, minute: int, agent: str, sums: bytes) -> None:
        self.buckets[minute, agent] = sums
        self._first = minute if self._first is None else min(minute, self._first)

    def changes(
        self, arrivals: Iterable[Arrivals], names: Names, record_time_us: int
    ) -> BucketChanges:
        """The new content of each minute that changes, and deletions of some that are too old.

        Changes nothing itself. Raises ``DamagedState``.
        """
        oldest = record_time_us // (1_000 * MINUTE_MS) - KEPT + 1
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
        touched: BucketChanges = {
            (ARRIVED, minute, agent): added_bucket(
                self.buckets.get((minute, agent)), sums, set(sums)
            )
            for (minute, agent), sums in named.items()
            if any(sums.values())
        }
        touched.update(islice(self._outdated(oldest), max(MIN_DELETIONS, 2 * len(touched))))
        return touched

    def _outdated(self, oldest: int) -> Iterator[tuple[tuple[str, int, str], None]]:
        if self._first is None or self._first >= oldest:
            return
        any_outdated = False
        for minute, agent in self.buckets:
            if minute < oldest:
                any_outdated = True
                yield (ARRIVED, minute, agent), None
        if not any_outdated:
            self._first = oldest


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


def counts_by_agent(
    partitions: Iterable[Mapping[Bucket, bytes]],
) -> dict[str, dict[int, dict[str, int]]]:
    """By agent and minute, the counts over all partitions. Raises ``DamagedState``."""
    found: dict[str, dict[int, dict[str, int]]] = {}
    for buckets in partitions:
        for (minute, agent), stored in buckets.items():
            into = found.setdefault(agent, {}).setdefault(minute, {})
            for code, value in decode_sums(stored).items():
                if (name := _COUNT_OF.get(code)) is not None:
                    into[name] = into.get(name, 0) + value
    return found
