"""Report files: written beside their place and moved there, so that no half file is ever seen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from stream_metrics.adapters.whole import replacing
from stream_metrics.engine.row import Row, canonical

ROWS: Final = "conversations.jsonl"
QUERIES: Final = "queries.jsonl"


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


def write_rows(directory: Path, rows: Iterable[Row], name: str = ROWS) -> None:
    """``conversations.jsonl`` or another file of rows: one canonical line a row."""
    write_lines(directory / name, (canonical(row) + "\n" for row in rows))


def write_json(directory: Path, name: str, content: dict[str, Any]) -> None:
    """One canonical JSON document in a file of its own."""
    write_text(directory / name, canonical(content) + "\n")
