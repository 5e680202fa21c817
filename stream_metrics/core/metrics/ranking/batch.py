"""Judged rankings, and batches of them as arrays.

A score must not depend on the other rankings of its batch. Rows are therefore padded with zeros and
summed from the first rank on, so that the padding cannot change a bit of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_metrics.core.metrics.ranking.subtopics import Subtopics

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Strategy = Literal["qrels", "custom", "judged", "token_overlap"]
STRATEGIES: Final[tuple[Strategy, ...]] = ("qrels", "custom", "judged", "token_overlap")

UNJUDGED: Final = float("nan")
_NOT_KNOWN: Final[Mapping[str, Sequence[float] | None]] = MappingProxyType({})
CELLS: Final = 1_000_000
"""The most ranks in one batch, padding included, unless a single ranking is longer."""


class Judged(NamedTuple):
    """One ranking with the grade of each result.

    Attributes:
        grades: The grades by rank; NaN for results without a judgement. Negative grades count as
            0. A repeat has the grade of its document.
        truth: The grades of all relevant documents, retrieved or not, in any order; grades of 0
            and below are ignored. None: only the retrieved documents are known.
        strategy: The source of the grades.
        rel: The lowest relevant grade, for metrics that do not set their own.
        graded: Whether NDCG uses the grades as gains by default.
        boolean: Whether grades are only 0 and 1, so that a metric's own ``rel`` does not apply.
        earlier: By rank, how many results above are the same document. None: no repeats.
        before: By rank, whether an earlier search of the turn returned the document. None: never.
        similarities: By formula, the largest similarity of an expected term to the one at each
            rank. A missing entry is unknown.
        subtopics: The subtopics that each result covers, for qrels that judge by subtopic.
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
    """A batch of judged rankings, one row per ranking and one column per rank (see ``Judged``).

    ``grades`` contains neither negative values nor NaN. ``gains`` are the grades with those of
    repeats set to 0, so that a document counts once. ``repeats`` counts earlier occurrences of the
    same document. ``truth`` is sorted in descending order and padded with 0; a row is 0 if
    ``truth_known`` is False. ``lengths`` counts results. ``similarities`` are 0 in rows for which
    ``similarities_known`` is False.
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
        """The number of results in the top k of each ranking; all results if k is None."""
        return self.lengths if k is None else np.minimum(self.lengths, k)

    def thresholds(self, rel: float | None) -> Floats:
        """The lowest relevant grade of each row."""
        chosen = self.rel if rel is None else np.full(len(self.rel), float(rel))
        return np.where(self.boolean, 1.0, chosen)

    def relevant_documents(self, rel: float | None) -> Ints:
        """The number of relevant documents in each ground truth; 0 if it is unknown."""
        cells = self.truth >= self.thresholds(rel)[:, None]
        return np.asarray(np.count_nonzero(cells, axis=1), dtype=np.int64)

    def condensed(self) -> Rankings:
        """A copy without the unjudged results; the others move up."""
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
    """Arrange judged rankings as arrays.

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
    """Concatenated rankings: grades by rank, and the grades of the ground truths.

    ``lengths`` and ``truth_lengths`` are the number of grades of each ranking. Grades are as in
    ``Judged``.
    """

    grades: Floats
    lengths: Ints
    truth: Floats
    truth_lengths: Ints


def rankings_of(columns: Columns, *, rel: float = 1.0, graded: bool = True) -> Rankings:
    """Arrange rankings without repeats, all with complete ground truths, as arrays.

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
    """The grades of rankings as padded rows, and which cells are judged."""
    laid = _laid(raw, lengths, UNJUDGED)
    judged = ~np.isnan(laid)
    return np.where(judged, np.maximum(laid, 0.0), 0.0), judged


def _truth(values: Floats, lengths: Ints) -> Floats:
    laid = np.maximum(_laid(values, lengths, 0.0), 0.0)
    return np.ascontiguousarray(np.sort(laid, axis=1)[:, ::-1])


def _laid(values: Floats, lengths: Ints, rest: float) -> Floats:
    """Rows of these lengths, padded with ``rest``."""
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
    """Divide the rows into consecutive batches of bounded size."""
    start = width = 0
    for at, row in enumerate(rows):
        own = max(len(row.grades), len(row.truth or ()), 1)
        if at > start and max(width, own) * (at - start + 1) > cells:
            yield rankings(rows[start:at])
            start, width = at, 0
        width = max(width, own)
    if start < len(rows):
        yield rankings(rows[start:])
