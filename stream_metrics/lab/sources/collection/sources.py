"""Choose the reader of a path by what it is, then by its content."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from stream_metrics.core.metrics.ranking.names import NO_LIMIT, GradeLimit
from stream_metrics.lab.evaluation.collection import Collection
from stream_metrics.lab.sources.collection import beir, trec
from stream_metrics.lab.sources.collection.cases import read_cases, read_retrieved
from stream_metrics.lab.sources.collection.lines import (
    BLANKS,
    Progress,
    Say,
    bare_name,
    only_comments,
    read_lines,
)
from stream_metrics.lab.sources.unchanged import InputError

Kind = Literal["trec", "beir", "cases"]


class Truth(NamedTuple):
    """A collection and the kind of files it was read from."""

    kind: Kind
    collection: Collection


def read_truth(
    path: Path,
    *,
    subtopics: bool = False,
    split: str | None = None,
    limit: GradeLimit = NO_LIMIT,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Truth:
    """Read the queries and their relevant documents.

    Args:
        path: A TREC qrels file; a BEIR folder, or one of its qrels files; a file of test cases, or
            a folder in which all JSON files are test cases.
        subtopics: For TREC qrels: whether the second field is a subtopic.
        split: For a BEIR folder: the qrels to read.
        limit: The largest grade.
        progress: Called with the number of lines read.
        say: Told how many lines were passed over.

    Raises:
        InputError: The file is missing, does not fit the options, or cannot be used.
    """
    kind = _kind(path)
    if subtopics and kind != "trec":
        raise InputError(f"{path}: only TREC qrels have subtopics; leave out --subtopic-qrels")
    if split is not None and not (kind == "beir" and path.is_dir()):
        raise InputError(f"{path}: only a BEIR folder has splits; leave out --split")
    if kind == "cases":
        return Truth(kind, read_cases(_case_files(path)))
    if kind == "trec":
        qrels = trec.read_qrels(path, subtopics=subtopics, limit=limit, progress=progress, say=say)
    elif path.is_dir():
        qrels = beir.read_folder(path, split=split, limit=limit, progress=progress, say=say)
    else:
        qrels = beir.read_qrels(path, limit=limit, progress=progress, say=say)
    return Truth(kind, qrels)


def read_run(
    path: Path,
    *,
    float32: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
) -> dict[str, list[str]]:
    """Read a TREC run, or the retrieved ids of test cases from JSONL.

    Args:
        path: A plain, gzip or zstd file.
        float32: For a TREC run: round scores to single precision first.
        progress: Called with the number of lines read.
        say: Told how many lines were passed over.

    Raises:
        InputError: The file is missing or cannot be used.
    """
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; give the file of a run")
    if _first(path).startswith("{"):
        found = read_retrieved(path, progress=progress, say=say)
    else:
        found = trec.read_run(path, float32=float32, progress=progress, say=say)
    if not found:
        raise InputError(f"{path}: there is no ranking in this file{only_comments(path)}")
    return found


def _kind(path: Path) -> Kind:
    if path.is_dir():
        if (path / "qrels").is_dir():
            return "beir"
        if _case_files(path):
            return "cases"
        raise InputError(
            f"{path}: this folder has no qrels; a BEIR folder contains a folder qrels/, a folder "
            "of test cases contains JSON files"
        )
    if _first(path).startswith(("{", "[")):
        return "cases"
    return "beir" if beir.has_header(path) else "trec"


def _case_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(one for one in path.rglob("*.json*") if bare_name(one).endswith(".json"))


def _first(path: Path) -> str:
    """The first non-blank line of a file; empty if there is none. Raises ``InputError``."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path}: a pipe or device, which cannot be read twice; save it as a file, plain, "
            "gzip or zstd"
        )
    return next((line.text.strip(BLANKS) for line in read_lines(path)), "")
