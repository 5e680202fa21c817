"""The block ``retrieval`` of a report: means with intervals, by strategy and by stratum."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np

from stream_metrics.evaluation.beside import Begin, here
from stream_metrics.evaluation.estimates import (
    Block,
    Dimensions,
    Estimates,
    Intervals,
    Placed,
    dimensions_of,
)
from stream_metrics.evaluation.scoring import Scored
from stream_metrics.metrics.ranking.batch import STRATEGIES, Bools, Floats, Strategy


class _Place(NamedTuple):
    unit: str
    dimensions: Mapping[str, str]


class _All(NamedTuple):
    """All rankings in columns: a row a ranking.

    ``turns``: None where rankings are of files; ``retrieved``, ``judged``: of all together.
    """

    unit: str
    metrics: Sequence[str]
    places: Sequence[Placed]
    strategies: Sequence[Strategy | None]
    turns: Sequence[int] | None
    values: Floats
    with_relevant: Bools
    retrieved: int
    judged: int


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
    split = dimensions_of(whole.places, dimensions, "query")
    return _begun(whole, intervals, split, missing, dropped)()


class Retrieval:
    """Takes rows of ``queries.jsonl`` of events, and makes the block ``retrieval`` of them.

    Neither the order of the rows nor how they were cut into files changes a bit of it. Of a row its
    scores are kept, and one number a metric, a conversation and a turn.

    Args:
        metrics: The names of a row's scores, in their order.
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = tuple(metrics)
        self._places: list[_Place] = []
        self._strategies: list[Strategy | None] = []
        self._turns = array("q")
        self._values = array("d")
        self._with_relevant = bytearray()
        self._all_relevant = b"\1" * len(self._metrics)
        self._retrieved = self._judged = 0
        self._dimensions = Dimensions()

    @property
    def dimensions(self) -> set[str]:
        """What some row can be split by."""
        return self._dimensions.names

    def add(self, row: Mapping[str, Any], without: Sequence[int]) -> None:
        """Take a row.

        Args:
            row: As ``score_searches`` makes it.
            without: The places of the metrics to which nothing is relevant.

        Raises:
            KeyError, TypeError, IndexError, ValueError: This is none, or of other metrics.
        """
        scores: Mapping[str, Any] = row["scores"]
        if tuple(scores) != self._metrics:
            raise ValueError(f"it has other metrics: {', '.join(scores) or 'none'}")
        strategy: Strategy | None = row["strategy"]
        if strategy is not None and strategy not in STRATEGIES:
            raise ValueError(f"there is no strategy {strategy!r}")
        relevant: bytes | bytearray = self._all_relevant
        if without:
            relevant = bytearray(relevant)
            for at in without:
                relevant[at] = 0
        values: Collection[Any] = scores.values()
        if None in values:
            values = [nan if value is None else value for value in values]
        place = _Place(row["conversation_id"], self._dimensions.of(row))
        if self._places and self._places[-1] == place:
            place = self._places[-1]
        self._turns.append(row["turn"])
        self._values.extend(values)
        self._with_relevant += relevant
        self._places.append(place)
        self._strategies.append(strategy and STRATEGIES[STRATEGIES.index(strategy)])
        self._retrieved += row["n_retrieved"]
        self._judged += row["n_judged"]

    def block(
        self,
        *,
        intervals: Intervals | None = Intervals(),  # noqa: B008 - a value, never changed
        dimensions: Sequence[str] | None = None,
    ) -> Block:
        """What ``begun`` makes, here and now."""
        return self.begun(intervals=intervals, dimensions=dimensions)()

    def begun(
        self,
        *,
        intervals: Intervals | None = Intervals(),  # noqa: B008 - a value, never changed
        dimensions: Sequence[str] | None = None,
        begin: Begin = here,
    ) -> Callable[[], Block]:
        """Begin the block; what it gives back makes it of what was begun and the rest.

        Args:
            intervals: How to make them, by resampling conversations. None: no bounds.
            dimensions: What to split by. None: each dimension with 2 to ``MOST_STRATA`` values, the
                language first.
            begin: Takes what can be computed beside the rest.

        Raises:
            UnknownDimension: No search has that dimension.
        """
        shape = (len(self._places), len(self._metrics))
        whole = _All(
            "conversation",
            self._metrics,
            self._places,
            self._strategies,
            self._turns,
            np.frombuffer(self._values, dtype=np.float64).reshape(shape),
            np.frombuffer(self._with_relevant, dtype=np.bool_).reshape(shape),
            self._retrieved,
            self._judged,
        )
        split = dimensions_of(self._places, dimensions, "search")
        return _begun(whole, intervals, split, begin=begin)


