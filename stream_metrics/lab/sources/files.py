"""Recorded input: JSONL files (plain, gzip or zstd), Parquet files, globs and standard input.

A line is an event as produced, OTLP traces, or a recorded Kafka record::

    {"topic": …, "partition": …, "offset": …, "timestamp": ms, "key": …, "value": "…"}

where ``value`` is the record's text; ``key_base64`` and ``value_base64`` replace bytes that are not
UTF-8. Files of OTLP traces may also contain length-prefixed payloads, or a single payload.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import glob
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from stream_metrics.core.events.foreign import foreign_file
from stream_metrics.core.events.record import Record, bounded_timestamp
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.otlp.framing import (
    HEAD_BYTES,
    check_signal,
    frames,
    is_framed,
    is_whole,
    whole,
)
from stream_metrics.lab.sources.packing import PARQUET, decode_errors, detect_packing, open_unpacked
from stream_metrics.lab.sources.parquet import ParquetError, read_parquet
from stream_metrics.lab.sources.unchanged import (
    READ_BYTES,
    STDIN,
    FileState,
    InputError,
    InputFile,
    open_unchanged,
)

LONGEST_LINE_BYTES: Final = 64 << 20
MAX_OFFSET: Final = (1 << 63) - 1
"""Kafka's largest offset."""
BLOCK_BYTES: Final = 256 << 10
"""The size of a block of lines, but for the rest of its last line."""
SEEN_BYTES: Final = 4 << 10
"""The bytes at the beginning of a file from which its kind is detected."""
EVENT: Final = b'{"type"'
"""The beginning of a line that is certainly an event, not a recorded record."""


class StoredRecord(Record, frozen=True, gc=False):
    """A record of a file that can be read again (``read_again``): ``length`` bytes at ``start``.

    ``file`` is the state that the file had when it was opened.
    """

    path: str = ""
    start: int = 0
    length: int = 0
    file: FileState | None = None


class FileRange(NamedTuple):
    """The lines of a plain file in this state that begin at ``start`` or later, before ``end``."""

    path: str
    start: int
    end: int
    file: FileState


class LineTooLong(InputError):
    """A line has more than ``LONGEST_LINE_BYTES``."""


def expand(sources: Iterable[str]) -> list[str]:
    """Expand file names and globs into paths, ``-`` for standard input; raises ``InputError``."""
    paths: list[str] = []
    for source in sources:
        try:
            paths += _behind(source)
        except OSError as error:
            raise InputError(f"{error.filename or source}: {error.strerror or error}") from error
    return paths


def _behind(source: str) -> list[str]:
    """Expand one source; also raises ``OSError`` if it cannot be accessed."""
    if source == STDIN:
        return [source]
    if Path(source).is_file():
        return [_of_all_processes(source)]
    found = [path for path in glob.glob(source, recursive=True) if not Path(path).is_dir()]
    if not found:
        what = "a folder" if Path(source).is_dir() else "no such file"
        raise InputError(f"{source}: {what}; give a file, a glob in quotes, or -")
    return sorted(found)


def _of_all_processes(path: str) -> str:
    """The path by which other processes find a file, too: that of ``/dev/fd/3`` is of this one."""
    real = os.path.realpath(path)
    return real if path.startswith(("/dev/", "/proc/")) and os.path.exists(real) else path


def read_records(sources: Iterable[str], *, places: bool = False) -> Generator[Record, None, None]:
    """Stream the records of all sources in order, as ``numbered_records`` does."""
    for path in expand(sources):
        for _, record in numbered_records(path, places=places):
            yield record


def numbered_records(
    path: str, *, places: bool = False, known: FileState | None = None
) -> Generator[tuple[int, Record], None, None]:
    """Stream the records of one source, each preceded by its line, row or payload number from 1.

    With ``places``, the lines of a plain file are ``StoredRecord``. A file is read as it was in its
    ``known`` state, by default that of now (``open_unchanged``). Raises ``InputError``.
    """
    reading = _Reading(path)
    with reading.errors(), open_unchanged(path, known) as (file, state):
        if reading.packing_of(file) == PARQUET:
            if path == STDIN or state is None:
                raise ParquetError("Parquet cannot be streamed; give it as a file")
            yield from enumerate(read_parquet(file), 1)
            return
        stored = state if places and path != STDIN and not reading.packing else None
        for start, text in reading.parts(file):
            if start is None:
                record = Record(text)
            else:
                record = parse_line(text) if stored is None else _stored(text, path, start, stored)
            yield reading.number, record


