"""Summaries of rows for the report page: distributions, means by iteration, worst rows, strata.

Rows are added one by one. Memory does not grow with their number.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heappush, heappushpop
from math import inf
from operator import add
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np

from stream_metrics.core.metrics.decisions import ratio
from stream_metrics.core.metrics.labels import nothing_labelled
from stream_metrics.core.metrics.ranking.batch import Floats
from stream_metrics.lab.evaluation.observations import better_of
from stream_metrics.lab.evaluation.scoring import ScoredRankings

BINS: Final = 10
MOST_ITERATIONS: Final = 12
MOST_STRATA: Final = 50
MOST_HISTOGRAMS: Final = 6
WORST: Final = 10
_NDCG: Final = re.compile(r"ndcg(?![a-z_])")


class Histogram:
    """Counts of values in each tenth of [0, 1]; the last bin includes 1."""

    def __init__(self) -> None:
        self.counts = [0] * BINS
        self.undefined = 0

    def add(self, value: float | None) -> None:
        """Count a value; None counts as undefined."""
        if value is None:
            self.undefined += 1
        else:
            self.counts[min(BINS - 1, max(0, int(value * BINS)))] += 1

    def add_all(self, values: Floats) -> None:
        """Count values; NaN counts as undefined."""
        defined = values[~np.isnan(values)]
        self.undefined += len(values) - len(defined)
        places = np.clip((defined * BINS).astype(np.int64), 0, BINS - 1)
        self.counts = list(map(add, self.counts, np.bincount(places, minlength=BINS).tolist()))

    def labelled(self) -> list[tuple[str, int]]:
        """The bounds and count of each bin."""
        return [(f"{at / BINS:.1f}–{(at + 1) / BINS:.1f}", n) for at, n in enumerate(self.counts)]


class IterationMeans(NamedTuple):
    """Means of SRR@i and SRE@i over the rows that have an iteration i.

    ``sre`` is None if documents were found up to then and none has a label.
    """

    i: int
    rows: int
    srr: float
    sre: float | None


class Stratum(NamedTuple):
    """Sums over the rows of a stratum."""

    name: str
    rows: int
    results: int
    duplicates: int
    good_unique: int
    unique: int
    labelled: int

    @property
    def srr(self) -> float | None:
        """The share of results that are duplicates; None without results."""
        return ratio(self.duplicates, self.results)

    @property
    def sre(self) -> float | None:
        """The share of results that are new and good; None without results or labels."""
        unknown = nothing_labelled(self.unique, self.labelled)
        return None if unknown else ratio(self.good_unique, self.results)


class _TopRows:
    """The ``WORST`` rows with the largest keys; among equal keys, those added first."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[float, ...], int, Mapping[str, Any]]] = []
        self._seen = 0

    def add(self, key: tuple[float, ...], row: Mapping[str, Any]) -> None:
        self._seen += 1
        entry = (key, -self._seen, row)
        if len(self._heap) < WORST:
            heappush(self._heap, entry)
        else:
            heappushpop(self._heap, entry)

    def surpasses(self, first: float) -> bool:
        """Whether a key that begins with ``first`` is below those of all kept rows."""
        return len(self._heap) == WORST and first < self._heap[0][0][0]

    def skip(self) -> None:
        """Count a row without keeping it."""
        self._seen += 1

    def rows(self) -> list[Mapping[str, Any]]:
        return [row for _, row in self.entries()]

    def entries(self) -> list[tuple[tuple[float, ...], Mapping[str, Any]]]:
        """The rows with their keys, the largest first."""
        ordered = sorted(self._heap, key=lambda e: e[:2], reverse=True)
        return [(key, row) for key, _, row in ordered]


class Conversations:
    """Summarises rows of ``conversations.jsonl``.

    ``unlabelled`` counts rows with documents of which none has a label. Their SRE is unknown, so
    they are neither in its histogram nor among the lowest.
    """

    def __init__(self) -> None:
        self.rows = self.over_limit = self.without_search = self.unlabelled = 0
        self.srr, self.sre = Histogram(), Histogram()
        self._sums: list[list[float]] = []
        self._redundant, self._inefficient = _TopRows(), _TopRows()
        self._strata: dict[str, dict[str, list[int]]] = {"agent": {}, "release": {}}

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row; raises ``KeyError`` or ``TypeError`` if it is malformed."""
        self.rows += 1
        self.over_limit += bool(row["over_limit"])
        self.without_search += not row["n"]
        unlabelled = nothing_labelled(row["unique"], row["labelled"])
        self.unlabelled += unlabelled
        sre = None if unlabelled else row["sre"]
        self.srr.add(row["srr"])
        self.sre.add(sre)
        unique = labelled = 0
        for at, iteration in enumerate(row["iterations"][:MOST_ITERATIONS]):
            unique += iteration["unique"]
            labelled += iteration["labelled"]
            if at == len(self._sums):
                self._sums.append([0, 0.0, 0.0, 0, 0])
            more = (1, iteration["srr"], iteration["sre"], unique, labelled)
            self._sums[at] = list(map(add, self._sums[at], more))
        if row["results"]:
            slim = {key: row[key] for key in SHOWN} | {"sre": sre}
            if row["duplicates"]:
                self._redundant.add((row["srr"], row["duplicates"]), slim)
            if sre is not None:
                self._inefficient.add((-sre, row["results"]), slim)
        for dimension, strata in self._strata.items():
            name = row[dimension] or "none"
            if name in strata or len(strata) < MOST_STRATA:
                known = strata.get(name, [0] * (1 + len(SUMMED)))
                strata[name] = list(map(add, known, (1, *(row[one] for one in SUMMED))))

    @property
    def redundant(self) -> list[Mapping[str, Any]]:
        """The rows with the highest SRR; among equal ones, most duplicates first."""
        return self._redundant.rows()

    @property
    def inefficient(self) -> list[Mapping[str, Any]]:
        """The rows with the lowest SRE; among equal ones, most results first."""
        return self._inefficient.rows()

    def by_iteration(self) -> list[IterationMeans]:
        """Means of the first ``MOST_ITERATIONS`` iterations."""
        return [
            IterationMeans(
                at + 1, int(n), srr / n, None if nothing_labelled(unique, labelled) else sre / n
            )
            for at, (n, srr, sre, unique, labelled) in enumerate(self._sums)
        ]

    def strata(self, dimension: str) -> list[Stratum]:
        """The strata of a dimension by name; empty if there is only one."""
        found = self._strata[dimension]
        return [Stratum(name, *found[name]) for name in sorted(found)] if len(found) > 1 else []


SHOWN: Final = (
    "conversation_id", "turn", "agent", "n", "results", "duplicates", "good_unique", "srr", "sre",
)  # fmt: skip
"""The fields that are kept of the worst rows."""
SUMMED: Final = ("results", "duplicates", "good_unique", "unique", "labelled")
"""The fields that are summed by stratum."""


def most_telling_first(metrics: Sequence[str]) -> list[str]:
    """The metrics, beginning with the one that distinguishes searches best: the deepest NDCG.

    >>> most_telling_first(["hit@1", "ndcg@1", "ndcg(gains=binary)@10", "mrr"])
    ['ndcg(gains=binary)@10', 'hit@1', 'ndcg@1', 'mrr']
    """
    graded = [one for one in metrics if _NDCG.match(one)]
    first = max(graded, key=_depth, default=None)
    return sorted(metrics, key=lambda one: one != first)


def _depth(name: str) -> float:
    """The cut-off at the end of a metric's name; infinite without one."""
    k = name.rpartition("@")[2]
    return int(k) if k.isdecimal() else inf


