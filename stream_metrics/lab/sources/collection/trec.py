"""Read TREC runs and qrels.

A line of a run has six fields: query, ``Q0``, document, rank, score, name of the run (which may
contain blanks). The rank is ignored: results are ordered by score, ties by document id, both
descending. A line of qrels has four: query, iteration (or subtopic), document, grade. A line that
begins with ``#`` is a comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf, isnan
from pathlib import Path
from typing import Final

from stream_metrics.core.metrics.numerals import read_number
from stream_metrics.core.metrics.ranking.relevance import order_by_score
from stream_metrics.lab.evaluation.collection import Collection
from stream_metrics.lab.sources.collection.lines import Line, Progress, place, read_lines
from stream_metrics.lab.sources.unchanged import InputError

RUN: Final = ("query", "Q0", "document", "rank", "score", "run")
QRELS: Final = ("query", "iteration", "document", "grade")


def read_run(
    path: Path, *, float32: bool = False, progress: Progress | None = None
) -> dict[str, list[str]]:
    """Each query's document ids, the best first.

    Args:
        path: A plain, gzip or zstd file.
        float32: Round scores to single precision first, for the same ties as trec_eval.
        progress: Called with the number of lines read.

    Raises:
        InputError: The file cannot be read, a line has other fields, a score is not a number, or a
            query has a document twice.
    """
    scores: dict[str, dict[str, float]] = {}
    names: dict[str, str] = {}
    for line, (query, _, document, _, score, _) in _fields(path, RUN, "run", progress):
        found = scores.setdefault(query, {})
        if document in found:
            raise InputError(
                f"{place(path, line)}: query {query} has document {document} twice; "
                "a run may have each document once per query"
            )
        found[names.setdefault(document, document)] = _number(path, line, "score", score)
    return {query: order_by_score(found, float32=float32) for query, found in scores.items()}


def read_qrels(
    path: Path, *, subtopics: bool = False, progress: Progress | None = None
) -> Collection:
    """The grade of each judged document.

    Args:
        path: A plain, gzip or zstd file.
        subtopics: The second field is a subtopic of the query, and a document has a grade for each.
        progress: Called with the number of lines read.

    Raises:
        InputError: The file cannot be read, a line has other fields, a grade is not a number, or a
            document is judged twice for the same query (and subtopic).
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for line, (query, subtopic, document, grade) in _fields(path, QRELS, "qrels", progress):
        judged = found.setdefault(query, {}).setdefault(subtopic if subtopics else "", {})
        if document in judged:
            hint = (
                "" if subtopics else " (if the second field is a subtopic, give --subtopic-qrels)"
            )
            raise InputError(
                f"{place(path, line)}: document {document} is judged a second time for query "
                f"{query}; keep one judgement{hint}"
            )
        judged[document] = grade_of(path, line, "grade", grade)
    if not found:
        raise InputError(f"{path}: there are no qrels in this file")
    if subtopics:
        return Collection(subtopics=found)
    return Collection({query: grades[""] for query, grades in found.items()})


def _fields(
    path: Path, names: tuple[str, ...], kind: str, progress: Progress | None
) -> Iterator[tuple[Line, list[str]]]:
    for line in read_lines(path, progress):
        fields = line.text.split(maxsplit=5) if kind == "run" else line.text.split()
        if fields[0].startswith("#"):
            continue
        if len(fields) != len(names):
            raise InputError(
                f"{place(path, line)}: a line of a TREC {kind} has {len(names)} fields "
                f"({' '.join(names)}), this one has {len(fields)}"
            )
        yield line, fields


def grade_of(path: Path, line: Line, name: str, text: str) -> float:
    """Parse a grade; raises ``InputError`` if it is not a finite number."""
    grade = _number(path, line, name, text)
    if isinf(grade):
        raise InputError(f"{place(path, line)}: the {name} {text!r} is not finite")
    return grade


def _number(path: Path, line: Line, name: str, text: str) -> float:
    try:
        value = read_number(text)
    except ValueError:
        value = float("nan")
    if isnan(value):
        raise InputError(f"{place(path, line)}: the {name} {text!r} is not a number")
    return value