def _together(parts: Sequence[Scored]) -> _All:
    if not parts or any(
        (part.unit, part.metrics) != (parts[0].unit, parts[0].metrics) for part in parts
    ):
        raise ValueError("give one part or more, all with the same unit and the same metrics")
    places = [place for part in parts for place in part.places]
    turns = [-1 if place.turn is None else place.turn for place in places]
    return _All(
        parts[0].unit,
        [str(metric) for metric in parts[0].metrics],
        places,
        [place.strategy for place in places],
        turns if any(turn >= 0 for turn in turns) else None,
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.with_relevant for part in parts]),
        sum(int(part.retrieved.sum()) for part in parts),
        sum(int(part.judged.sum()) for part in parts),
    )


class _Beside(NamedTuple):
    """What is computed beside the rest of a block, by metric or dimension."""

    turns: Callable[[], dict[str, Block]] | None
    strategies: Mapping[Strategy, Callable[[], dict[str, Block]]]
    strata: Sequence[Callable[[], dict[str, Block]]]


def _begun(
    whole: _All,
    intervals: Intervals | None,
    split: Sequence[str],
    missing: int = 0,
    dropped: int = 0,
    begin: Begin = here,
) -> Callable[[], Block]:
    counts = dict.fromkeys(STRATEGIES, 0)
    for strategy in whole.strategies:
        if strategy is not None:
            counts[strategy] += 1
    used = [name for name, count in counts.items() if count]
    estimates = Estimates(whole.places, intervals)
    columns = {name: whole.values[:, at] for at, name in enumerate(whole.metrics)}
    strategies = np.array(
        [-1 if one is None else STRATEGIES.index(one) for one in whole.strategies], dtype=np.int64
    )
    of_strategy = {
        strategy: np.flatnonzero(strategies == STRATEGIES.index(strategy))
        for strategy in (used if len(used) > 1 else ())
    }
    beside = _Beside(
        None if whole.turns is None else begin(estimates.over_turns, columns, whole.turns),
        {
            strategy: begin(estimates.over_each, columns, dict.fromkeys(columns, rows))
            for strategy, rows in of_strategy.items()
        },
        [begin(estimates.of_several, names, columns) for names in estimates.alike(split)],
    )

    def block() -> Block:
        metrics = _metrics(whole, estimates, columns, strategies >= 0, beside)
        strata = {name: one for found in beside.strata for name, one in found().items()}
        return {
            "unit": whole.unit,
            "queries": len(whole.places),
            "queries_missing": missing,
            "queries_dropped": dropped,
            "queries_without_judgement": len(whole.places) - sum(counts.values()),
            "retrieved": whole.retrieved,
            "judged": whole.judged,
            "strategy_used": "mixed" if len(used) > 1 else used[0] if used else None,
            "strategy_counts": counts,
            "metrics": metrics,
            "strata": {name: strata[name] for name in split},
        }

    return block


def _metrics(
    whole: _All,
    estimates: Estimates,
    columns: Mapping[str, Floats],
    known: Bools,
    beside: _Beside,
) -> Block:
    """All figures of each metric; ``known``: which searches something judges."""
    relevant = {
        name: np.flatnonzero(known & whole.with_relevant[:, at])
        for at, name in enumerate(whole.metrics)
    }
    queries = int(known.sum())
    blocks = estimates.over_all(columns)
    fewer = [name for name in columns if len(relevant[name]) < queries]
    over_fewer = estimates.over_each({name: columns[name] for name in fewer}, relevant)
    turns = None if beside.turns is None else beside.turns()
    by_strategy = {strategy: of_it() for strategy, of_it in beside.strategies.items()}
    found = {}
    for name, block in blocks.items():
        found[name] = {
            **block,
            "queries_with_relevant": len(relevant[name]),
            "queries_without_relevant": queries - len(relevant[name]),
            "over_queries_with_relevant": dict(over_fewer.get(name, block)),
        }
        if turns is not None:
            found[name]["macro_turn"] = turns[name]
        if by_strategy:
            found[name]["by_strategy"] = {one: by_strategy[one][name] for one in by_strategy}
    return found
