"""What has arrived in each minute, by agent, as a state partition keeps it beside its windows.

A minute is that in which a record was written to the log, so that the same log gives the same
minutes, however late and in whatever batches it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

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


class Arrival(NamedTuple):
    """A cell that is added (1) or taken back (-1), with the minute in which that arrived."""

    minute: int
    sign: int
    cell: Cell


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
        self, arrivals: Iterable[Arrival], names: Names, record_time_us: int
    ) -> BucketChanges:
        """The new content of each minute that changes, and deletions of some that are too old.

        Changes nothing itself. Raises ``DamagedState``.
        """
        oldest = record_time_us // (1_000 * MINUTE_MS) - KEPT + 1
        net: dict[Bucket, Sums] = {}
        for minute, sign, cell in arrivals:
            if minute >= oldest:
                into = net.setdefault((minute, names.agent(cell.agent)), {})
                add(into, _counts(cell.sums), sign)
        touched: BucketChanges = {
            (ARRIVED, minute, agent): added_bucket(
                self.buckets.get((minute, agent)), sums, set(sums)
            )
            for (minute, agent), sums in net.items()
            if sums
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


def _counts(sums: Mapping[str, int]) -> Sums:
    """What the sums of a cell add to each count, by its stored code."""
    found: Sums = {}
    for code, value in sums.items():
        for stored in _stored(code):
            found[stored] = found.get(stored, 0) + value
    return found


@lru_cache(maxsize=8_192)
def _stored(code: str) -> tuple[str, ...]:
    """The stored codes to which a series code adds.

    >>> _stored("q|skip|yes"), _stored("u"), _stored("s"), _stored("i")
    (('q', 'qm'), ('u',), ('s',), ())
    """
    return (code,) if code in _LABELS else tuple(_STORED[count] for count in counts_of(code))


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
