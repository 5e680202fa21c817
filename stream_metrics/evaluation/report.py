"""The block ``retrieval`` of a report: means with intervals, by strategy and by stratum."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

import numpy as np

from stream_metrics.evaluation.estimates import (
    Block,
    Estimates,
    Intervals,
    dimensions_of,
)
from stream_metrics.evaluation.scoring import Place, Scored
from stream_metrics.metrics.ranking.batch import STRATEGIES, Bools, Floats, Ints
from stream_metrics.metrics.ranking.names import RankedMetric
from stream_metrics.statistics.units import Units


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
    split = dimensions_of(whole.places, dimensions, "query")
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
        "strata": {name: figures.of_strata(name) for name in split},
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


class _Figures:
    """What a report says of each metric."""

    def __init__(self, whole: _All, intervals: Intervals | None) -> None:
        self._whole = whole
        self._estimates = Estimates(whole.places, intervals)
        self._by_events = any(place.turn is not None for place in whole.places)

    def of_metric(self, column: int, strategies: Sequence[str]) -> Block:
        """All figures of one metric."""
        places, relevant = self._whole.places, self._whole.with_relevant[:, column].tolist()
        known = [at for at, place in enumerate(places) if place.strategy is not None]
        with_relevant = [at for at in known if relevant[at]]
        values, over = self._column(column), self._estimates.over
        block = over(values)
        beside = over(values, with_relevant) if len(with_relevant) < len(known) else block
        block = {
            **block,
            "queries_with_relevant": len(with_relevant),
            "queries_without_relevant": len(known) - len(with_relevant),
            "over_queries_with_relevant": dict(beside),
        }
        if self._by_events:
            block["macro_turn"] = self._estimates.of_units(self._turns(values))
        if len(strategies) > 1:
            block["by_strategy"] = {
                name: over(
                    values, [at for at, place in enumerate(places) if place.strategy == name]
                )
                for name in strategies
            }
        return block

    def of_strata(self, dimension: str) -> Block:
        """All metrics in each stratum of a dimension."""
        columns = {
            str(metric): self._column(column) for column, metric in enumerate(self._whole.metrics)
        }
        return self._estimates.of_strata(dimension, columns)

    def _column(self, column: int) -> Floats:
        return self._whole.values[:, column]

    def _turns(self, values: Floats) -> Units:
        """Each turn's mean, a value a turn."""
        turns: dict[tuple[str, int | None], list[float]] = {}
        for place, value in zip(self._whole.places, values.tolist(), strict=True):
            if value == value:
                turns.setdefault((place.unit, place.turn), []).append(value)
        return Units.of_values(
            (unit, fsum(found) / len(found)) for (unit, _), found in turns.items()
        )
