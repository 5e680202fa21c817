"""Report files: written beside their place and moved there, so that no half file is ever seen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stream_metrics.engine.row import Row, canonical


def write_text(path: Path, text: str) -> None:
    """Write a whole file at once."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    os.replace(temporary, path)


def write_rows(directory: Path, rows: Iterable[Row]) -> None:
    """``conversations.jsonl``: one canonical line a row."""
    write_text(directory / "conversations.jsonl", "".join(canonical(r) + "\n" for r in rows))


def write_json(directory: Path, name: str, content: dict[str, Any]) -> None:
    """One canonical JSON document in a file of its own."""
    write_text(directory / name, canonical(content) + "\n")
