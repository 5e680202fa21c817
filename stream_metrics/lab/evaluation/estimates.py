"""Means with intervals over selected rows and by stratum, the building blocks of a report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np

from stream_metrics.core.metrics.decisions import NO_RELEASE
from stream_metrics.lab.choices import CONFIDENCE, RESAMPLES, SEED, Method
from stream_metrics.lab.statistics.intervals import Estimate, estimate, estimate_all
from stream_metrics.lab.statistics.strata_and_corrections import spread_of_strata, stratum_note
from stream_metrics.lab.statistics.units import Floats, Integers, Units, sums_from

Block = dict[str, Any]

MOST_STRATA: Final = 50
"""The most values that a dimension may have to be split by when no dimensions are requested."""
LANGUAGE: Final = "language"
"""The dimension that comes first, because a mean over several languages says little."""


class Intervals(NamedTuple):
    """How confidence intervals are computed.

    ``wilson`` applies to 0/1 metrics and ``t`` to means, both with one value per unit. Other
    figures get the percentile interval.
    """

    method: Method = "percentile"
    confidence: float = CONFIDENCE
    resample_count: int = RESAMPLES
    seed: int = SEED

    @classmethod
    def of(cls, evaluation: Mapping[str, Any]) -> Self | None:
        """From the settings ``evaluation``; None if they turn intervals off."""
        if not evaluation["confidence_intervals"]:
            return None
        return cls(*(evaluation[name] for name in ("interval", "confidence", "resamples", "seed")))


def with_intervals(
    figures: Mapping[str, Units], intervals: Intervals | None
) -> dict[str, Estimate]:
    """Estimate each figure with its interval. Percentile intervals share their resamples.

    Args:
        figures: The figures by name.
        intervals: How to compute the intervals. None: no bounds.
    """
    if intervals is None:
        return {
            name: Estimate(units.figure, units.n, units.size, units.sd, None, None, "percentile")
            for name, units in figures.items()
        }
    method, confidence, count, seed = intervals
    apart = {
        name: estimate(units, method, confidence=confidence, resample_count=count, seed=seed)
        for name, units in figures.items()
        if _suits(method, units)
    }
    together = estimate_all(
        {name: units for name, units in figures.items() if name not in apart},
        confidence=confidence,
        resample_count=count,
        seed=seed,
    )
    return {name: apart[name] if name in apart else together[name] for name in figures}


def _suits(method: Method, units: Units) -> bool:
    """Whether ``method`` applies to these units and is not the percentile interval."""
    if method == "wilson":
        return units.binary and units.single
    return units.single if method == "t" else method != "percentile"


class UnknownDimension(ValueError):
    """No row has the requested dimension."""


class SampledRow(Protocol):
    """A row's resampling unit and dimensions."""

    @property
    def unit(self) -> str:
        """The id of the conversation or query that is resampled."""

    @property
    def dimensions(self) -> Mapping[str, str]:
        """The values by which figures can be split."""


def split_by(row: Mapping[str, Any]) -> dict[str, str]:
    """The dimensions of a row of ``queries.jsonl`` or ``turns.jsonl``.

    A search or an answer without a release gets ``NO_RELEASE``, as a conversation does.

    >>> split_by({"agent": "bot", "conversation_id": "c", "dimensions": {"language": "de"}})
    {'language': 'de', 'agent': 'bot', 'release': 'none'}
    """
    dimensions = dict(row.get("dimensions") or {})
    if row.get("agent") is not None:
        dimensions.setdefault("agent", row["agent"])
    if "conversation_id" in row:
        dimensions.setdefault("release", NO_RELEASE)
    return dimensions


