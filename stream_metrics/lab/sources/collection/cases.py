"""Read test cases: a phrase and the terms of the Human Phenotype Ontology that it should find.

A file is JSON: an object with ``metadata`` and ``test_cases``, or the list of cases alone. A case
without a ``case_id`` is identified by its index in the file, from 0. The retrieved terms are in a
TREC run, or in JSONL with one object ``{"case_id": …, "retrieved": ["HP:…", …]}`` per case.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, field_validator

from stream_metrics.lab.evaluation.collection import Collection
from stream_metrics.lab.sources.collection.lines import (
    Progress,
    Say,
    place,
    read_bytes,
    read_objects,
)
from stream_metrics.lab.sources.unchanged import InputError

Term = Annotated[str, StringConstraints(pattern=r"^HP:[0-9]{7}$")]
DIMENSIONS: Final = ("difficulty", "category", "hpo_domain")
FOLDERS: Final = {
    "german": "de", "english": "en", "french": "fr", "spanish": "es", "dutch": "nl",
    "de": "de", "en": "en", "fr": "fr", "es": "es", "nl": "nl",
}  # fmt: skip
"""The languages of cases by the name of their folder."""
LISTED: Final = 3


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    @field_validator("*", mode="before")
    @classmethod
    def _no_null(cls, value: object) -> object:
        """Reject null, because None stands for a missing field."""
        if value is None:
            raise ValueError("null is not a value; leave the field out")
        return value


class Metadata(_Model):
    """The metadata of a file of cases."""

    dataset_id: str | None = None
    version: str | None = None
    language: Literal["de", "en", "fr", "es", "nl"] | None = None
    description: str | None = None


class Case(_Model):
    """One test case."""

    text: str
    expected_hpo_ids: list[Term]
    case_id: str | None = None
    description: str | None = None
    difficulty: Literal["easy", "medium", "hard"] | None = None
    category: Literal["exact_match", "synonym", "abbreviation", "layperson", "complex"] | None = (
        None
    )
    hpo_domain: str | None = None


def read_cases(paths: Sequence[Path]) -> Collection:
    """Read the cases of several files; each expected term is relevant with grade 1.

    Args:
        paths: Plain, gzip or zstd files. A file's language is in its metadata or is the name of
            its folder.

    Raises:
        InputError: A file cannot be read or breaks the schema (the message says which case and
            field), or two cases have the same id.
    """
    qrels: dict[str, dict[str, float]] = {}
    dimensions: dict[str, dict[str, str]] = {}
    files: dict[str, Path] = {}
    for path in paths:
        metadata, cases = _content(path)
        language = metadata.language or FOLDERS.get(path.resolve().parent.name.lower())
        for index, case in enumerate(cases):
            name = case.case_id or str(index)
            if name in files:
                raise InputError(
                    f"{path}, {_called(index, name)}: {files[name]} already has a case {name!r}; "
                    "give each case its own case_id"
                )
            files[name] = path
            qrels[name] = dict.fromkeys(case.expected_hpo_ids, 1.0)
            found = {"language": language, **{one: getattr(case, one) for one in DIMENSIONS}}
            dimensions[name] = {one: value for one, value in found.items() if value}
    return Collection(qrels, dimensions=dimensions)


def read_retrieved(
    path: Path, *, progress: Progress | None = None, say: Say | None = None
) -> dict[str, list[str]]:
    """Read the retrieved ids of each case, the best first, from JSONL. Ids may repeat.

    Raises:
        InputError: The file cannot be read, a line is malformed, or a case occurs twice.
    """
    found: dict[str, list[str]] = {}
    for line, content in read_objects(path, progress, say):
        name = content.get("case_id")
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)  # the index of a case without an id
        if not isinstance(name, str) or not name:
            raise InputError(
                f"{place(path, line)}: the field case_id is missing, or not text or an index"
            )
        ids = content.get("retrieved")
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
            raise InputError(
                f"{place(path, line)}, case {name}: the field retrieved must be a list of ids"
            )
        if name in found:
            raise InputError(f"{place(path, line)}: case {name} occurs twice")
        found[name] = ids
    return found


def _content(path: Path) -> tuple[Metadata, list[Case]]:
    try:
        content = msgspec.json.decode(read_bytes(path).removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    metadata: Any = {}
    if isinstance(content, dict):
        metadata, content = content.get("metadata", {}), content.get("test_cases")
    if not isinstance(content, list):
        raise InputError(f"{path}: the field test_cases is missing or not a list")
    try:
        about = Metadata.model_validate(metadata)
    except ValidationError as error:
        raise InputError(f"{path}, metadata: {_problems(error)}") from error
    return about, [_case(path, index, one) for index, one in enumerate(content)]


def _case(path: Path, index: int, content: Any) -> Case:
    try:
        return Case.model_validate(content)
    except ValidationError as error:
        name = content.get("case_id") if isinstance(content, dict) else None
        raise InputError(f"{path}, {_called(index, name)}: {_problems(error)}") from error


def _called(index: int, name: object) -> str:
    return f"case {index} ({name})" if isinstance(name, str) and name else f"case {index}"


def _problems(error: ValidationError) -> str:
    """Describe the errors, field by field."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    listed = [_problem(one["loc"], one["msg"]) for one in problems[:LISTED]]
    more = len(problems) - len(listed)
    return "; ".join([*listed, *([f"and {more} more"] if more else [])])


def _problem(where: tuple[int | str, ...], message: str) -> str:
    if not where:
        return "write an object"
    entry = f", entry {where[1]}" if len(where) > 1 else ""
    return f"field {where[0]}{entry}: {message}"
