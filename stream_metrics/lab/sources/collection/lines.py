"""Read plain, gzip or zstd text files line by line."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from stream_metrics.lab.sources.packing import (
    PARQUET,
    decode_errors,
    detect_packing,
    open_unpacked,
    packing_of_name,
)
from stream_metrics.lab.sources.unchanged import InputError

Progress = Callable[[int], None]
"""Called with the number of lines read since the last call."""

Say = Callable[[str], None]
"""Called with a sentence about lines of a file that were passed over."""

EVERY: Final = 50_000
"""Lines between two calls of a ``Progress``."""

BLANKS: Final = " \t\n\r\v\f"
"""White space, as other programs that read such files know it: that of ASCII. All other characters,
such as a no-break space, are part of an id."""
_COMMENT: Final = "#"
_UNUSUAL: Final = BLANKS + _COMMENT
"""How a line may begin that is passed over."""


class Line(NamedTuple):
    """A line without its end, and its number in the file (from 1)."""

    number: int
    text: str


def read_lines(
    path: Path,
    progress: Progress | None = None,
    say: Say | None = None,
    *,
    comments: bool = False,
) -> Iterator[Line]:
    """The lines of a file, without blank lines and, if it may have them, without comments.

    Args:
        path: A plain, gzip or zstd file.
        progress: Called with the number of lines read.
        say: Told how many lines were passed over.
        comments: Whether a line that begins with ``#`` is a comment.

    Raises:
        InputError: The file is missing, truncated, or not UTF-8.
    """
    passed = Passed()
    for number, line in enumerate(read_texts(path, progress), 1):
        text = line.rstrip("\r\n")
        if not text or text[0] in _UNUSUAL:
            begin = text.lstrip(BLANKS)[:1]
            if not begin:
                passed.blank += 1
                continue
            if comments and begin == _COMMENT:
                passed.add_comment(number)
                continue
        yield Line(number, text)
    passed.tell(path, say)


def read_texts(path: Path, progress: Progress | None = None) -> Iterator[str]:
    """All lines of a file with their ends, without byte order marks.

    Raises:
        InputError: The file is missing, truncated, or not UTF-8.
    """
    number = told = 0
    try:
        with _opened(path, lambda: number) as lines:
            for data in lines:
                number += 1
                if progress is not None and number - told >= EVERY:
                    progress(number - told)
                    told = number
                # Files that were joined have a byte order mark in the middle.
                yield data.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {number:,}: not UTF-8 ({error.reason})") from error
    if progress is not None:
        progress(number - told)


class Passed:
    """Counts the lines of a file that say nothing.

    >>> passed = Passed()
    >>> passed.blank = 1
    >>> passed.add_comment(3)
    >>> passed.tell(Path("run.txt"), print)
    run.txt: 1 comment (first on line 3) and 1 blank line passed over
    """

    def __init__(self) -> None:
        self.blank = self.comments = self.first_comment = 0

    def add_comment(self, line: int) -> None:
        """Count a comment."""
        self.comments += 1
        self.first_comment = self.first_comment or line

    def __str__(self) -> str:
        said = []
        if self.comments:
            first = f" (first on line {self.first_comment:,})"
            said.append(f"{self.comments:,} comment{'s' if self.comments > 1 else ''}{first}")
        if self.blank:
            said.append(f"{self.blank:,} blank line{'s' if self.blank > 1 else ''}")
        return " and ".join(said)

    def tell(self, path: Path, say: Say | None) -> None:
        """Say what was passed over, if anything was."""
        if say is not None and (said := str(self)):
            say(f"{path}: {said} passed over")


def only_comments(path: Path) -> str:
    """What an error about an empty file adds if comments are all that it has."""
    count = sum(1 for _ in read_lines(path))
    return f": {count:,} of its lines begin with #, and are comments" if count else ""


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        InputError: The file is missing or truncated.
    """
    with _opened(path, lambda: 0) as file:
        return file.read()


@contextmanager
def _opened(path: Path, read: Callable[[], int]) -> Iterator[IO[bytes]]:
    """Open and decompress a file; ``read`` returns the number of lines read, for errors.

    Raises:
        InputError: The file is missing, damaged or of another format.
    """
    kind = None
    try:
        with ExitStack() as opened:
            file: Any = opened.enter_context(path.open("rb"))
            kind = detect_packing(str(path), file)
            if kind == PARQUET:
                raise InputError(f"{path}: this is a Parquet file; give a text file")
            yield opened.enter_context(open_unpacked(file, kind)) if kind else file
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except EOFError as error:
        raise InputError(
            f"{path}{_after(read())}: the {kind} data ends in the middle, so the file was cut off; "
            "get it again"
        ) from error
    except decode_errors(kind) as error:
        raise InputError(
            f"{path}{_after(read())}: damaged, or not a {kind} file ({error}); get it again"
        ) from error
    except OSError as error:
        raise InputError(f"{path}{_after(read())}: {error.strerror or error}") from error


def bare_name(path: Path) -> str:
    """A file's name without the extension of its compression.

    >>> bare_name(Path("qrels/test.tsv.gz")), bare_name(Path("test.tsv"))
    ('test.tsv', 'test.tsv')
    """
    return path.name if packing_of_name(path.name) in (None, PARQUET) else path.stem


def _after(line: int) -> str:
    return f", after line {line:,}" if line else ""


def place(path: Path, line: Line) -> str:
    """File and line, for error messages."""
    return f"{path}, line {line.number:,}"


def read_objects(
    path: Path, progress: Progress | None = None, say: Say | None = None
) -> Iterator[tuple[Line, Any]]:
    """The JSON objects of a JSONL file.

    Raises:
        InputError: As for ``read_lines``, or a line is not a JSON object.
    """
    for line in read_lines(path, progress, say):
        try:
            content = msgspec.json.decode(line.text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{place(path, line)}: not JSON: {error}") from error
        if not isinstance(content, dict):
            raise InputError(f"{place(path, line)}: write one JSON object per line")
        yield line, content
