"""The block ``retrieval`` of a report: means with intervals, by strategy and by stratum."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Any, Final, NamedTuple

import numpy as np

from stream_metrics.evaluation.scoring import Place, Scored
from stream_metrics.metrics.ranking.batch import STRATEGIES, Bools, Floats, Ints
from stream_metrics.metrics.ranking.names import RankedMetric
from stream_metrics.statistics.intervals import CONFIDENCE, RESAMPLES, Estimate, Method, estimate
from stream_metrics.statistics.resampling import SEED
from stream_metrics.statistics.several import spread_of_strata, stratum_note
from stream_metrics.statistics.units import Units

Block = dict[str, Any]

MOST_STRATA: Final = 50
"""Values that a dimension may have to be split by unasked."""


class Intervals(NamedTuple):
    """How intervals are made; ``wilson`` is for 0/1 metrics, others get the percentile interval."""

    method: Method = "percentile"
    confidence: float = CONFIDENCE
    resample_count: int = RESAMPLES
    seed: int = SEED


class UnknownDimension(ValueError):
    """No ranking has the dimension that figures are to be split by."""


class _All(NamedTuple):
    """All parts as one."""

    unit: str
    metrics: tuple[RankedMetric, ...]
    places: list[Place]
    values: Floats
    with_relevant: Bools
    totals: Ints


def retrieval_block(
    parts: Sequence[Scored],
    *,
    intervals: Intervals | None = Intervals(),  # noqa: B008 - a value, never changed
    dimensions: Sequence[str] | None = None,
    missing: int = 0,
    dropped: int = 0,
) -> Block:
    """Sum up scored rankings; the order of parts and rankings changes nothing.

    Args:
        parts: One or more, with the same unit and metrics.
        intervals: How to make them. None: no bounds.
        dimensions: What to split by. None: each dimension with 2 to ``MOST_STRATA`` values.
        missing: Queries of the qrels that the run lacks.
        dropped: Queries of the run that the qrels lack.

    Raises:
        UnknownDimension: No ranking has that dimension.
        ValueError: The parts differ in unit or metrics, or there is none; a method of intervals
            does not exist.
    """
    whole = _together(parts)
    counts = dict.fromkeys(STRATEGIES, 0)
    for place in whole.places:
        if place.strategy is not None:
            counts[place.strategy] += 1
    used = [name for name, count in counts.items() if count]
    figures = _Figures(whole, intervals)
    retrieved, judged = whole.totals.tolist()
    return {
        "unit": whole.unit,
        "queries": len(whole.places),
        "queries_missing": missing,
        "queries_dropped": dropped,
        "queries_without_judgement": sum(place.strategy is None for place in whole.places),
        "retrieved": retrieved,
        "judged": judged,
        "strategy_used": "mixed" if len(used) > 1 else used[0] if used else None,
        "strategy_counts": counts,
        "metrics": {
            str(metric): figures.of_metric(column, used)
            for column, metric in enumerate(whole.metrics)
        },
        "strata": {name: figures.of_strata(name) for name in _dimensions(whole.places, dimensions)},
    }


def _together(parts: Sequence[Scored]) -> _All:
    if not parts or any(
        (part.unit, part.metrics) != (parts[0].unit, parts[0].metrics) for part in parts
    ):
        raise ValueError("give one part or more, all with the same unit and the same metrics")
    return _All(
        parts[0].unit,
        parts[0].metrics,
        [place for part in parts for place in part.places],
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.with_relevant for part in parts]),
        np.array([[part.retrieved.sum(), part.judged.sum()] for part in parts]).sum(axis=0),
    )


def _dimensions(places: Sequence[Place], asked: Sequence[str] | None) -> list[str]:
    values: dict[str, set[str]] = {}
    for place in places:
        for name, value in place.dimensions.items():
            values.setdefault(name, set()).add(value)
    if asked is None:
        return sorted(name for name, found in values.items() if 1 < len(found) <= MOST_STRATA)
    for name in asked:
        if name not in values:
            known = ", ".join(sorted(values)) or "none"
            raise UnknownDimension(f"no query has the dimension {name!r}; there are: {known}")
    return list(dict.fromkeys(asked))


class _Figures:
    """Estimates over chosen rows of one column."""

    def __init__(self, whole: _All, intervals: Intervals | None) -> None:
        self._whole = whole
        self._intervals = intervals
        self._by_events = any(place.turn is not None for place in whole.places)

    def of_metric(self, column: int, strategies: Sequence[str]) -> Block:
        """All figures of one metric."""
        places, relevant = self._whole.places, self._whole.with_relevant[:, column].tolist()
        known = [at for at, place in enumerate(places) if place.strategy is not None]
        with_relevant = [at for at in known if relevant[at]]
        values = self._column(column)
        block = self._shown(self._units(values, range(len(places))))
        beside = block
        if len(with_relevant) < len(known):
            beside = self._shown(self._units(values, with_relevant))
        block = {
            **block,
            "queries_with_relevant": len(with_relevant),
            "queries_without_relevant": len(known) - len(with_relevant),
            "over_queries_with_relevant": dict(beside),
        }
        if self._by_events:
            block["macro_turn"] = self._shown(self._turns(values))
        if len(strategies) > 1:
            block["by_strategy"] = {
                name: self._shown(
                    self._units(
                        values, [at for at, place in enumerate(places) if place.strategy == name]
                    )
                )
                for name in strategies
            }
        return block

    def of_strata(self, dimension: str) -> Block:
        """All metrics in each stratum of a dimension."""
        places = self._whole.places
        rows: dict[str, list[int]] = {}
        for at, place in enumerate(places):
            if dimension in place.dimensions:
                rows.setdefault(place.dimensions[dimension], []).append(at)
        names = sorted(rows)
        sizes = {name: len({places[at].unit for at in rows[name]}) for name in names}
        metrics = {}
        for column, metric in enumerate(self._whole.metrics):
            values = self._column(column)
            found = {name: self._estimate(self._units(values, rows[name])) for name in names}
            spread = spread_of_strata([one.mean for one in found.values()])
            metrics[str(metric)] = {
                "strata": {name: self._block(one) for name, one in found.items()},
                "stratum_average": spread.average,
                "cross_stratum_variance": spread.variance,
            }
        return {
            "units": sizes,
            "without": len(places) - sum(map(len, rows.values())),
            "notes": {name: note for name in names if (note := stratum_note(sizes[name]))},
            "metrics": metrics,
        }

    def _column(self, column: int) -> list[float | None]:
        values = self._whole.values[:, column].tolist()
        return [None if value != value else value for value in values]

    def _units(self, values: Sequence[float | None], rows: Sequence[int]) -> Units:
        places = self._whole.places
        return Units.of_values((places[at].unit, values[at]) for at in rows)

    def _turns(self, values: Sequence[float | None]) -> Units:
        """Each turn's mean, a value a turn."""
        turns: dict[tuple[str, int | None], list[float]] = {}
        for place, value in zip(self._whole.places, values, strict=True):
            if value is not None:
                turns.setdefault((place.unit, place.turn), []).append(value)
        return Units.of_values(
            (unit, fsum(found) / len(found)) for (unit, _), found in turns.items()
        )

    def _shown(self, units: Units) -> Block:
        return self._block(self._estimate(units))

    def _estimate(self, units: Units) -> Estimate:
        if self._intervals is None:
            return Estimate(units.figure, units.n, units.size, units.sd, None, None, "percentile")
        method, confidence, count, seed = self._intervals
        if method == "wilson" and not (units.binary and units.single):
            method = "percentile"
        return estimate(units, method, confidence=confidence, resample_count=count, seed=seed)

    def _block(self, found: Estimate) -> Block:
        return {
            "mean": found.mean,
            "n": found.n,
            "sd": found.sd,
            "ci_low": found.ci_low,
            "ci_high": found.ci_high,
            "method": None if self._intervals is None else found.method,
            "note": found.note,
        }
