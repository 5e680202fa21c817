"""How far a model's grades agree with people's, and when that changed.

Grades of one conversation depend on each other, so intervals are made by leaving out one
conversation after the other (a jackknife) and Student's t with one degree of freedom less than
conversations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_metrics.core.alerts.figures import Figure, Normal, Shift
from stream_metrics.core.alerts.shifts import Added, course
from stream_metrics.lab.statistics.distributions import t_quantile

GRADES: Final = 5
CONFIDENCE: Final = 0.95
REFERENCE: Final = 0.4  # of the conversations show the usual bias
LEAST_REFERENCE: Final = 25  # conversations
THRESHOLD: Final = 11.0  # nats; in tests, about 1 of 20 series without drift reaches it
LEAST_VARIANCE: Final = 0.05

Table = NDArray[np.int64]
"""Counts by the grade of people (rows) and of the model (columns)."""


class Pair(NamedTuple):
    """Two grades of one result; ``time_us`` is the time of its search, in Unix microseconds."""

    conversation: str
    time_us: int
    agent: str
    release: str
    human: int
    model: int


class Interval(NamedTuple):
    """A figure with its interval; None where there is none: of one conversation, or undefined."""

    value: float | None
    low: float | None
    high: float | None


class Drift(NamedTuple):
    """That the bias has changed: since the conversation at ``since_us``, evident from the one at
    ``evident_us`` on. ``before`` and ``after`` are the biases, in grades."""

    since_us: int
    evident_us: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a group of pairs.

    Attributes:
        kappa: Cohen's κ, 1 for equal grades, 0 for what chance gives.
        weighted: κ with quadratic weights, by which near grades count more than far ones.
        good_kappa: Cohen's κ of good or not, on which the width of combined estimates depends.
        bias: The model's grade less people's, on average, in grades, -4 to 4.
        good: The share that the model finds good less that of people, -1 to 1.
        by_grade: For each grade of people, the number of results and the model's bias there.
        drift: When the bias has changed; None if there is no evidence of it.
        judged: The number of conversations that drift was looked for in; 0 if there were too few.
    """

    pairs: int
    conversations: int
    table: Table
    kappa: Interval
    weighted: Interval
    good_kappa: Interval
    bias: Interval
    good: Interval
    by_grade: Sequence[tuple[int, float | None]]
    drift: Drift | None
    judged: int


def agreement(pairs: Sequence[Pair], good_gain: int) -> Agreement:
    """The agreement of these pairs; ``good_gain`` is the lowest gain of a good result."""
    by_conversation: dict[str, Table] = defaultdict(_empty)
    for pair in pairs:
        by_conversation[pair.conversation][pair.human, pair.model] += 1
    tables = list(by_conversation.values())
    table = sum(tables, _empty())
    grades = np.arange(GRADES)
    beyond = grades[None, :] - grades[:, None]
    found = (grades >= good_gain).astype(np.int64)
    of_good = found[None, :] - found[:, None]
    drift, judged = drift_of(pairs)
    return Agreement(
        len(pairs),
        len(tables),
        table,
        _interval(tables, table, lambda t: _kappa(t, (beyond != 0).astype(float))),
        _interval(tables, table, lambda t: _kappa(t, (beyond**2).astype(float))),
        _interval(tables, table, lambda t: _kappa_of_good(t, good_gain)),
        _interval(tables, table, lambda t: _mean(t, beyond)),
        _interval(tables, table, lambda t: _mean(t, of_good)),
        [(int(row.sum()), _mean(row, beyond[grade])) for grade, row in enumerate(table)],
        drift,
        judged,
    )


def _empty() -> Table:
    return np.zeros((GRADES, GRADES), dtype=np.int64)


def _mean(counts: Table, values: Table) -> float | None:
    total = int(counts.sum())
    return float((counts * values).sum() / total) if total else None


def _kappa(table: Table, weights: NDArray[np.float64]) -> float | None:
    """1 less the weight of disagreements, as a share of what chance would give.

    >>> _kappa(np.array([[20, 5], [10, 15]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    0.4
    """
    total = table.sum()
    if not total:
        return None
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    by_chance = float((weights * expected).sum())
    return 1 - float((weights * table).sum()) / by_chance if by_chance else None


def _kappa_of_good(table: Table, good_gain: int) -> float | None:
    by_people = np.add.reduceat(table, [0, good_gain], axis=0)
    found = np.add.reduceat(by_people, [0, good_gain], axis=1)
    return _kappa(found, 1.0 - np.eye(2))


def _interval(
    tables: Sequence[Table], table: Table, figure: Callable[[Table], float | None]
) -> Interval:
    value, n = figure(table), len(tables)
    without = [figure(table - one) for one in tables]
    known = [each for each in without if each is not None]
    if value is None or n < 2 or len(known) < n:
        return Interval(value, None, None)
    mean = sum(known) / n
    error = sqrt((n - 1) / n * sum((each - mean) ** 2 for each in known))
    half = t_quantile((1 + CONFIDENCE) / 2, n - 1) * error
    return Interval(value, value - half, value + half)


_UP, _DOWN = (
    Figure(
        "bias",
        "beyond",
        "pairs",
        sign,
        (Shift(0.0, 0.5), Shift(0.0, 1.0)),
        Normal(LEAST_VARIANCE, 0, 0),
    )
    for sign in (1, -1)
)


def drift_of(pairs: Iterable[Pair]) -> tuple[Drift | None, int]:
    """When the bias has changed, and in how many conversations that was looked for.

    The usual bias and its variance are those of the first two fifths of the conversations, in order
    of time. From there on, evidence that it is half a grade or a whole one higher or lower adds up
    as evidence of alerts does (``core/alerts/shifts.py``), a conversation at a time.
    """
    sums: dict[str, tuple[int, int, int]] = {}
    for pair in pairs:
        time_us, beyond, number = sums.get(pair.conversation, (pair.time_us, 0, 0))
        sums[pair.conversation] = (
            min(time_us, pair.time_us),
            beyond + pair.model - pair.human,
            number + 1,
        )
    units = sorted(sums.values())
    reference = max(LEAST_REFERENCE, int(REFERENCE * len(units)))
    first, rest = units[:reference], units[reference:]
    if not rest:
        return None, 0
    usual = _bias(first)
    spread = sum((beyond - usual * number) ** 2 for _, beyond, number in first)
    variance = max(LEAST_VARIANCE, spread / sum(number for *_, number in first))
    found = [at for figure in (_UP, _DOWN) if (at := _first(figure, usual, variance, rest))]
    if not found:
        return None, len(units)
    evident, began = min(found)
    after = rest[began:]
    return Drift(rest[began][0], rest[evident][0], usual, _bias(after)), len(units)


def _first(
    figure: Figure, usual: float, variance: float, units: Sequence[tuple[int, int, int]]
) -> tuple[int, int] | None:
    """The unit at which evidence reaches its threshold, and the one at which it began to grow."""
    weights = [figure.weights(shift, usual, variance) for shift in figure.shifts]
    added = (
        Added(tuple((up * beyond + down * number) / THRESHOLD for up, down in weights), number)
        for _, beyond, number in units
    )
    for at, (values, lasting) in enumerate(course(figure, added)):
        grown = [n for value, n in zip(values, lasting, strict=True) if value > 1]
        if grown:
            return at, at - max(grown) + 1
    return None


def _bias(units: Sequence[tuple[int, int, int]]) -> float:
    return sum(beyond for _, beyond, _ in units) / sum(number for *_, number in units)
