"""Report files: written beside their place and moved there, so that no half file is ever seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from stream_metrics.adapters.whole import replacing
from stream_metrics.engine.history import History, UnfitHistory
from stream_metrics.engine.row import Row, canonical

ROWS: Final = "conversations.jsonl"
QUERIES: Final = "queries.jsonl"
RELEVANT: Final = "relevant.jsonl"
TURNS: Final = "turns.jsonl"
BUCKETS: Final = "buckets.jsonl"

NO_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading raises where bytes are no JSON."""


def write_text(path: Path, text: str) -> None:
    """Write a whole file at once."""
    write_lines(path, (text,))


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write a file line by line, each with its end; how many."""
    written = 0
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(line)
            written += 1
    return written


def write_several(lines: Iterable[tuple[int, str]], paths: Iterable[Path]) -> int:
    """Write lines, each with its end and behind the place of its file among ``paths``; how many.

    All of ``paths`` are made.
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
    """``conversations.jsonl`` or another file of rows: one canonical line a row."""
    write_lines(directory / name, (canonical(row) + "\n" for row in rows))


def write_json(directory: Path, name: str, content: dict[str, Any]) -> None:
    """One canonical JSON document in a file of its own."""
    write_text(directory / name, canonical(content) + "\n")


def write_buckets(directory: Path, history: History) -> None:
    """``buckets.jsonl``: window sums through all of recorded time, for ``read_buckets``."""
    write_lines(directory / BUCKETS, map(bucket_line, history.lines()))


def bucket_line(content: dict[str, Any]) -> str:
    """One line of ``buckets.jsonl``."""
    return msgspec.json.encode(content).decode() + "\n"


def read_buckets(directories: Sequence[Path]) -> History:
    """The sums that replays have written, added up; raises ``UnfitHistory``, ``OSError``."""
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
                except (*NO_JSON, UnfitHistory) as error:
                    raise UnfitHistory(
                        f"{directory / BUCKETS}, line {number}: {error}; replay again"
                    ) from error
    if found is None:
        raise UnfitHistory(f"{BUCKETS} is empty; replay again")
    return found