def numbered_lines(path: str, file: Any) -> Generator[tuple[int, bytes], None, None]:
    """Stream the lines of an open binary file, without blank ones.

    Raises ``InputError``, also for Parquet and for files of OTLP traces.
    """
    reading = _Reading(path)
    with reading.errors():
        buffered = BufferedReader(file, READ_BYTES)
        if reading.packing_of(buffered) == PARQUET:
            raise ParquetError("a Parquet file, which has no lines; read it as Parquet")
        for start, text in reading.parts(buffered):
            if start is None:
                raise OtlpError("OTLP traces, not lines of events")
            yield reading.number, text


def file_ranges(files: Iterable[InputFile], range_bytes: int) -> list[FileRange]:
    """Divide files of lines into ranges of at most so many bytes.

    Empty if one of them has to be read from its first byte, because it is packed, a device or a
    single payload, or cannot be read at all: then reading it reports the error.
    """
    found = []
    for file in files:
        path, state = file
        if state is None or not file.can_be_read_again or not _is_plain(path, state):
            return []
        for start in range(0, state.size, range_bytes):
            found.append(FileRange(path, start, min(start + range_bytes, state.size), state))
    return found


def _is_plain(path: str, state: FileState) -> bool:
    """Whether the lines of a file can be read in ranges."""
    try:
        with open_unchanged(path, state) as (file, _):
            if _Reading(path).packing_of(file) is not None:
                return False
            head = file.peek(HEAD_BYTES)[:SEEN_BYTES].removeprefix(codecs.BOM_UTF8)
            check_signal(head)
    except (OSError, OtlpError, InputError):
        return False
    return not is_framed(head) and not is_whole(head) and foreign_file(head) is None


def range_blocks(part: FileRange) -> Generator[tuple[int, bytes], None, None]:
    """Stream the lines of a range in blocks of whole lines, each block preceded by its start.

    Raises ``InputError``.
    """
    with _Reading(part.path).errors(), open_unchanged(part.path, part.file) as (file, _):
        start = _seek_line(file, part)
        # A byte order mark may be longer than the first range.
        end = part.end if part.start else max(part.end, start + 1)
        while start < end and (block := file.read(min(BLOCK_BYTES, end - start))):
            if not block.endswith(b"\n"):
                begun = len(block) - block.rfind(b"\n") - 1
                block += _rest_of_line(file, part.path, begun)
            yield start, block
            start += len(block)


def _seek_line(file: IO[bytes], part: FileRange) -> int:
    """Seek the first line that begins in a range or after it; returns where it begins."""
    if not part.start:
        head = file.read(len(codecs.BOM_UTF8))
        return file.seek(len(head) if head == codecs.BOM_UTF8 else 0)
    file.seek(part.start - 1)
    _rest_of_line(file, part.path)
    return file.tell()


def _rest_of_line(file: IO[bytes], path: str, begun: int = 0) -> bytes:
    """Read to the end of a line of which ``begun`` bytes have been read."""
    rest = file.readline(LONGEST_LINE_BYTES + 1)
    if begun + len(rest) > LONGEST_LINE_BYTES:
        raise LineTooLong(f"{path}: a line is longer than {LONGEST_LINE_BYTES >> 20} MiB")
    return rest


