"""Read BEIR folders: ``qrels/*.tsv``, ``queries.jsonl`` and a corpus.

The corpus is not read. Short texts in a query's ``metadata`` become dimensions. Qrels are CSV with
tabs, as Python's ``csv`` module writes them for BEIR: a field that has a quote, a tab or the end of
a line in it stands in quotes, and its quotes are doubled.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stream_metrics.core.metrics.ranking.names import NO_LIMIT, GradeLimit
from stream_metrics.lab.evaluation.collection import Collection
from stream_metrics.lab.sources.collection.lines import (
    BLANKS,
    Line,
    Passed,
    Progress,
    Say,
    bare_name,
    place,
    read_objects,
    read_texts,
)
from stream_metrics.lab.sources.collection.trec import grade_of
from stream_metrics.lab.sources.unchanged import InputError

HEADER: Final = ("query-id", "corpus-id", "score")
SPLIT: Final = "test"
LONGEST: Final = 64
"""The most characters of a metadata value that becomes a dimension."""
QUERIES: Final = "queries.jsonl"


def read_folder(
    folder: Path,
    *,
    split: str | None = None,
    limit: GradeLimit = NO_LIMIT,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Collection:
    """Read a split of a collection.

    Args:
        folder: The folder with ``qrels/`` and ``queries.jsonl``.
        split: The name of a file ``qrels/*.tsv``; by default ``test``, or the only one.
        limit: The largest grade.
        progress: Called with the number of lines read.
        say: Told how many lines were passed over.

    Raises:
        InputError: A file is missing or cannot be read, there is no such split, or the qrels have a
            query that ``queries.jsonl`` lacks.
    """
    qrels = _split(folder, split)
    collection = read_qrels(qrels, limit=limit, progress=progress, say=say)
    path = next((one for one in sorted(folder.iterdir()) if bare_name(one) == QUERIES), None)
    if path is None:
        raise InputError(f"{folder}: it has qrels/ but no queries.jsonl")
    dimensions = _queries(path, progress, say)
    for query in collection.queries:
        if query not in dimensions:
            raise InputError(f"{path}: query {query} of the qrels is not in this file")
    return Collection(
        collection.qrels, dimensions={query: dimensions[query] for query in collection.queries}
    )


def read_qrels(
    path: Path,
    *,
    limit: GradeLimit = NO_LIMIT,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Collection:
    """Grades from a file with the header ``query-id  corpus-id  score``.

    Args:
        path: A plain, gzip or zstd file.
        limit: The largest grade.
        progress: Called with the number of lines read.
        say: Told how many lines were passed over.

    Raises:
        InputError: The file cannot be read or has another header, a line has other fields, a grade
            is not a number or too large, or a document is judged twice for a query.
    """
    qrels: dict[str, dict[str, float]] = {}
    headed = False
    for line, fields in _rows(path, progress, say):
        if not headed:
            if not is_header(fields):
                wanted = ", ".join(HEADER)
                raise InputError(
                    f"{place(path, line)}: qrels of BEIR begin with the fields {wanted}, separated "
                    "by tabs"
                )
            headed = True
            continue
        if len(fields) != len(HEADER):
            raise InputError(
                f"{place(path, line)}: write {len(HEADER)} fields separated by tabs, this line has "
                f"{len(fields)}"
            )
        query, document, grade = fields
        if not query or not document:
            raise InputError(f"{place(path, line)}: the {HEADER[bool(query)]} is empty")
        judged = qrels.setdefault(query, {})
        if document in judged:
            raise InputError(
                f"{place(path, line)}: document {document} is judged a second time for query "
                f"{query}; keep one judgement"
            )
        judged[document] = grade_of(path, line, "score", grade, limit)
    if not qrels:
        raise InputError(f"{path}: there are no qrels in this file")
    return Collection(qrels)


def has_header(path: Path) -> bool:
    """Whether a file begins like the header; raises ``InputError`` if it cannot be read."""
    try:
        first = next((fields[0] for _, fields in _rows(path)), "")
    except NotCsv:
        return False
    return _column(first.partition(" ")[0]) == HEADER[0]


def is_header(fields: Sequence[str]) -> bool:
    """Whether a line is the header, in any case and with underscores for hyphens.

    >>> is_header(["query-id", "corpus-id", "score"]), is_header(["q1", "d1", "1"])
    (True, False)
    """
    return tuple(map(_column, fields)) == HEADER


def _column(name: str) -> str:
    return name.lower().replace("_", "-")


class NotCsv(InputError):
    """A line is not CSV."""


def _rows(
    path: Path, progress: Progress | None = None, say: Say | None = None
) -> Iterator[tuple[Line, list[str]]]:
    """The rows that are not blank, without blanks around fields, each with its first line."""
    passed = Passed()
    rows = csv.reader(read_texts(path, progress), delimiter="\t", strict=True)
    start = 1
    try:
        for row in rows:
            fields = [field.strip(BLANKS) for field in row]
            if any(fields):
                yield Line(start, ""), fields
            else:
                passed.blank += 1
            start = rows.line_num + 1
    except csv.Error as error:
        raise NotCsv(
            f"{path}, line {start:,}: not CSV with tabs: {error}. A field that begins with a quote "
            "ends with one, and quotes in it are doubled"
        ) from error
    passed.tell(path, say)


def _split(folder: Path, split: str | None) -> Path:
    files = {
        bare_name(path).removesuffix(".tsv"): path
        for path in sorted((folder / "qrels").iterdir())
        if bare_name(path).endswith(".tsv")
    }
    if not files:
        raise InputError(f"{folder / 'qrels'}: there is no .tsv file with qrels in it")
    if split is None:
        split = SPLIT if SPLIT in files else next(iter(files))
        if split != SPLIT and len(files) > 1:
            raise InputError(
                f"{folder / 'qrels'}: there is no {SPLIT}.tsv; choose one with --split: "
                f"{', '.join(files)}"
            )
    if split not in files:
        raise InputError(
            f"{folder / 'qrels'}: there is no {split}.tsv; there are {', '.join(files)}"
        )
    return files[split]


def _queries(path: Path, progress: Progress | None, say: Say | None) -> dict[str, dict[str, str]]:
    """The short texts in the metadata of each query."""
    found: dict[str, dict[str, str]] = {}
    for line, content in read_objects(path, progress, say):
        query = content.get("_id")
        if not isinstance(query, str) or not query:
            raise InputError(f"{place(path, line)}: the field _id is missing or not text")
        if query in found:
            raise InputError(f"{place(path, line)}: query {query} occurs twice")
        found[query] = _words(content.get("metadata"))
    return found


def _words(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, Mapping):
        return {}
    return {
        name: value
        for name, value in metadata.items()
        if isinstance(value, str) and 0 < len(value) <= LONGEST
    }
