"""Which reader a path is for: by what it is, then by what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from stream_metrics.adapters.collection import beir, trec
from stream_metrics.adapters.collection.cases import read_cases, read_retrieved
from stream_metrics.adapters.collection.lines import Progress, bare_name, read_lines
from stream_metrics.adapters.files import InputError
from stream_metrics.evaluation.collection import Collection

Kind = Literal["trec", "beir", "cases"]


class Truth(NamedTuple):
    """A collection, and what kind of files it comes from."""

    kind: Kind
    collection: Collection


def read_truth(
    path: Path,
    *,
    subtopics: bool = False,
    split: str | None = None,
    progress: Progress | None = None,
) -> Truth:
    """The queries and what is relevant to them.

    Args:
        path: A TREC qrels file; a BEIR folder, or one of its qrels files; a file of test cases, or
            a folder in which all JSON files are such.
        subtopics: Of TREC qrels: the second field is a subtopic.
        split: Of a BEIR folder: which qrels to take.
        progress: Is told how many lines have been read.

    Raises:
        InputError: There is no such file, it is of another kind than the options are for, or it
            cannot be used.
    """
    kind = _kind(path)
    if subtopics and kind != "trec":
        raise InputError(f"{path}: only TREC qrels have subtopics; leave out --subtopic-qrels")
    if split is not None and not (kind == "beir" and path.is_dir()):
        raise InputError(f"{path}: only a BEIR folder has splits; leave out --split")
    if kind == "cases":
        return Truth(kind, read_cases(_case_files(path)))
    if kind == "trec":
        return Truth(kind, trec.read_qrels(path, subtopics=subtopics, progress=progress))
    if path.is_dir():
        return Truth(kind, beir.read_folder(path, split=split, progress=progress))
    return Truth(kind, beir.read_qrels(path, progress=progress))


def read_run(
    path: Path, *, float32: bool = False, progress: Progress | None = None
) -> dict[str, list[str]]:
    """What was retrieved: a TREC run, or JSONL of test cases.

    Raises:
        InputError: There is no such file, or it cannot be used.
    """
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; give the file of a run")
    if _first(path).startswith("{"):
        found = read_retrieved(path, progress=progress)
    else:
        found = trec.read_run(path, float32=float32, progress=progress)
    if not found:
        raise InputError(f"{path}: there is no ranking in this file")
    return found


def _kind(path: Path) -> Kind:
    if path.is_dir():
        if (path / "qrels").is_dir():
            return "beir"
        if _case_files(path):
            return "cases"
        raise InputError(
            f"{path}: no qrels in this folder; one of BEIR has a folder qrels/ in it, one of test "
            "cases has JSON files"
        )
    first = _first(path)
    if first.startswith(("{", "[")):
        return "cases"
    return "beir" if first.startswith(beir.HEADER[0]) else "trec"


def _case_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(one for one in path.rglob("*.json*") if bare_name(one).endswith(".json"))


def _first(path: Path) -> str:
    """The first line of a file that is not blank; empty if there is none."""
    return next((line.text for line in read_lines(path)), "")
