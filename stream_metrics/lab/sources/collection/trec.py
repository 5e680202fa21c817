"""Read TREC runs and qrels.

A line of a run has six fields: query, ``Q0``, document, rank, score, name of the run (which may
contain blanks). The rank does not matter: results are ordered by score, ties by document id, both
descending. A line of qrels has four: query, iteration (or subtopic), document, grade. A line that
begins with ``#`` is a comment, as in trec_eval 10.

Fields are divided at ASCII white space, as trec_eval divides them, or at tabs alone where a line
has exactly as many as it needs: then ids may contain blanks. Elsewhere a blank in an id would shift
the fields behind it. Such a line is refused, for which the fields that are otherwise ignored are
checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isinf, isnan
from pathlib import Path
from typing import Final

from stream_metrics.core.metrics.numerals import read_number
from stream_metrics.core.metrics.ranking.checks import SMALLEST_GRADE
from stream_metrics.core.metrics.ranking.names import NO_LIMIT, GradeLimit
from stream_metrics.core.metrics.ranking.relevance import order_by_score
from stream_metrics.lab.evaluation.collection import Collection
from stream_metrics.lab.sources.collection.lines import (
    BLANKS,
    Line,
    Progress,
    Say,
    only_comments,
    place,
    read_lines,
)
from stream_metrics.lab.sources.unchanged import InputError

RUN: Final = ("query", "Q0", "document", "rank", "score", "run")
QRELS: Final = ("query", "iteration", "document", "grade")

_BLANKS: Final = re.compile(f"[{BLANKS}]+")
_NOT_ZERO: Final = re.compile(r"[^eE]*[1-9]")
_WHOLE: Final = re.compile(r"[+-]?[0-9]+(\.0*)?")
_SECOND: Final = ("Q0", "q0", "0")
_OF_NUMBERS: Final = "+-.0123456789iInN"
"""Characters with which numbers begin, infinities and NaN included."""
EXACT: Final = 2.0**53
"""Up to here, every whole number is a double."""


def read_run(
    path: Path,
    *,
    float32: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
) -> dict[str, list[str]]:
    """Each query's document ids, the best first.

    Args:
        path: A plain, gzip or zstd file.
        float32: Round scores to single precision first, for the same ties as trec_eval.
        progress: Called with the number of lines read.
        say: Told how many lines were passed over.

    Raises:
        InputError: The file cannot be read, a line has other fields or can be read in several ways,
            a rank is not a whole number, a score not a number, or a query has a document twice.
    """
    scores: dict[str, dict[str, float]] = {}
    documents: dict[str, str] = {}
    first: str | None = None
    for line, fields, tabs in _divided(path, RUN, progress, say):
        query, _, document, rank, score = fields[:5]
        if not (rank.isdecimal() and rank.isascii()) and not is_whole(rank):
            raise InputError(
                f"{place(path, line)}: the rank {rank!r} is not a whole number; "
                f"{_remedy(line, RUN)}"
            )
        if first is None:
            first = fields[5]
        if not tabs and (len(fields) > len(RUN) or fields[5][0] in _OF_NUMBERS):
            _check_name(path, line, fields, first)
        of_query = scores.setdefault(query, {})
        if document in of_query:
            raise InputError(
                f"{place(path, line)}: query {query} has document {document} twice; "
                "a run may have each document once per query"
            )
        of_query[documents.setdefault(document, document)] = _score(path, line, score)
    return {query: order_by_score(found, float32=float32) for query, found in scores.items()}


def read_qrels(
    path: Path,
    *,
    subtopics: bool = False,
    limit: GradeLimit = NO_LIMIT,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Collection:
    """The grade of each judged document.

    Args:
        path: A plain, gzip or zstd file.
        subtopics: The second field is a subtopic of the query, and a document has a grade for each.
        limit: The largest grade.
        progress: Called with the number of lines read.
        say: Told how many lines were passed over.

    Raises:
        InputError: The file cannot be read, a line has other fields or can be read in several ways,
            a grade is not a number or too large, or a document is judged twice for the same query
            (and subtopic).
    """
    judgements: dict[str, dict[str, dict[str, float]]] = {}
    for line, fields, _ in _divided(path, QRELS, progress, say, subtopics=subtopics):
        if len(fields) != len(QRELS):
            raise InputError(_other_fields(path, line, QRELS, fields))
        query, subtopic, document, grade = fields
        judged = judgements.setdefault(query, {}).setdefault(subtopic if subtopics else "", {})
        if document in judged:
            hint = (
                "" if subtopics else " (if the second field is a subtopic, give --subtopic-qrels)"
            )
            raise InputError(
                f"{place(path, line)}: document {document} is judged a second time for query "
                f"{query}; keep one judgement{hint}"
            )
        judged[document] = grade_of(path, line, "grade", grade, limit)
    if not judgements:
        raise InputError(f"{path}: there are no qrels in this file{only_comments(path)}")
    if subtopics:
        return Collection(subtopics=judgements)
    return Collection({query: grades[""] for query, grades in judgements.items()})


def _divided(
    path: Path,
    names: tuple[str, ...],
    progress: Progress | None,
    say: Say | None,
    *,
    subtopics: bool = False,
) -> Iterator[tuple[Line, list[str], bool]]:
    """The lines of a file, each with at least as many fields as there are names.

    Also whether tabs alone divide the line. The query, the document and, if blanks divide it, the
    second field are checked.
    """
    for line in read_lines(path, progress, say, comments=True):
        text = line.text
        tabs = text.count("\t") == len(names) - 1
        if tabs:
            fields = [field.strip(BLANKS) for field in text.split("\t")]
        elif text.isascii() and text.isprintable():
            fields = text.split()  # other white space than that of ASCII would divide, too
        else:
            fields = _BLANKS.split(text.strip(BLANKS))
        if len(fields) < len(names):
            raise InputError(_other_fields(path, line, names, fields))
        if not fields[0] or not fields[2]:
            which = names[2] if fields[0] else names[0]
            raise InputError(f"{place(path, line)}: the {which} between the tabs is empty")
        second = fields[1]
        if second not in _SECOND and not (tabs or subtopics or _is_number(second)):
            hint = "" if names is RUN else " (if it is a subtopic, give --subtopic-qrels)"
            raise InputError(
                f"{place(path, line)}: the second field is {second!r}, but Q0 or a number in TREC "
                f"files{hint}; {_remedy(line, names)}"
            )
        yield line, fields, tabs


def _other_fields(path: Path, line: Line, names: tuple[str, ...], fields: list[str]) -> str:
    kind = "run" if names is RUN else "qrels"
    remedy = f"; {_remedy(line, names)}" if len(fields) > len(names) else ""
    return (
        f"{place(path, line)}: a line of a TREC {kind} has {len(names)} fields "
        f"({' '.join(names)}), this one has {len(fields)}{remedy}"
    )


def _remedy(line: Line, names: tuple[str, ...]) -> str:
    if "\r" in line.text:
        return "end lines with a line feed, not with a carriage return alone"
    return f"if an id has a blank, divide the {len(names)} fields by tabs"


def _check_name(path: Path, line: Line, fields: list[str], first: str) -> None:
    """Refuse a line whose rank and score may also be the next two fields or later ones.

    Blanks in an id shift them there. A run whose name is a whole number, the same in each line, is
    accepted: its scores may be whole numbers.
    """
    for at in range(4, len(fields) - 1):
        if is_whole(fields[at]) and _is_number(fields[at + 1]):
            plain = len(fields) == len(RUN) and is_whole(fields[5]) and fields[5] == first
            if plain and "\t" not in line.text:
                return
            raise InputError(
                f"{place(path, line)}: rank and score may be {' '.join(fields[3:5])!r} or "
                f"{' '.join(fields[at : at + 2])!r}; {_remedy(line, RUN)}"
            )


def is_whole(text: str) -> bool:
    """Whether a text is a whole number.

    >>> is_whole("12"), is_whole("-1"), is_whole("1.0"), is_whole("1.5"), is_whole("\u0661")
    (True, True, True, False, False)
    """
    return _WHOLE.fullmatch(text) is not None


def _is_number(text: str) -> bool:
    try:
        read_number(text)
    except ValueError:
        return False
    return True


def grade_of(path: Path, line: Line, name: str, text: str, limit: GradeLimit) -> float:
    """Parse a grade; raises ``InputError`` if it is not a finite number or above the limit."""
    grade = _number(path, line, name, text)
    if isinf(grade):
        raise InputError(f"{place(path, line)}: the {name} {text!r} is not finite")
    if grade and abs(grade) < SMALLEST_GRADE:
        raise InputError(f"{place(path, line)}: the {name} {text!r} is too near to 0 for a double")
    if grade > limit.largest:
        raise InputError(f"{place(path, line)}: {limit.refusal(grade)}")
    return grade


def _score(path: Path, line: Line, text: str) -> float:
    """A score as a double, or as a whole number where doubles would round it."""
    score = _number(path, line, "score", text)
    if -EXACT < score < EXACT:
        return score
    if isinf(score) and "inf" not in text.lower():
        raise InputError(f"{place(path, line)}: the score {text!r} is beyond the range of doubles")
    return int(text) if text.lstrip("+-").isdecimal() else score


def _number(path: Path, line: Line, name: str, text: str) -> float:
    try:
        value = read_number(text)
    except ValueError:
        value = float("nan")
    if isnan(value):
        raise InputError(f"{place(path, line)}: the {name} {text!r} is not a number")
    if not value and _NOT_ZERO.match(text):
        raise InputError(f"{place(path, line)}: the {name} {text!r} is too near to 0 for a double")
    return value
