"""The report of a replay, from its rows: counts, micro and macro figures, strata and blocks."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from math import nan
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_metrics.core.metrics.decisions import (
    NO_RELEASE,
    GateCounts,
    RoutingCounts,
    ratio,
    routes_together,
)
from stream_metrics.core.metrics.labels import labelled_by
from stream_metrics.core.metrics.registry import (
    BASES,
    CUMULATIVE,
    ITERATIONS,
    QUOTIENTS,
    Quotient,
    metrics_at,
)
from stream_metrics.core.metrics.turn_totals import ITERATIONS_CAP
from stream_metrics.lab.evaluation.estimates import LANGUAGE, MOST_STRATA, Intervals, with_intervals
from stream_metrics.lab.evaluation.report_figures import SCHEMA_VERSION
from stream_metrics.lab.replay.label_estimates import estimates_block
from stream_metrics.lab.replay.outcome import Outcome
from stream_metrics.lab.sources.place import place_fields
from stream_metrics.lab.statistics.intervals import Estimate
from stream_metrics.lab.statistics.strata_and_corrections import spread_of_strata, stratum_note
from stream_metrics.lab.statistics.units import Integers, Units

ROUTING: Final = "routing_"
"""The prefix of the columns of the block ``routing``, whose names also occur elsewhere."""


def _columns(quotient: Quotient, place: str) -> Quotient:
    """The columns of a quotient's counts."""
    above, below = quotient
    prefix = ROUTING if place == "routing" else ""
    return tuple(prefix + name for name in above), tuple(prefix + name for name in below)


MACRO: Final = tuple(metric.name for metric in CUMULATIVE)
MICRO: Final[Mapping[str, Quotient]] = {
    metric.reported: _columns(metric.quotient, metric.place)
    for metric in QUOTIENTS
    if metric.quotient is not None
}
"""Figures that are a quotient of two sums over rows, with the columns of each sum."""

_MICRO: Final = "micro "
_ITERATIONS: Final = "iterations "
_WITHOUT: Final = -1
PLAIN_MICRO: Final = ("srr", "sre", "avg_gain")
STRATA: Final = ("agent", "release", "route")
"""The dimensions that rows themselves contain."""
_SUMMED: Final = ("results", "unique", "duplicates", "good_unique", "labelled", "unlabelled")
_OF_LOOPS: Final = ("searches", "queried_searches", *(one.key for one in metrics_at("count")))
_OF_ROWS: Final = ("n", *_SUMMED, *_OF_LOOPS, "gain")
_OF_GATES: Final = GateCounts._fields
_OF_ROUTING: Final = ("labelled", "correct")
_COUNTED: Final = (*_OF_ROWS, *_OF_GATES, *(ROUTING + name for name in _OF_ROUTING))


class GateBlock(msgspec.Struct, gc=False, frozen=True):
    """The counts of a row's block ``gate``."""

    search: int
    skip: int
    correct_skip: int
    missed: int
    correct_search: int
    wasted: int


class RoutingBlock(msgspec.Struct, gc=False, frozen=True):
    """The counts of a row's block ``routing``."""

    routes: dict[str, int]
    labelled: int
    correct: int


class LabelledBy(msgspec.Struct, gc=False, frozen=True):
    """The labelled documents of a row by whose label counts."""

    human: int = 0
    model: int = 0