class Dimensions:
    """Interns the dimensions of rows: rows with equal dimensions share one mapping."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._seen: dict[tuple[Any, ...], Mapping[str, str]] = {}  # by a row's raw values

    def of(self, row: Mapping[str, Any]) -> Mapping[str, str]:
        """The dimensions of a row (``split_by``)."""
        key = (*(row.get("dimensions") or {}).items(), "conversation_id" in row, row.get("agent"))
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = self.intern(split_by(row))
        return seen

    def intern(self, dimensions: Mapping[str, str]) -> Mapping[str, str]:
        """The mapping that all rows with these dimensions share."""
        return self._known.setdefault(tuple(sorted(dimensions.items())), dimensions)

    @property
    def names(self) -> set[str]:
        """The names of all dimensions that some row has."""
        return {name for known in self._known.values() for name in known}


def dimensions_of(places: Sequence[SampledRow], asked: Sequence[str] | None, row: str) -> list[str]:
    """The dimensions to split by: the requested ones, or each with 2 to ``MOST_STRATA`` values.

    By default the language comes first, then the others by name.

    Args:
        places: All rows.
        asked: The requested dimensions. None: choose by the number of values.
        row: What a row is called in the error message.

    Raises:
        UnknownDimension: No row has a requested dimension.
    """
    values: dict[str, set[str]] = {}
    for dimensions in {id(place.dimensions): place.dimensions for place in places}.values():
        for name, value in dimensions.items():
            values.setdefault(name, set()).add(value)
    if asked is None:
        names = [name for name, known in values.items() if 1 < len(known) <= MOST_STRATA]
        return sorted(names, key=lambda name: (name != LANGUAGE, name))
    for name in asked:
        if name not in values:
            known = ", ".join(sorted(values)) or "none"
            raise UnknownDimension(f"no {row} has the dimension {name!r}; there are: {known}")
    return list(dict.fromkeys(asked))


class _Of(NamedTuple):
    """The unit numbers of rows in ascending order, and a digest of them as ``key``."""

    unit: Integers
    key: bytes

    @classmethod
    def units(cls, unit: Integers) -> Self:
        """Digest these unit numbers."""
        return cls(unit, hashlib.blake2b(unit.data).digest())


class _Column(NamedTuple):
    """Values with the units they belong to."""

    of: _Of
    values: Floats

    @property
    def key(self) -> str:
        """A digest of units and values."""
        digest = hashlib.blake2b(self.of.key)
        digest.update(self.values.data)
        return digest.hexdigest()


_Named = tuple[str, _Column]


class Estimates:
    """Estimates over selected rows of columns of values. NaN is ignored.

    Columns are often equal: precision at 1 is hit at 1, and strata of two dimensions may contain
    the same rows. Equal columns are estimated once.

    Args:
        places: The unit and dimensions of each row. The order of the rows has no effect.
        intervals: How to compute the intervals. None: no bounds.
    """

    def __init__(self, places: Sequence[SampledRow], intervals: Intervals | None) -> None:
        self._intervals = intervals
        numbers = {unit: at for at, unit in enumerate(sorted({place.unit for place in places}))}
        self._unit = np.array([numbers[place.unit] for place in places], dtype=np.int64)
        self._by_unit = np.argsort(self._unit, kind="stable")
        self._known: dict[str, Estimate] = {}
        # Rows with the same dimensions often share one mapping.
        self._kinds: list[Mapping[str, str]] = []
        kinds: dict[int, int] = {}
        self._kind = np.empty(len(places), dtype=np.int64)
        for at, place in enumerate(places):
            dimensions = place.dimensions
            if id(dimensions) not in kinds:
                kinds[id(dimensions)] = len(self._kinds)
                self._kinds.append(dimensions)
            self._kind[at] = kinds[id(dimensions)]

    def __getstate__(self) -> dict[str, Any]:
        """Pickle for another process without the estimates already computed here."""
        return {**self.__dict__, "_known": {}}

    def over_all(self, columns: Mapping[str, Floats]) -> dict[str, Block]:
        """The means of the columns over all rows."""
        return self._blocks(self._chosen(columns, dict.fromkeys(columns, self._by_unit)))

    def over_own_rows(
        self, values: Mapping[str, Floats], rows: Mapping[str, Integers]
    ) -> dict[str, Block]:
        """The mean of each column over its own selection of rows."""
        return self._blocks(self._chosen(values, {name: self._in(rows[name]) for name in values}))

    def over_turns(self, columns: Mapping[str, Floats], turns: Sequence[int]) -> dict[str, Block]:
        """The means of the columns over turns, where a turn's value is the mean of its rows.

        Args:
            columns: The values by metric name.
            turns: The number of each row's turn.
        """
        turn = np.array(turns, dtype=np.int64)
        order = np.lexsort((turn, self._unit))
        return self._blocks(self._by_turn(columns, self._unit[order], turn[order], order))

    def _by_turn(
        self, columns: Mapping[str, Floats], unit: Integers, turn: Integers, order: Integers
    ) -> Iterator[_Named]:
        """The turn means of each column; ``order`` sorts its rows by unit and turn."""
        for name, values in columns.items():
            ordered = values[order]
            taken = ~np.isnan(ordered)
            ordered, of, number = ordered[taken], unit[taken], turn[taken]
            new = (np.diff(of, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0)
            starts = np.flatnonzero(new)
            means = ordered
            if len(starts) < len(ordered):
                means = sums_from(ordered, starts) / np.diff(starts, append=len(ordered))
            yield name, _Column(_Of.units(of[starts]), means)

    def same_partitions(self, dimensions: Sequence[str]) -> list[list[str]]:
        """Group dimensions that partition the rows identically, such as one release per agent.

        The partitions with the most strata come first, since they take longest to estimate.
        """
        by_partition: dict[tuple[int, ...], list[str]] = {}
        for dimension in dimensions:
            firsts: dict[str | None, int] = {None: -1}
            of_kind = (kind.get(dimension) for kind in self._kinds)
            parts = tuple(firsts.setdefault(name, at) for at, name in enumerate(of_kind))
            by_partition.setdefault(parts, []).append(dimension)
        most_first = sorted(by_partition, key=lambda parts: len(set(parts)), reverse=True)
        return [by_partition[parts] for parts in most_first]

    def of_several(
        self, dimensions: Sequence[str], columns: Mapping[str, Floats]
    ) -> dict[str, Block]:
        """``of_strata`` for each dimension."""
        return {dimension: self.of_strata(dimension, columns) for dimension in dimensions}

    def of_strata(self, dimension: str, columns: Mapping[str, Floats]) -> Block:
        """The block of a dimension: every column's estimate in each stratum, by metric name."""
        of_kind = [dimensions.get(dimension) for dimensions in self._kinds]
        names = sorted({name for name in of_kind if name is not None})
        numbers = {name: number for number, name in enumerate(names)}
        places = [-1 if name is None else numbers[name] for name in of_kind]
        stratum = np.array(places, dtype=np.int64)
        of_row = stratum[self._kind]
        chosen = {name: self._in(np.flatnonzero(of_row == numbers[name])) for name in names}
        sizes = {name: len(np.unique(self._unit[chosen[name]])) for name in names}
        by_stratum = {
            name: self._estimates(self._chosen(columns, dict.fromkeys(columns, chosen[name])))
            for name in names
        }
        metrics = {}
        for metric in columns:
            estimates = {name: by_stratum[name][metric] for name in names}
            spread = spread_of_strata([estimate.mean for estimate in estimates.values()])
            metrics[metric] = {
                "strata": {name: self._block(estimate) for name, estimate in estimates.items()},
                "stratum_average": spread.average,
                "cross_stratum_variance": spread.variance,
            }
        return {
            "units": sizes,
            "without": int((of_row < 0).sum()),
            "notes": {name: note for name in names if (note := stratum_note(sizes[name]))},
            "metrics": metrics,
        }

    def _in(self, rows: Sequence[int] | Integers) -> Integers:
        """Sort row numbers by unit."""
        chosen = np.array(rows, dtype=np.int64)
        ordered: Integers = chosen[np.argsort(self._unit[chosen], kind="stable")]
        return ordered

    def _chosen(
        self, columns: Mapping[str, Floats], rows: Mapping[str, Integers]
    ) -> Iterator[_Named]:
        """Select each column's own rows."""
        known: dict[int, _Of] = {}  # columns often share the array of their rows
        for name, values in columns.items():
            chosen = rows[name]
            of = known.get(id(chosen))
            if of is None:
                of = known[id(chosen)] = _Of.units(self._unit[chosen])
            yield name, _Column(of, values[chosen])

    def _estimates(self, columns: Iterable[_Named]) -> dict[str, Estimate]:
        """Estimate each column; equal columns share one estimate."""
        keys: dict[str, str] = {}
        units: dict[str, Units] = {}
        for name, column in columns:
            key = keys[name] = column.key
            if key not in self._known and key not in units:
                units[key] = Units.of_columns(column.of.unit, column.values)
        self._known |= with_intervals(units, self._intervals)
        return {name: self._known[key] for name, key in keys.items()}

    def _blocks(self, columns: Iterable[_Named]) -> dict[str, Block]:
        return {name: self._block(estimate) for name, estimate in self._estimates(columns).items()}

    def _block(self, estimate: Estimate) -> Block:
        return {
            "mean": estimate.mean,
            "n": estimate.n,
            "sd": estimate.sd,
            "ci_low": estimate.ci_low,
            "ci_high": estimate.ci_high,
            "method": None if self._intervals is None else estimate.method,
            "note": estimate.note,
        }
