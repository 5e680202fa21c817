"""The block ``retrieval`` of a report: means with intervals, also by strategy and by stratum."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from math import nan
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from stream_metrics.core.metrics.ranking.batch import STRATEGIES, Bools, Floats, Strategy
from stream_metrics.lab.evaluation.estimates import (
    Block,
    Dimensions,
    Estimates,
    Intervals,
    SampledRow,
    dimensions_of,
)
from stream_metrics.lab.evaluation.scoring import ScoredRankings
from stream_metrics.lab.evaluation.submit import Submit, deferred


class RowKey(NamedTuple):
    unit: str
    dimensions: Mapping[str, str]


_ALL_STRATEGIES: Final[Sequence[Strategy | None]] = (None, *STRATEGIES)


class RetrievalState(msgspec.Struct, array_like=True, frozen=True):
    """What a ``Retrieval`` has taken, to be stored.

    ``kinds`` are dimensions; ``runs`` are units, each with the index of its dimensions and its
    number of rows; ``strategies`` are indexes; ``columns`` are the scores by each metric.
    """

    kinds: list[dict[str, str]]
    runs: list[tuple[str, int, int]]
    strategies: list[int]
    turns: list[int]
    columns: list[bytes]
    with_relevant: bytes
    retrieved: int
    judged: int


class _Table(NamedTuple):
    """All rankings in columns, one row per ranking; ``columns`` has the scores by metric name.

    ``turns`` is None for rankings from files; ``retrieved`` and ``judged`` are totals.
    """

    unit: str
    places: Sequence[SampledRow]
    strategies: Sequence[Strategy | None]
    turns: Sequence[int] | None
    columns: Mapping[str, Floats]
    with_relevant: Bools
    retrieved: int
    judged: int


def retrieval_block(
    parts: Sequence[ScoredRankings],
    *,
    intervals: Intervals | None = Intervals(),  # noqa: B008 - a value, never changed
    dimensions: Sequence[str] | None = None,
    missing: int = 0,
    dropped: int = 0,
) -> Block:
    """Summarise scored rankings. The order of parts and rankings has no effect.

    Args:
        parts: One or more parts with the same unit and metrics.
        intervals: How to compute intervals. None: no bounds.
        dimensions: The dimensions to split by. None: each with 2 to ``MOST_STRATA`` values.
        missing: Queries of the qrels that the run lacks.
        dropped: Queries of the run that the qrels lack.

    Raises:
        UnknownDimension: No ranking has that dimension.
        ValueError: There is no part, the parts differ in unit or metrics, or the interval method
            does not exist.
    """
    whole = _together(parts)
    split = dimensions_of(whole.places, dimensions, "query")
    return _submit_block(whole, intervals, split, missing, dropped)()


class Retrieval:
    """Summarises rows of ``queries.jsonl`` from events into the block ``retrieval``.

    The block is identical whatever the order of the rows and however they were divided among files.
    The scores of each row are kept, and a number for each metric, conversation and turn.

    Args:
        metrics: The names of a row's scores, in order.
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = tuple(metrics)
        self._places: list[RowKey] = []
        self._strategies: list[Strategy | None] = []
        self._turns = array("q")
        self._columns = [array("d") for _ in self._metrics]
        self._with_relevant = bytearray()
        self._all_relevant = b"\1" * len(self._metrics)
        self._retrieved = self._judged = 0
        self._dimensions = Dimensions()

    @property
    def dimensions(self) -> set[str]:
        """The names of all dimensions that some row has."""
        return self._dimensions.names

    def dimensions_of_turns(self) -> dict[tuple[str, int], Mapping[str, str]]:
        """The dimensions of each conversation and turn: those of its first search."""
        found: dict[tuple[str, int], Mapping[str, str]] = {}
        for place, turn in zip(self._places, self._turns, strict=True):
            found.setdefault((place.unit, turn), place.dimensions)
        return found

    def add(self, row: Mapping[str, Any], without: Sequence[int]) -> None:
        """Add a row.

        Args:
            row: A row of ``queries.jsonl``.
            without: The indexes of the metrics for which nothing is relevant
                (``ScoredRankings.without_relevant``).

        Raises:
            KeyError, TypeError, IndexError, ValueError: The row is malformed, or has other metrics.
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
        unit, dimensions = row["conversation_id"], self._dimensions.of(row)
        self._turns.append(row["turn"])
        try:
            for column, value in zip(self._columns, values, strict=True):
                column.append(value)
        except OverflowError as error:
            raise ValueError(f"a score is beyond the range of doubles: {error}") from error
        self._with_relevant += relevant
        self._place(unit, dimensions)
        self._strategies.append(strategy and STRATEGIES[STRATEGIES.index(strategy)])
        self._retrieved += row["n_retrieved"]
        self._judged += row["n_judged"]

    def add_scored(self, scored: ScoredRankings) -> None:
        """Add the rows of searches that have just been scored."""
        for column, own in zip(self._columns, scored.values.T, strict=True):
            column.frombytes(own.tobytes())
        self._with_relevant += (scored.with_relevant | ~scored.known[:, None]).tobytes()
        for place in scored.places:
            assert place.turn is not None
            self._turns.append(place.turn)
            self._strategies.append(place.strategy)
            row = {"dimensions": place.dimensions, "agent": place.agent, "conversation_id": None}
            self._place(place.unit, self._dimensions.of(row))
        self._retrieved += int(scored.retrieved.sum())
        self._judged += int(scored.judged.sum())

    def _place(self, unit: str, dimensions: Mapping[str, str]) -> None:
        place = RowKey(unit, dimensions)
        if self._places and self._places[-1] == place:
            place = self._places[-1]
        self._places.append(place)

    @property
    def state(self) -> RetrievalState:
        """What has been taken, for ``add_state``."""
        runs = [(key, len(list(same))) for key, same in groupby(self._places)]
        kinds = {id(key.dimensions): key.dimensions for key, _ in runs}
        number = {kind: at for at, kind in enumerate(kinds)}
        return RetrievalState(
            [dict(kind) for kind in kinds.values()],
            [(key.unit, number[id(key.dimensions)], count) for key, count in runs],
            [_ALL_STRATEGIES.index(strategy) for strategy in self._strategies],
            self._turns.tolist(),
            [column.tobytes() for column in self._columns],
            bytes(self._with_relevant),
            self._retrieved,
            self._judged,
        )

    def add_state(self, state: RetrievalState) -> None:
        """Add the rows that another ``Retrieval`` with the same metrics has taken."""
        kinds = [self._dimensions.intern(kind) for kind in state.kinds]
        for unit, kind, count in state.runs:
            self._places += [RowKey(unit, kinds[kind])] * count
        self._strategies += [_ALL_STRATEGIES[at] for at in state.strategies]
        self._turns.extend(state.turns)
        for column, own in zip(self._columns, state.columns, strict=True):
            column.frombytes(own)
        self._with_relevant += state.with_relevant
        self._retrieved += state.retrieved
        self._judged += state.judged

    def block(
        self,
        *,
        intervals: Intervals | None = Intervals(),  # noqa: B008 - a value, never changed
        dimensions: Sequence[str] | None = None,
    ) -> Block:
        """The block, computed in this process; arguments as for ``submit_block``."""
        return self.submit_block(intervals=intervals, dimensions=dimensions)()

    def submit_block(
        self,
        *,
        intervals: Intervals | None = Intervals(),  # noqa: B008 - a value, never changed
        dimensions: Sequence[str] | None = None,
        submit: Submit = deferred,
    ) -> Callable[[], Block]:
        """Submit the costly calls and return a function that completes the block.

        Args:
            intervals: How to compute intervals, by resampling conversations. None: no bounds.
            dimensions: The dimensions to split by. None: each with 2 to ``MOST_STRATA`` values, the
                language first.
            submit: Takes the calls that may be computed in another process.

        Raises:
            UnknownDimension: No search has that dimension.
        """
        shape = (len(self._places), len(self._metrics))
        whole = _Table(
            "conversation",
            self._places,
            self._strategies,
            self._turns,
            {
                name: np.frombuffer(column, dtype=np.float64)
                for name, column in zip(self._metrics, self._columns, strict=True)
            },
            np.frombuffer(self._with_relevant, dtype=np.bool_).reshape(shape),
            self._retrieved,
            self._judged,
        )
        split = dimensions_of(self._places, dimensions, "search")
        return _submit_block(whole, intervals, split, submit=submit)


def _together(parts: Sequence[ScoredRankings]) -> _Table:
    if not parts or any(
        (part.unit, part.metrics) != (parts[0].unit, parts[0].metrics) for part in parts
    ):
        raise ValueError("give one part or more, all with the same unit and the same metrics")
    places = [place for part in parts for place in part.places]
    turns = [-1 if place.turn is None else place.turn for place in places]
    return _Table(
        parts[0].unit,
        places,
        [place.strategy for place in places],
        turns if any(turn >= 0 for turn in turns) else None,
        {
            str(metric): np.concatenate([part.values[:, at] for part in parts])
            for at, metric in enumerate(parts[0].metrics)
        },
        np.concatenate([part.with_relevant for part in parts]),
        sum(int(part.retrieved.sum()) for part in parts),
        sum(int(part.judged.sum()) for part in parts),
    )


class _Pending(NamedTuple):
    """The submitted parts of a block."""

    turns: Callable[[], dict[str, Block]] | None
    strategies: Mapping[Strategy, Callable[[], dict[str, Block]]]
    strata: Sequence[Callable[[], dict[str, Block]]]


def _submit_block(
    whole: _Table,
    intervals: Intervals | None,
    split: Sequence[str],
    missing: int = 0,
    dropped: int = 0,
    submit: Submit = deferred,
) -> Callable[[], Block]:
    counts = dict.fromkeys(STRATEGIES, 0)
    for strategy in whole.strategies:
        if strategy is not None:
            counts[strategy] += 1
    used = [name for name, count in counts.items() if count]
    estimates = Estimates(whole.places, intervals)
    columns = whole.columns
    strategies = np.array(
        [-1 if one is None else STRATEGIES.index(one) for one in whole.strategies], dtype=np.int64
    )
    of_strategy = {
        strategy: np.flatnonzero(strategies == STRATEGIES.index(strategy))
        for strategy in (used if len(used) > 1 else ())
    }
    beside = _Pending(
        None if whole.turns is None else submit(estimates.over_turns, columns, whole.turns),
        {
            strategy: submit(estimates.over_own_rows, columns, dict.fromkeys(columns, rows))
            for strategy, rows in of_strategy.items()
        },
        [
            submit(estimates.of_several, names, columns)
            for names in estimates.same_partitions(split)
        ],
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
    whole: _Table,
    estimates: Estimates,
    columns: Mapping[str, Floats],
    known: Bools,
    beside: _Pending,
) -> Block:
    """All figures of each metric; ``known`` marks the searches that something judges."""
    relevant = {
        name: np.flatnonzero(known & whole.with_relevant[:, at]) for at, name in enumerate(columns)
    }
    queries = int(known.sum())
    blocks = estimates.over_all(columns)
    fewer = [name for name in columns if len(relevant[name]) < queries]
    over_fewer = estimates.over_own_rows({name: columns[name] for name in fewer}, relevant)
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