class _Sources(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    labelled_by: LabelledBy | None = None  # only there if a model's label counts


class RowCounts(_Sources, gc=False, frozen=True):
    """The fields of a row that a report needs, apart from metrics."""

    conversation_id: str
    turn: int
    agent: str
    release: str | None
    over_limit: bool
    n: int
    results: int
    unique: int
    good_unique: int
    duplicates: int
    labelled: int
    unlabelled: int
    searches: int
    queried_searches: int | None
    repeated_searches: int | None
    empty_searches: int
    iterations_without_new: int
    trailing_without_new: int
    gain: int | None
    all_good_basis: str | None
    gate: GateBlock
    routing: RoutingBlock


ROW_FIGURES: Final[type[RowCounts]] = msgspec.defstruct(  # type: ignore[assignment]
    "Read",
    [(metric.key, float | None) for metric in metrics_at("through", "turn")],
    bases=(RowCounts,),
    gc=False,
    frozen=True,
)
"""``RowCounts`` with the value of each metric under its key."""


class Report:
    """Takes sorted rows and produces ``report.json`` from them and the outcome.

    About 200 bytes of each row are kept, because the intervals resample all rows; computing them
    takes 300 more bytes per row.

    Args:
        stratify: The dimensions of ``strata``: those in ``STRATA``, and recorded ones. None: the
            language, if it has 2 to ``MOST_STRATA`` values.
        intervals: How to compute intervals. None: no bounds.
    """

    def __init__(
        self,
        stratify: Sequence[str] | None = None,
        intervals: Intervals | None = Intervals(),  # noqa: B008 - a value, never changed
    ) -> None:
        self.rows = self._over_limit = self._by_model = 0
        self._unknown: set[str] = set()  # counts that some row does not know
        self._asked = stratify is not None
        self._stratify = (LANGUAGE,) if stratify is None else tuple(stratify)
        self._intervals = intervals
        self._macro = {name: array("d") for name in MACRO}
        self._counts = {name: array("q") for name in _COUNTED}
        self._unit = array("q")  # the number of each row's conversation
        self._units = 0
        self._last: str | None = None
        self._strata = {name: array("q") for name in self._stratify}
        self._names: dict[str, dict[str, int]] = {name: {} for name in self._stratify}
        self._iterations = {basis: array("b") for basis in BASES}  # per row; 0 if there is none
        self._routes: Counter[str] = Counter()

    @property
    def recorded(self) -> list[str]:
        """The dimensions that rows do not contain; pass them to ``add_recorded`` after all rows."""
        return [name for name in self._stratify if name not in STRATA]

    def add_recorded(self, recorded: Iterable[Mapping[str, str]]) -> None:
        """Add the recorded dimensions of each row's turn, in the order of the rows."""
        names = self.recorded
        for dimensions in recorded:
            for name in names:
                self._assign(name, dimensions.get(name))

    def _assign(self, dimension: str, value: str | None) -> None:
        """Assign the next row to a stratum; None: to none."""
        names = self._names[dimension]
        place = _WITHOUT if value is None else names.setdefault(value, len(names))
        self._strata[dimension].append(place)

    @property
    def _split(self) -> list[str]:
        """The dimensions of ``strata``."""
        return [
            name
            for name in self._stratify
            if self._asked or 1 < len(self._names[name]) <= MOST_STRATA
        ]

    def add(self, row: RowCounts) -> None:
        """Add a row."""
        self.rows += 1
        self._over_limit += row.over_limit
        if row.labelled_by is not None:
            self._by_model += row.labelled_by.model
        if row.conversation_id != self._last:
            self._last = row.conversation_id
            self._units += 1
        self._unit.append(self._units - 1)
        for name, values in self._macro.items():
            value = getattr(row, name)
            values.append(nan if value is None else value)
        for name in _OF_ROWS:
            self._counts[name].append(getattr(row, name) or 0)
        if row.queried_searches is None:
            self._unknown |= {"queried_searches", "repeated_searches"}
        for name in _OF_GATES:
            self._counts[name].append(getattr(row.gate, name))
        for name in _OF_ROUTING:
            self._counts[ROUTING + name].append(getattr(row.routing, name))
        for name in self._stratify:
            if name in STRATA:
                self._assign(name, _value(row, name))
        for basis, iterations in self._iterations.items():
            known = getattr(row, ITERATIONS) if row.all_good_basis == basis else None
            iterations.append(int(known or 0))
        self._routes.update(row.routing.routes)

    def document(
        self,
        outcome: Outcome,
        source: Sequence[str],
        config: dict[str, Any],
        *,
        generation: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The content of ``report.json``, including the block ``generation``.

        The block ``retrieval`` is None for the caller to fill in: it takes longest to compute.
        ``beyond_limit`` is there only if a row is of a turn beyond a limit, ``without_doc_id`` only
        if a ground truth could not be compared with results, ``estimates`` only if a turn is in a
        random sample.
        """
        totals = {name: sum(self._counts[name]) for name in _COUNTED}
        found = with_intervals(self._figures(), self._intervals)
        beyond = outcome.beyond_limit.at_least(self._over_limit)
        unnamed = outcome.without_ids
        return {
            "schema_version": SCHEMA_VERSION,
            "source": list(source),
            "config": config,
            "counts": {
                "events": outcome.events,
                "invalid": outcome.invalid,
                "stale": outcome.stale,
                "forgotten": outcome.forgotten,
                "conversations": outcome.conversations,
                "turns": self.rows,
                "iterations": totals["n"],
                **{name: totals[name] for name in _SUMMED},
                **labelled_by(totals["labelled"], self._by_model),
                **{name: None if name in self._unknown else totals[name] for name in _OF_LOOPS},
                "orphan_labels": outcome.orphan_labels,
            },
            **({"beyond_limit": beyond._asdict()} if beyond.turns else {}),
            **({"without_doc_id": unnamed._asdict()} if unnamed.texts() else {}),
            **_estimated(outcome, config),
            "aggregate": self._aggregate(totals, found),
            "strata": {name: self._stratified(name) for name in self._split},
            "gate": GateCounts(**{name: totals[name] for name in _OF_GATES}).row(),
            "routing": RoutingCounts(
                self._routes, *(totals[ROUTING + name] for name in _OF_ROUTING)
            ).row(),
            "reranking": outcome.reranks.row(),
            "retrieval": None,
            "generation": generation,
            "bad_records": {
                "count": outcome.invalid,
                "first": [
                    {
                        **place_fields(bad.place),
                        "reason": bad.reason,
                        "message": bad.message,
                    }
                    for bad in outcome.rejected
                ],
            },
        }

    def _aggregate(self, totals: dict[str, int], found: dict[str, Estimate]) -> dict[str, Any]:
        micro = {
            name: ratio(*(sum(totals[part] for part in parts) for parts in MICRO[name]))
            for name in PLAIN_MICRO
        }
        return {
            "micro": micro,
            "macro": {name: _shown(found[name], "mean") for name in MACRO},
            "iterations_for_all_good_results": {
                basis: _iterations(Counter(values), found[_ITERATIONS + basis])
                for basis, values in self._iterations.items()
            },
            "micro_intervals": {name: _shown(found[_MICRO + name], "value") for name in MICRO},
        }

    def _figures(self, chosen: NDArray[np.bool_] | None = None) -> dict[str, Units]:
        """Every figure over all rows, or over the chosen ones."""
        rows = slice(None) if chosen is None else chosen
        unit = np.frombuffer(self._unit, dtype=np.int64)[rows]
        counts = {
            name: np.frombuffer(values, dtype=np.int64)[rows]
            for name, values in self._counts.items()
        }
        figures = {}
        for name in MACRO:
            values = np.frombuffer(self._macro[name], dtype=np.float64)[rows]
            figures[name] = Units.of_columns(unit, values)
        for basis in BASES:
            counts_of = np.frombuffer(self._iterations[basis], dtype=np.int8)[rows]
            values = np.where(counts_of == 0, nan, counts_of.astype(np.float64))
            figures[_ITERATIONS + basis] = Units.of_columns(unit, values)
        for name, (above, below) in MICRO.items():
            figures[_MICRO + name] = Units.of_count_columns(
                unit, _added(counts, above), _added(counts, below)
            )
        return figures

    def _stratified(self, dimension: str) -> dict[str, Any]:
        """The block of one dimension in ``strata``."""
        places = np.frombuffer(self._strata[dimension], dtype=np.int64)
        unit = np.frombuffer(self._unit, dtype=np.int64)
        means: dict[str, list[float | None]] = {name: [] for name in MACRO}
        strata: dict[str, Any] = {}
        for stratum, place in sorted(self._names[dimension].items()):
            chosen = places == place
            found = with_intervals(self._figures(chosen), self._intervals)
            for name in MACRO:
                means[name].append(found[name].mean)
            conversations = len(np.unique(unit[chosen]))
            strata[stratum] = {
                "conversations": conversations,
                "note": stratum_note(conversations),
                "macro": {name: _shown(found[name], "mean") for name in MACRO},
                "micro": {name: _shown(found[_MICRO + name], "value") for name in MICRO},
            }
        across = {name: spread_of_strata(means[name]) for name in MACRO}
        return {
            "strata": strata,
            "without": int((places == _WITHOUT).sum()),
            "stratum_average": {name: across[name].average for name in MACRO},
            "cross_stratum_variance": {name: across[name].variance for name in MACRO},
        }


def _estimated(outcome: Outcome, config: dict[str, Any]) -> dict[str, Any]:
    """The block ``estimates``, if a turn is in a random sample."""
    if not outcome.label_sums:
        return {}
    return {"estimates": estimates_block(outcome.label_sums, config["metrics"]["dimension"])}


def _added(counts: Mapping[str, Integers], names: Sequence[str]) -> Integers:
    """The sum of some columns."""
    return reduce(np.add, (counts[name] for name in names))


def _value(row: RowCounts, dimension: str) -> str | None:
    """A row's value of a dimension in ``STRATA``; None if it has none."""
    if dimension == "agent":
        return row.agent
    if dimension == "release":
        return row.release or NO_RELEASE
    return routes_together(row.routing.routes)


def _shown(found: Estimate, figure: str) -> dict[str, Any]:
    """A figure with its interval, as reports contain it."""
    return {
        figure: found.mean,
        **{key: getattr(found, key) for key in ("n", "sd", "ci_low", "ci_high")},
    }


def _iterations(counts: Counter[int], found: Estimate) -> dict[str, Any]:
    del counts[0]
    n = counts.total()
    median = capped = None
    if n:
        low, high = _value_at(counts, (n - 1) // 2), _value_at(counts, n // 2)
        median = (low + high) / 2
        capped = sum(count for value, count in counts.items() if value >= ITERATIONS_CAP) / n
    return {
        "n": n,
        "mean": found.mean,
        "median": median,
        "capped": capped,
        **{key: getattr(found, key) for key in ("sd", "ci_low", "ci_high")},
    }


def _value_at(counts: Counter[int], place: int) -> int:
    """The value at this index of the sorted values."""
    for value, count in sorted(counts.items()):
        place -= count
        if place < 0:
            return value
    raise IndexError(place)
