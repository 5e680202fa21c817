"""Judged rankings, and many of them as arrays.

A score must not depend on what else is scored beside it. Rows are therefore padded with zeros, and
sums run along a row from its first rank on: what stands behind a row's end cannot change its bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_metrics.metrics.ranking.subtopics import Subtopics

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Strategy = Literal["qrels", "custom", "judged", "token_overlap"]
STRATEGIES: Final[tuple[Strategy, ...]] = ("qrels", "custom", "judged", "token_overlap")

UNJUDGED: Final = float("nan")
_NOT_KNOWN: Final[Mapping[str, Sequence[float] | None]] = MappingProxyType({})
CELLS: Final = 1_000_000
"""Ranks that one batch holds at most, padding included (but for one ranking longer than that)."""


class Judged(NamedTuple):
    """One ranking with the grade of each result.

    Attributes:
        grades: By rank; NaN where a result has no judgement, below 0 counts as 0. A repeat has
            the grade of its document.
        truth: The grades of all relevant documents, retrieved or not, in any order; zeros and less
            take no part. None: known only as far as it was retrieved.
        strategy: Where the grades come from.
        rel: The grade from which a document is relevant, where a metric does not say.
        graded: Whether NDCG takes the grades as gains by default.
        boolean: Whether grades are only 0 and 1, so that a metric's own ``rel`` does not apply.
        earlier: By rank, how many results above are the same document. None: no repeats.
        before: By rank, whether an earlier search of the turn returned the document. None: never.
        similarities: By formula, the largest similarity of an expected term to the one at each
            rank. No entry: not known.
        subtopics: What each result covers, for qrels that judge by subtopic.
    """

    grades: Sequence[float]
    truth: Sequence[float] | None
    strategy: Strategy = "qrels"
    rel: float = 1.0
    graded: bool = True
    boolean: bool = False
    earlier: Sequence[int] | None = None
    before: Sequence[bool] | None = None
    similarities: Mapping[str, Sequence[float] | None] = _NOT_KNOWN
    subtopics: Subtopics | None = None


@dataclass(frozen=True, slots=True)
class Rankings:
    """A batch of judged rankings: a row a ranking, a column a rank (see ``Judged``).

    ``grades`` has no negative and no NaN; ``gains`` are the grades with those of repeats taken
    away: a document counts once. ``repeats`` counts the same document above; ``truth`` is sorted
    from the largest grade down and padded with 0, and a row of it is empty where ``truth_known`` is
    False; ``lengths`` counts results; ``similarities`` are 0 in rows that ``similarities_known``
    says have none.
    """

    grades: Floats
    gains: Floats
    judged: Bools
    repeats: Ints
    before: Bools
    lengths: Ints
    truth: Floats
    truth_known: Bools
    rel: Floats
    graded: Bools
    boolean: Bools
    similarities: Mapping[str, Floats]
    similarities_known: Mapping[str, Bools]
    subtopics: Sequence[Subtopics | None]

    def retrieved(self, k: int | None) -> Ints:
        """Results in the top k of each ranking, in all of it if k is None."""
        return self.lengths if k is None else np.minimum(self.lengths, k)

    def thresholds(self, rel: float | None) -> Floats:
        """The grade from which a document is relevant, a row."""
        chosen = self.rel if rel is None else np.full(len(self.rel), float(rel))
        return np.where(self.boolean, 1.0, chosen)

    def relevant_documents(self, rel: float | None) -> Ints:
        """Documents of each ground truth from the threshold on; 0 where it is not known."""
        cells = self.truth >= self.thresholds(rel)[:, None]
        return np.asarray(np.count_nonzero(cells, axis=1), dtype=np.int64)

    def condensed(self) -> Rankings:
        """The same without the results that nobody judged; the others move up."""
        order = np.argsort(~self.judged, axis=1, kind="stable")
        lengths = self.judged.sum(axis=1)
        cells = np.arange(lengths.max(initial=0)) < lengths[:, None]

        def moved(values: NDArray[Any]) -> NDArray[Any]:
            kept = np.take_along_axis(values, order, axis=1)[:, : cells.shape[1]]
            return np.where(cells, kept, np.zeros((), values.dtype))

        return replace(
            self,
            grades=moved(self.grades),
            gains=moved(self.gains),
            judged=moved(self.judged),
            repeats=moved(self.repeats),
            before=moved(self.before),
            lengths=lengths,
            similarities={name: moved(values) for name, values in self.similarities.items()},
            subtopics=[
                None if one is None else one.only(judged)
                for one, judged in zip(self.subtopics, self.judged.tolist(), strict=True)
            ],
        )


def rankings(rows: Sequence[Judged]) -> Rankings:
    """Lay judged rankings out as arrays.

    >>> batch = rankings([Judged([3.0, UNJUDGED], [3.0, 1.0]), Judged([], [2.0])])
    >>> batch.grades.tolist(), batch.judged.tolist(), batch.truth.tolist()
    ([[3.0, 0.0], [0.0, 0.0]], [[True, False], [False, False]], [[3.0, 1.0], [2.0, 0.0]])
    """
    count = len(rows)
    lengths = np.fromiter((len(row.grades) for row in rows), np.int64, count)
    raw = np.fromiter(chain.from_iterable(row.grades for row in rows), np.float64, lengths.sum())
    grades, judged = _grades(raw, lengths)
    repeats = np.zeros(grades.shape, np.int64)
    before = np.zeros(grades.shape, np.bool_)
    for at, row in enumerate(rows):
        if row.earlier is not None:
            repeats[at, : len(row.earlier)] = row.earlier
        if row.before is not None:
            before[at, : len(row.before)] = row.before
    truths = [row.truth if row.truth is not None else () for row in rows]
    of_truth = np.fromiter((len(truth) for truth in truths), np.int64, count)
    known = np.fromiter(chain.from_iterable(truths), np.float64, of_truth.sum())
    names = sorted({name for row in rows for name in row.similarities})
    return Rankings(
        grades=grades,
        gains=np.where(repeats > 0, 0.0, grades),
        judged=judged,
        repeats=repeats,
        before=before,
        lengths=lengths,
        truth=_truth(known, of_truth),
        truth_known=np.fromiter((row.truth is not None for row in rows), np.bool_, count),
        rel=np.fromiter((row.rel for row in rows), np.float64, count),
        graded=np.fromiter((row.graded for row in rows), np.bool_, count),
        boolean=np.fromiter((row.boolean for row in rows), np.bool_, count),
        similarities={name: _similarities(rows, name, grades.shape) for name in names},
        similarities_known={
            name: np.array([row.similarities.get(name) is not None for row in rows])
            for name in names
        },
        subtopics=[row.subtopics for row in rows],
    )


class Columns(NamedTuple):
    """Rankings behind one another: grades by rank, and those of the ground truths.

    ``lengths`` and ``truth_lengths`` say how many belong to each ranking; the rest is as in
    ``Judged``.
    """

    grades: Floats
    lengths: Ints
    truth: Floats
    truth_lengths: Ints


def rankings_of(columns: Columns, *, rel: float = 1.0, graded: bool = True) -> Rankings:
    """Lay rankings without repeats out as arrays, all judged by whole ground truths.

    >>> parts = [3.0, UNJUDGED], [2, 0], [3.0, 1.0, 2.0], [2, 1]
    >>> columns = Columns(*map(np.array, parts))
    >>> rows = [Judged([3.0, UNJUDGED], [3.0, 1.0]), Judged([], [2.0])]
    >>> rankings_of(columns).truth.tolist() == rankings(rows).truth.tolist()
    True
    """
    count = len(columns.lengths)
    grades, judged = _grades(columns.grades, columns.lengths)
    return Rankings(
        grades=grades,
        gains=grades,
        judged=judged,
        repeats=np.zeros(grades.shape, np.int64),
        before=np.zeros(grades.shape, np.bool_),
        lengths=columns.lengths,
        truth=_truth(columns.truth, columns.truth_lengths),
        truth_known=np.ones(count, np.bool_),
        rel=np.full(count, rel),
        graded=np.full(count, graded),
        boolean=np.zeros(count, np.bool_),
        similarities={},
        similarities_known={},
        subtopics=[None] * count,
    )


def _grades(raw: Floats, lengths: Ints) -> tuple[Floats, Bools]:
    """The grades of rankings as rows, and which of them are judged."""
    laid = _laid(raw, lengths, UNJUDGED)
    judged = ~np.isnan(laid)
    return np.where(judged, np.maximum(laid, 0.0), 0.0), judged


def _truth(values: Floats, lengths: Ints) -> Floats:
    laid = np.maximum(_laid(values, lengths, 0.0), 0.0)
    return np.ascontiguousarray(np.sort(laid, axis=1)[:, ::-1])


def _laid(values: Floats, lengths: Ints, rest: float) -> Floats:
    """Rows of these lengths, with ``rest`` behind their ends."""
    width = int(lengths.max(initial=0))
    if len(values) == width * len(lengths):
        return values.reshape(len(lengths), width)
    laid = np.full((len(lengths), width), rest)
    laid[np.arange(width) < lengths[:, None]] = values
    return laid


def _similarities(rows: Sequence[Judged], name: str, shape: tuple[int, ...]) -> Floats:
    laid = np.zeros(shape)
    for at, row in enumerate(rows):
        values = row.similarities.get(name)
        if values is not None:
            laid[at, : len(values)] = values
    return laid


def batches(rows: Sequence[Judged], cells: int = CELLS) -> Iterator[Rankings]:
    """Consecutive batches of all rows, each of bounded size."""
    start = width = 0
    for at, row in enumerate(rows):
        own = max(len(row.grades), len(row.truth or ()), 1)
        if at > start and max(width, own) * (at - start + 1) > cells:
            yield rankings(rows[start:at])
            start, width = at, 0
        width = max(width, own)
    if start < len(rows):
        yield rankings(rows[start:])