class QueriesState(msgspec.Struct, array_like=True, frozen=True):
    """What a ``Queries`` has taken, to be stored: its histograms, and its worst rows."""

    bins: list[tuple[list[int], int]]
    worst: list[tuple[tuple[float, ...], Mapping[str, Any]]]


class Queries:
    """Summarises rows of ``queries.jsonl``.

    Args:
        shown: The metrics to make histograms of.
        by: The metrics that rank the worst rows; each breaks the ties of those before it.
        low: The metrics among them whose lower values are better.
    """

    def __init__(self, shown: Sequence[str], by: Sequence[str], low: Collection[str] = ()) -> None:
        self.bins = {name: Histogram() for name in shown}
        self._signs = {name: 1.0 if name in low else -1.0 for name in by}
        self.by = tuple(by)
        self._by = next(iter(by), None)
        self._worst = _TopRows()

    @classmethod
    def of(cls, metrics: Sequence[str]) -> Self:
        """The summary for rows with scores by these metrics."""
        better = {name: better_of(name) for name in metrics}
        scores = [name for name in metrics if better[name] != "neither"]
        low = [name for name in scores if better[name] == "lower"]
        return cls(scores[:MOST_HISTOGRAMS], most_telling_first(scores), low)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row."""
        scores = row["scores"]
        for name, bins in self.bins.items():
            bins.add(scores.get(name))
        first = self._key(self._by, scores.get(self._by)) if self._by else -inf
        if first != -inf and row["n_relevant"] != 0:
            if self._worst.surpasses(first):
                self._worst.skip()
                return
            keys = [self._key(name, scores.get(name)) for name in self._signs]
            self._worst.add((*keys, row["n_relevant"] or 0), row)

    def add_scored(self, scored: ScoredRankings, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add searches that have just been scored, with their rows."""
        columns = {str(metric): at for at, metric in enumerate(scored.metrics)}
        for name, bins in self.bins.items():
            bins.add_all(scored.values[:, columns[name]])
        if not self._by:
            return
        signs = np.array(list(self._signs.values()))
        keys = scored.values[:, [columns[name] for name in self._signs]] * signs
        keys = np.where(np.isnan(keys), -inf, keys)
        keys = np.column_stack([keys, np.maximum(scored.relevant, 0)])
        able = np.flatnonzero((keys[:, 0] != -inf) & (scored.relevant != 0))
        worst = able[np.lexsort(-keys[able, ::-1].T)][:WORST]
        for at in sorted(worst.tolist()):
            self._worst.add(tuple(keys[at].tolist()), rows[at])

    @property
    def state(self) -> QueriesState:
        """What has been taken, for ``add_states``."""
        bins = [(bins.counts, bins.undefined) for bins in self.bins.values()]
        return QueriesState(bins, self._worst.entries())

    def add_states(self, states: Sequence[QueriesState]) -> None:
        """Add the rows that others have taken of other conversations, each in sorted order."""
        for state in states:
            for bins, (counts, undefined) in zip(self.bins.values(), state.bins, strict=True):
                bins.counts = list(map(add, bins.counts, counts))
                bins.undefined += undefined
        # Among equal rows those added first come first, also within a conversation: a stable sort.
        worst = [entry for state in states for entry in state.worst]
        for key, row in sorted(worst, key=lambda entry: entry[1]["conversation_id"]):
            self._worst.add(key, row)

    def _key(self, name: str, value: float | None) -> float:
        """How bad a score is; an undefined score is not bad."""
        return -inf if value is None else self._signs[name] * value

    def worst(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Id and row of the worst queries that have a relevant document.

        Among equal ones, those with more relevant documents come first, then those added first.
        """
        for row in self._worst.rows():
            yield str(row.get("query_id", row.get("conversation_id"))), row


class RowSummaries(NamedTuple):
    """What the report page shows of the rows of a replay."""

    conversations: Conversations
    searches: Queries
