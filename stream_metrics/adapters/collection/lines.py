"""Text files, plain or gzip, line by line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from stream_metrics.adapters.files import InputError

GZIP: Final = b"\x1f\x8b"

Progress = Callable[[int], None]
"""Takes how many lines more have been read."""

EVERY: Final = 50_000
"""Lines between two calls of it."""


class Line(NamedTuple):
    """One line that is not blank, by its number in the file (from 1)."""

    number: int
    text: str


def read_lines(path: Path, progress: Progress | None = None) -> Iterator[Line]:
    """The lines of a file that are not blank, without what stands around them.

    Raises:
        InputError: The file is not there, cut off, or no UTF-8.
    """
    number = told = 0
    try:
        with _opened(path) as lines:
            for data in lines:
                number += 1
                if progress is not None and number - told >= EVERY:
                    progress(number - told)
                    told = number
                text = data.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if text:
                    yield Line(number, text)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {number}: no UTF-8 ({error.reason})") from error
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error, number) from error
    if progress is not None:
        progress(number - told)


def read_bytes(path: Path) -> bytes:
    """A whole file, plain or gzip.

    Raises:
        InputError: The file is not there, or cut off.
    """
    try:
        with _opened(path) as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception, line: int = 0) -> InputError:
    """What to say of a file that cannot be read, or not to its end."""
    after = f", after line {line:,}" if line else ""
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file")
    if isinstance(error, OSError) and error.strerror:
        return InputError(f"{path}{after}: {error.strerror}")
    return InputError(f"{path}{after}: the gzip file is cut off or damaged ({error}); get it anew")


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    if packed or path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def place(path: Path, line: Line) -> str:
    """Where in which file."""
    return f"{path}, line {line.number:,}"


def read_objects(path: Path, progress: Progress | None = None) -> Iterator[tuple[Line, Any]]:
    """The JSON objects of a JSONL file.

    Raises:
        InputError: As ``read_lines``; or a line is no JSON object.
    """
    for line in read_lines(path, progress):
        try:
            content = msgspec.json.decode(line.text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{place(path, line)}: no JSON: {error}") from error
        if not isinstance(content, dict):
            raise InputError(f"{place(path, line)}: write one JSON object a line")
        yield line, content
