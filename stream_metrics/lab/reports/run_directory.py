"""Read directories that replay and evaluate have written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.metrics.decisions import FACTS
from stream_metrics.lab.evaluation.observations import READERS, Kind, Observations, unit_of
from stream_metrics.lab.evaluation.report_figures import SCHEMA_VERSION
from stream_metrics.lab.reports.files import JSON_ERRORS, QUERIES, ROWS, TURNS
from stream_metrics.lab.sources.collection.lines import read_bytes, read_lines
from stream_metrics.lab.sources.unchanged import InputError

_Recorded = dict[tuple[str, Any], Mapping[str, str]]
"""Dimensions by conversation and turn."""

REPORT: Final = "report.json"
FILES: Final[dict[Kind, str]] = {
    "conversations": ROWS,
    "queries": QUERIES,
    "turns": TURNS,
}


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file with their line numbers.

    Raises:
        InputError: The file cannot be read, or a line is not a JSON object.
    """
    for number, text in read_lines(path):
        try:
            row = msgspec.json.decode(text)
        except JSON_ERRORS as error:
            raise InputError(f"{path}, line {number:,}: {error}") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number:,}: not a JSON object")
        yield number, row


class RowSink(Protocol):
    """Accepts rows one by one."""

    def add(self, row: Mapping[str, Any]) -> None: ...


_G = TypeVar("_G", bound=RowSink)


def add_rows(path: Path, found: _G, kind: Kind) -> _G:
    """Add the rows of a file to ``found`` and return it.

    Raises:
        InputError: The file cannot be read, or a line is not a row of this kind.
    """
    for number, row in read_rows(path):
        try:
            found.add(row)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}, line {number:,}: no row of {kind}") from error
    return found


def read_observations(directory: Path) -> dict[Kind, Observations]:
    """Read the figures of each file of rows in a directory.

    Raises:
        InputError: The directory is missing, has no rows, or a row is malformed.
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
    """Read the rows of a file; conversations get the dimensions recorded in the other files."""
    rows = []
    unit, cut = "conversation", []
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
        if row.get("over_limit") is True:
            cut.append(row)
    return Observations(kind, unit, rows, BeyondLimit.of_rows(cut))


def _without_facts(dimensions: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in dimensions.items() if name not in FACTS}


def read_report(directory: Path) -> dict[str, Any]:
    """Read the directory's ``report.json``; empty if there is none.

    Raises:
        InputError: It is not a JSON object, or has another schema version.
    """
    path = directory / REPORT
    if not path.is_file():
        return {}
    try:
        found = msgspec.json.decode(read_bytes(path))
    except JSON_ERRORS as error:
        raise InputError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: not a JSON object")
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema version {version!r} is not {SCHEMA_VERSION}, so another release wrote "
            "it; replay or evaluate its input again with this one"
        )
    return found
