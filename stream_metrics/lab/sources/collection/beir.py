"""Read BEIR folders: ``qrels/*.tsv``, ``queries.jsonl`` and a corpus.

The corpus is not read. Short texts in a query's ``metadata`` become dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stream_metrics.lab.evaluation.collection import Collection
from stream_metrics.lab.sources.collection.lines import (
    Progress,
    bare_name,
    place,
    read_lines,
    read_objects,
)
from stream_metrics.lab.sources.collection.trec import grade_of
from stream_metrics.lab.sources.unchanged import InputError

HEADER: Final = ("query-id", "corpus-id", "score")
SPLIT: Final = "test"
LONGEST: Final = 64
"""The most characters of a metadata value that becomes a dimension."""
QUERIES: Final = "queries.jsonl"


def read_folder(
    folder: Path, *, split: str | None = None, progress: Progress | None = None
) -> Collection:
    """Read a split of a collection.

    Args:
        folder: The folder with ``qrels/`` and ``queries.jsonl``.
        split: The name of a file ``qrels/*.tsv``; by default ``test``, or the only one.
        progress: Called with the number of lines read.

    Raises:
        InputError: A file is missing or cannot be read, there is no such split, or the qrels have a
            query that ``queries.jsonl`` lacks.
    """
    collection = read_qrels(_split(folder, split), progress=progress)
    path = next((one for one in sorted(folder.iterdir()) if bare_name(one) == QUERIES), None)
    if path is None:
        raise InputError(f"{folder}: it has qrels/ but no queries.jsonl")
    dimensions = _queries(path, progress)
    for query in collection.queries:
        if query not in dimensions:
            raise InputError(f"{path}: query {query} of the qrels is not in this file")
    return Collection(
        collection.qrels, dimensions={query: dimensions[query] for query in collection.queries}
    )


def read_qrels(path: Path, *, progress: Progress | None = None) -> Collection:
    """Grades from a file with the header ``query-id  corpus-id  score``, separated by tabs.

    Raises:
        InputError: The file cannot be read or has another header, a line has other fields, a grade
            is not a number, or a document is judged twice for a query.
    """
    qrels: dict[str, dict[str, float]] = {}
    headed = False
    for line in read_lines(path, progress):
        fields = [field.strip() for field in line.text.split("\t")]
        if not headed:
            if tuple(fields) != HEADER:
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
        judged = qrels.setdefault(query, {})
        if document in judged:
            raise InputError(
                f"{place(path, line)}: document {document} is judged a second time for query "
                f"{query}; keep one judgement"
            )
        judged[document] = grade_of(path, line, "score", grade)
    if not qrels:
        raise InputError(f"{path}: there are no qrels in this file")
    return Collection(qrels)


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


def _queries(path: Path, progress: Progress | None) -> dict[str, dict[str, str]]:
    """The short texts in the metadata of each query."""
    found: dict[str, dict[str, str]] = {}
    for line, content in read_objects(path, progress):
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
