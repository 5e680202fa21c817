"""Checks of ids, grades and scores that come from callers and not from files.

What means something is taken: whole numbers, fractions, booleans and numpy's scalars are numbers,
and ids may be of any type, but of one only: 1 and "1" would never match. Everything else is a
``ValueError`` that says what it is and what to give instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from math import inf
from numbers import Integral, Number, Real
from typing import Any, Final

import numpy as np

SMALLEST_GRADE: Final = 1e-290
"""The smallest grade above 0: discounts of gains below it would be rounded."""

LARGEST_GRADE: Final = float(np.finfo(np.float64).max)

_TEXT: Final = frozenset({str})
NUMBERS: Final = frozenset({float, int})


def check_ids(*groups: Iterable[object], what: str = "document") -> None:
    """Check that all ids are of one type.

    Raises:
        ValueError: An id is None or NaN, or some ids are texts and others are not.

    >>> check_ids(["a"], ["b"]), check_ids([1], (2, 3))
    (None, None)
    >>> check_ids(["1"], [1])
    Traceback (most recent call last):
    ValueError: the document ids '1' and 1 are of different types and never match; write all as text
    """
    first: dict[str, object] = {}
    for group in groups:
        values = group if isinstance(group, Sequence | Mapping) else [*group]
        if set(map(type, values)) <= _TEXT:
            first.update({"text": next(iter(values))} if values and "text" not in first else {})
            continue
        for value in values:
            if value is None or value != value:
                raise ValueError(f"a {what} id is {value}; leave the {what} out, or give it an id")
            first.setdefault(_kind(value), value)
    if len(first) > 1:
        one, other, *_ = first.values()
        raise ValueError(
            f"the {what} ids {one!r} and {other!r} are of different types and never match; write "
            "all as text"
        )


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, Number | np.bool_) else type(value).__name__


def check_ranking(ranking: object) -> None:
    """Check that a ranking has an order.

    Raises:
        ValueError: It is a text, a dictionary, a set or not a collection.
    """
    if isinstance(ranking, Mapping):
        raise ValueError(
            "a ranking is a list of document ids, the best first, not a dictionary; order its "
            "scores by order_by_score"
        )
    if isinstance(ranking, str | bytes | set | frozenset) or not isinstance(ranking, Iterable):
        raise ValueError(
            f"a ranking is a list of document ids, the best first, not {_shown(ranking)}"
        )


def checked_grades(grades: Mapping[Any, Any]) -> Mapping[Any, float]:
    """Grades by id, as numbers.

    Raises:
        ValueError: It is not a dictionary, or a grade is not a finite number.

    >>> checked_grades({"a": np.float32(0.5), "b": True})
    {'a': 0.5, 'b': 1}
    """
    if not isinstance(grades, Mapping):
        raise ValueError(
            f"judgements are a dictionary of grades by document id, not {_shown(grades)}"
        )
    values = grades.values()
    if set(map(type, values)) <= NUMBERS and all(map(_fits, values)):
        return grades
    return {
        document: number(grade, f"the grade of document {document!r}")
        for document, grade in grades.items()
    }


def checked_scores(scores: Mapping[Any, Any]) -> Mapping[Any, float]:
    """Scores by id, as numbers; they may be infinite.

    Raises:
        ValueError: It is not a dictionary, a score is not a number, or some ids are texts and
            others are not.
    """
    if not isinstance(scores, Mapping):
        raise ValueError(f"a run has a dictionary of scores by document id, not {_shown(scores)}")
    check_ids(scores)
    if set(map(type, scores.values())) <= NUMBERS:
        return scores
    return {
        document: number(score, f"the score of document {document!r}", finite=False)
        for document, score in scores.items()
    }


def number(value: Any, what: str, *, finite: bool = True) -> float:
    """A grade or a score as a number, whole numbers without rounding.

    Raises:
        ValueError: It is not a number, or not ``finite``.
    """
    if isinstance(value, Integral | np.bool_):
        found: float = int(value)
    elif isinstance(value, Real | Decimal):
        found = float(value)
    else:
        remedy = "leave out what has none" if value is None else "give a number"
        raise ValueError(f"{what} is {_shown(value)}; {remedy}")
    if found != found:
        raise ValueError(f"{what} is not a number")
    if finite and not _fits(found):
        raise ValueError(f"{what} is not finite, too large or too near to 0")
    return found


def check_rel(rel: float) -> None:
    """Check the lowest relevant grade; raises ``ValueError`` if it is not a number above 0."""
    if not isinstance(rel, Real) or not 0 < rel < inf:
        raise ValueError(f"rel is {_shown(rel)}; the lowest relevant grade is a number above 0")


def _fits(value: float) -> bool:
    """Whether gains can be computed from a grade in doubles."""
    return not value or SMALLEST_GRADE <= abs(value) <= LARGEST_GRADE


def _shown(value: object) -> str:
    """A value with its type, if that does not show."""
    if value is None or isinstance(value, float | int):
        return repr(value)
    shown = repr(value)
    return f"{shown if len(shown) < 50 else shown[:50] + '…'} ({type(value).__name__})"
