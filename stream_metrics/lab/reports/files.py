"""Write report files atomically."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from stream_metrics.core.engine.row import Row, canonical
from stream_metrics.lab.atomic_files import replacing
from stream_metrics.lab.history import History, UnfitHistory

ROWS: Final = "conversations.jsonl"
QUERIES: Final = "queries.jsonl"
RELEVANT: Final = "relevant.jsonl"
TURNS: Final = "turns.jsonl"
BUCKETS: Final = "buckets.jsonl"
PARQUET: Final = "conversations.parquet"

JSON_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding bytes that are not JSON."""


def write_text(path: Path, text: str) -> None:
    """Write a file."""
    write_lines(path, (text,))


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines, which include their line ends, to a file; returns their number."""
    written = 0
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(line)
            written += 1
    return written


def write_lines_to(lines: Iterable[tuple[int, str]], paths: Iterable[Path]) -> int:
    """Write lines to several files; returns their number.

    Each line includes its line end and is preceded by the index of its file in ``paths``. All
    files are created.
    """
    written = 0
    with ExitStack() as stack:
        writes = [
            stack.enter_context(
                stack.enter_context(replacing(path)).open("w", encoding="utf-8", newline="\n")
            ).write
            for path in paths
        ]
        for place, line in lines:
            writes[place](line)
            written += 1
    return written


def write_rows(directory: Path, rows: Iterable[Row], name: str = ROWS) -> None:
    """Write ``conversations.jsonl`` or another file of rows, one canonical line per row."""
    write_lines(directory / name, (canonical(row) + "\n" for row in rows))


def write_json(directory: Path, name: str, content: dict[str, Any]) -> None:
    """Write a canonical JSON document to a file."""
    write_text(directory / name, canonical(content) + "\n")


def write_buckets(directory: Path, history: History) -> None:
    """Write ``buckets.jsonl``: window sums over all recorded time, for ``read_buckets``."""
    write_lines(directory / BUCKETS, map(bucket_line, history.lines()))


def bucket_line(content: dict[str, Any]) -> str:
    """One line of ``buckets.jsonl``."""
    return msgspec.json.encode(content).decode() + "\n"


def read_buckets(directories: Sequence[Path]) -> History:
    """Read and add the sums that replays have written; raises ``UnfitHistory``, ``OSError``."""
    found: History | None = None
    for directory in directories:
        with (directory / BUCKETS).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    content = msgspec.json.decode(line)
                    if number > 1:
                        assert found is not None
                        found.take(content)
                    elif found is None:
                        found = History.of_header(content)
                    else:
                        found.join(content)
                except (*JSON_ERRORS, UnfitHistory) as error:
                    raise UnfitHistory(
                        f"{directory / BUCKETS}, line {number}: {error}; replay again"
                    ) from error
    if found is None:
        raise UnfitHistory(f"{BUCKETS} is empty; replay again")
    return found
