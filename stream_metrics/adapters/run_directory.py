"""Directories that replay and evaluate have written, read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from stream_metrics.adapters.collection.lines import read_bytes, read_lines
from stream_metrics.adapters.files import InputError
from stream_metrics.adapters.reports import NO_JSON, QUERIES, ROWS, TURNS
from stream_metrics.evaluation.headline import SCHEMA_VERSION
from stream_metrics.evaluation.observed import READERS, Kind, Observations, unit_of
from stream_metrics.metrics.decisions import FACTS

_Recorded = dict[tuple[str, Any], Mapping[str, str]]
"""Dimensions by conversation and turn."""

REPORT: Final = "report.json"
FILES: Final[dict[Kind, str]] = {
    "conversations": ROWS,
    "queries": QUERIES,
    "turns": TURNS,
}


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file with the numbers of their lines.

    Raises:
        InputError: The file cannot be read, or a line is no JSON object.
    """
    for number, text in read_lines(path):
        try:
            row = msgspec.json.decode(text)
        except NO_JSON as error:
            raise InputError(f"{path}, line {number:,}: {error}") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number:,}: no JSON object")
        yield number, row


class Gathering(Protocol):
    """What rows are added to, one by one."""

    def add(self, row: Mapping[str, Any]) -> None: ...


_G = TypeVar("_G", bound=Gathering)


def gather(path: Path, found: _G, kind: Kind) -> _G:
    """``found``, with the rows of a file added.

    Raises:
        InputError: The file cannot be read, or a line is no row of this kind.
    """
    for number, row in read_rows(path):
        try:
            found.add(row)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}, line {number:,}: no row of {kind}") from error
    return found


def read_observations(directory: Path) -> dict[Kind, Observations]:
    """The figures of each file of rows that is there.

    Raises:
        InputError: There is no such directory, no file of rows or no row in it, or a row that this
            program has not written.
    """
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory")
    found: dict[Kind, Observations] = {}
    recorded: _Recorded = {}
    for kind in ("queries", "turns", "conversations"):
        path = directory / FILES[kind]
        if path.is_file():
            observations = _observations(path, kind, recorded)
            if observations.rows:
                found[kind] = observations
    if not found:
        names = ", ".join(FILES.values())
        raise InputError(
            f"{directory}: no rows. It needs one of {names} that replay or evaluate has written"
        )
    return {kind: found[kind] for kind in FILES if kind in found}


def _observations(path: Path, kind: Kind, recorded: _Recorded) -> Observations:
    """The rows of a file; those of conversations have the dimensions that others recorded."""
    rows = []
    unit = "conversation"
    for number, row in read_rows(path):
        try:
            one = READERS[kind](row)
            turn = (one.unit, row.get("turn"))
            if kind == "conversations":
                one = one._replace(dimensions={**recorded.get(turn, {}), **one.dimensions})
            elif row.get("turn") is not None:
                recorded.setdefault(turn, _without_facts(one.dimensions))
            rows.append(one)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"{path}, line {number:,}: no row of {kind} ({error})") from error
        unit = unit_of(row)
    return Observations(kind, unit, rows)


def _without_facts(dimensions: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in dimensions.items() if name not in FACTS}


def read_report(directory: Path) -> dict[str, Any]:
    """The directory's ``report.json``; empty if there is none.

    Raises:
        InputError: It is no JSON object, or its schema is of another version.
    """
    path = directory / REPORT
    if not path.is_file():
        return {}
    try:
        found = msgspec.json.decode(read_bytes(path))
    except NO_JSON as error:
        raise InputError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: no JSON object")
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema version {version!r} is not {SCHEMA_VERSION}, so another release wrote "
            "it; replay or evaluate its input again with this one"
        )
    return found