class _Reading:
    """A source that is being read.

    Attributes:
        number: How many of its lines or payloads have been read.
        packing: Its packing, such as gzip; None without.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.number = 0
        self.packing: str | None = None

    def packing_of(self, file: Any) -> str | None:
        """The packing of an open file; None for a file of length-prefixed payloads, too."""
        if not is_framed(file.peek(HEAD_BYTES)[:SEEN_BYTES]):
            self.packing = detect_packing(self.path, file)
        return self.packing

    def parts(self, file: Any) -> Iterator[tuple[int | None, bytes]]:
        """The lines of an open file with their starts, or its payloads with None instead."""
        with ExitStack() as opened:
            lines = file
            if self.packing:
                lines = opened.enter_context(open_unpacked(file, self.packing))
            start, head = 0, lines.peek(HEAD_BYTES)[:SEEN_BYTES]
            if head.startswith(codecs.BOM_UTF8):
                start = len(lines.read(len(codecs.BOM_UTF8)))
                head = head.removeprefix(codecs.BOM_UTF8)
            check_signal(head)
            if is_framed(head) or is_whole(head):
                for payload in frames(lines) if is_framed(head) else whole(lines):
                    self.number += 1
                    yield None, payload
                return
            if (form := foreign_file(head)) is not None:
                raise InputError(f"{self.path}: it is {form}")
            for at, line in self._lines(lines, start):
                if not is_blank(line):
                    yield at, line

    def _lines(self, file: IO[bytes], start: int) -> Iterator[tuple[int, bytes]]:
        """The lines with their starts; the file is at ``start``."""
        for line in iter(partial(file.readline, LONGEST_LINE_BYTES + 1), b""):
            self.number += 1
            if len(line) > LONGEST_LINE_BYTES:
                raise LineTooLong(
                    f"{self.path}: line {self.number} is longer than "
                    f"{LONGEST_LINE_BYTES >> 20} MiB, so this is not a recording; give JSON "
                    "Lines with one event or record each"
                )
            yield start, line.rstrip(b"\r\n")
            start += len(line)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Name the source, and where in it an error is, by ``InputError``."""
        try:
            yield
        except (OtlpError, ParquetError) as error:
            raise InputError(f"{self.path}: {error}") from error
        except EOFError as error:
            raise InputError(
                f"{self._where}: the {self.packing} data ends in the middle, so the file was cut "
                "off; copy it again, or record it again"
            ) from error
        except decode_errors(self.packing) as error:
            raise InputError(
                f"{self._where}: damaged, or not a {self.packing} file ({error}); copy it again, "
                "or record it again"
            ) from error
        except OSError as error:
            raise InputError(f"{self._where}: {error.strerror or error}") from error

    @property
    def _where(self) -> str:
        return f"{self.path}, after line {self.number}" if self.number else self.path


def is_blank(line: bytes) -> bool:
    """Whether a line without its end is empty or white space."""
    return not line or line.isspace()


def _stored(line: bytes, path: str, start: int, file: FileState) -> StoredRecord:
    """The record of a line that begins at ``start``."""
    if line.startswith(EVENT):
        return StoredRecord(line, path=path, start=start, length=len(line), file=file)
    record = parse_line(line)
    return StoredRecord(
        record.value,
        record.key,
        record.timestamp_ms,
        record.topic,
        record.partition,
        record.offset,
        path=path,
        start=start,
        length=len(line),
        file=file,
    )


def read_again(file: int, start: int, length: int) -> Record | None:
    """A ``StoredRecord``, from the descriptor of its file; None if the file has become shorter."""
    line = os.pread(file, length, start)
    return parse_line(line) if len(line) == length else None


def parse_line(line: bytes) -> Record:
    """Parse a line as a record; a line that is not a recorded record is an event."""
    if line.startswith(EVENT):  # fast path: most events begin like this
        return Record(line)
    if b'"offset"' not in line or (b'"value"' not in line and b'"value_base64"' not in line):
        return Record(line)
    try:
        obj = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Record(line)
    if type(obj) is not dict or "type" in obj or not ("value" in obj or "value_base64" in obj):
        return Record(line)
    try:
        return Record(
            value=_bytes(obj, "value"),
            key=_bytes(obj, "key"),
            timestamp_ms=_timestamp_ms(obj.get("timestamp")),
            **_place(obj),
        )
    except (TypeError, ValueError, AttributeError, binascii.Error):
        return Record(line)


def _timestamp_ms(value: Any) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError("a timestamp that is not a whole number")
    return None if value is None else bounded_timestamp(value)


def _place(obj: dict[str, Any]) -> dict[str, Any]:
    """Topic, partition and offset, or nothing if they cannot be those of a record."""
    topic = obj.get("topic") or ""
    partition, offset = obj.get("partition") or 0, obj.get("offset") or 0
    numbers = all(type(n) is int and 0 <= n <= MAX_OFFSET for n in (partition, offset))
    if type(topic) is not str or not numbers:
        return {}
    return {"topic": topic, "partition": partition, "offset": offset}


def _bytes(obj: dict[str, Any], name: str) -> bytes | None:
    encoded = obj.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    text = obj.get(name)
    return None if text is None else text.encode()


def record_line(record: Record) -> bytes:
    """Format a Kafka record as a line, the inverse of ``parse_line``."""
    obj: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            obj[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            obj[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    return msgspec.json.encode(obj) + b"\n"
