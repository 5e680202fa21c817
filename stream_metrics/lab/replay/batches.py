"""Pieces of a replay whose records come as Arrow batches, such as partitions of Apache Spark.

``line_batches`` divides files into lines. ``keyed_batches`` names the conversation of each record.
Sorted by it, ``computed_batches`` runs the engine over the records, piece by piece as ``pieces``
does, and returns the pieces' files in chunks. ``PieceReceiver`` writes these files elsewhere, to be
merged.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final
from urllib.parse import unquote

from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.key import key_of
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.garbage_collection import collector_paused
from stream_metrics.core.telemetry.otlp.payloads import is_payload, spans_of
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.replay.outcome import ReplayOptions
from stream_metrics.lab.replay.pieces import Job, compute, result_paths
from stream_metrics.lab.replay.spool import Piece, SpoolKey, SpoolWriter
from stream_metrics.lab.sources.files import EVENT, numbered_lines, parse_line
from stream_metrics.lab.sources.parquet import COLUMNS, load_pyarrow, records_of
from stream_metrics.lab.sources.place import LocatedRecord, place_fields, place_of, place_text
from stream_metrics.lab.sources.unchanged import InputError

LINE_COLUMNS: Final = {"file": "text", "line": "whole numbers", "value": "bytes or text"}
"""The content of the columns of lines of files. Those of recorded topics are ``COLUMNS``."""

PIECE_BYTES: Final = 32 << 20
"""By default, the bytes of records after which a piece ends with its last conversation."""
CHUNK_BYTES: Final = 1 << 20

OUTCOME: Final = "outcome"
"""The last file of a piece."""


def line_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """The lines of whole files, plain or compressed, as batches with ``LINE_COLUMNS``.

    The columns of a file are ``url``, percent-encoded, and ``content``. A file without any line has
    a blank one, so that it can be named. Raises ``InputError``.
    """
    arrow, _ = load_pyarrow()
    schema = _schema(arrow, file="string", line="int64", value="binary")
    for batch in batches:
        for url, content in zip(*(batch.column(at) for at in ("url", "content")), strict=True):
            name = unquote(url.as_py())
            for lines in _grouped(numbered_lines(name, arrow.BufferReader(content.as_buffer()))):
                numbers, values = zip(*lines, strict=True)
                yield _batch(arrow, schema, ([name] * len(lines), numbers, values))


def _grouped(lines: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Lines in groups of ``CHUNK_BYTES``; one blank line if there are none."""
    group, size, is_empty = list[tuple[int, bytes]](), 0, True
    for line in lines:
        group.append(line)
        size, is_empty = size + len(line[1]), False
        if size >= CHUNK_BYTES:
            yield group
            group, size = [], 0
    if group or is_empty:
        yield group or [(1, b"")]


def keyed_batches(batches: Iterable[Any], limits: Limits) -> Iterator[Any]:
    """Records with conversation and place, of batches with ``COLUMNS`` or ``LINE_COLUMNS``.

    The columns are ``id`` (null if a record names no conversation), ``source``, ``number`` and
    ``offset`` (topic, partition and offset; or file, line and null), ``timestamp`` in milliseconds,
    ``key`` and ``value``. Blank lines are left out.

    Raises ``InputError`` for OTLP traces, whose spans are not events, and for a record without a
    place.
    """
    arrow, _ = load_pyarrow()
    schema = _schema(
        arrow,
        id="string", source="string", number="int64", offset="int64",
        timestamp="int64", key="binary", value="binary",
    )  # fmt: skip
    for batch in batches:
        rows = [_row(located, limits) for located in _located(batch)]
        yield _batch(arrow, schema, zip(*rows, strict=True) if rows else [()] * len(schema))


def _located(batch: Any) -> Iterator[LocatedRecord]:
    of_topics = set(COLUMNS) <= set(batch.schema.names)
    for name in ("partition", "offset") if of_topics else ("file", "line"):
        if batch.column(name).null_count:
            raise _unplaced(name)
    if of_topics:
        for record in records_of(batch):
            if not record.topic:
                raise _unplaced("topic")
            yield record.topic, record.offset, record
        return
    columns = (batch.column(name).to_pylist() for name in LINE_COLUMNS)
    for file, line, value in zip(*columns, strict=True):
        text = (value or b"").removeprefix(codecs.BOM_UTF8 if line == 1 else b"")
        if text and not text.isspace():
            yield file, line, parse_line(text.rstrip(b"\r\n"))


def _unplaced(column: str) -> InputError:
    return InputError(
        f"a record has no {column}. Each needs topic, partition and offset, or file and line"
    )


def _row(located: LocatedRecord, limits: Limits) -> tuple[Any, ...]:
    source, number, record = located
    value = record.value
    if value is not None and not value.startswith(EVENT) and _is_traces(value):
        where = place_text(place_fields(place_of(*located)))
        raise InputError(
            f"{where}: OTLP traces; their spans are put together by `stream-metrics replay` and by "
            "the bridge, not here"
        )
    found = key_of(value, record.timestamp_ms, limits)
    name = None if isinstance(found, BadRecord) else found.decode()
    place: tuple[str, int, int | None] = source, number, None
    if record.topic:
        place = record.topic, record.partition, record.offset
    return name, *place, record.timestamp_ms, record.key, value


def _is_traces(value: bytes) -> bool:
    """Whether a value is OTLP traces; damaged ones are records that cannot be used."""
    if not is_payload(value):
        return False
    try:
        spans_of(value)
    except OtlpError:
        return False
    return True


def computed_batches(
    batches: Iterable[Any], options: ReplayOptions, piece_bytes: int, folder: str | None = None
) -> Iterator[Any]:
    """The files of all pieces in chunks, of ``keyed_batches`` that are sorted by ``id`` and place.

    Each batch has a chunk, of whole lines where a file has lines: the columns are ``piece`` and
    ``chunk``, which number pieces and the chunks of one, ``file``, its name in ``result_paths``,
    and ``data``. The last file of each piece is ``OUTCOME``. A piece is on disk in ``folder`` while
    it is computed; None: where temporary files are.
    """
    arrow, _ = load_pyarrow()
    schema = _schema(arrow, piece="int64", chunk="int64", file="string", data="binary")
    records = _records(batches)
    following, pieces = next(records, None), count()
    while following is not None:
        with TemporaryDirectory(prefix="stream-metrics-", dir=folder) as name:
            work = Path(name)
            following = _compute(work, options, following, records, piece_bytes)
            piece, chunks = next(pieces), count()
            for file, path in result_paths(work, _PIECE).items():
                for data in _chunks(path):
                    yield _batch(arrow, schema, ([piece], [next(chunks)], [file], [data]))


_Keyed = tuple[str | None, LocatedRecord]
_PIECE: Final = Piece(0, 0, 1, 0)


def _compute(
    folder: Path,
    options: ReplayOptions,
    first: _Keyed,
    records: Iterator[_Keyed],
    piece_bytes: int,
) -> _Keyed | None:
    """Compute a piece; returns the first record after it.

    Its records are written to the folder while they arrive: the engine keeps no texts, and those
    that are needed are read again.
    """
    following: _Keyed | None = first
    size = 0
    with closing(SpoolWriter(folder, shards=1)) as writer:
        last = first[0]
        while following is not None:
            if size >= piece_bytes and (last is None or following[0] != last):
                break
            last = following[0]
            size += writer.add(SpoolKey(0, 0), following[1])
            following = next(records, None)
        spool = writer.flush()
    with collector_paused():
        piece = _PIECE._replace(size=spool.sizes[0])
        compute(Job(folder, options, "", tuple(spool.sources)), piece)
    return following


def _records(batches: Iterable[Any]) -> Iterator[_Keyed]:
    for batch in batches:
        names = ("id", "source", "number", "offset", "timestamp", "key", "value")
        columns = (batch.column(name).to_pylist() for name in names)
        for name, source, number, offset, timestamp_ms, key, value in zip(*columns, strict=True):
            if offset is None:
                yield name, (source, number, Record(value, key, timestamp_ms))
            else:
                record = Record(value, key, timestamp_ms, source, number, offset)
                yield name, (source, offset, record)


def _chunks(path: Path) -> Iterator[bytes]:
    """A file in chunks of whole lines."""
    with path.open("rb") as file:
        if path.suffix not in (".jsonl", ".json"):
            yield file.read()
            return
        while lines := file.readlines(CHUNK_BYTES):
            yield b"".join(lines)


def _batch(arrow: Any, schema: Any, columns: Iterable[Any]) -> Any:
    arrays = [arrow.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


def _schema(arrow: Any, **kinds: str) -> Any:
    return arrow.schema([(name, getattr(arrow, kind)()) for name, kind in kinds.items()])


class PieceReceiver:
    """Writes the files of pieces to a folder, from the chunks of ``computed_batches`` in order.

    Attributes:
        pieces: The pieces that are complete.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pieces: list[Piece] = []
        self._open = ExitStack()
        self._files: Mapping[str, IO[bytes]] = {}

    def take(self, file: str, data: bytes) -> None:
        """Write the next chunk."""
        if not self._files:
            paths = result_paths(self._folder, self._piece)
            self._files = {
                name: self._open.enter_context(path.open("wb")) for name, path in paths.items()
            }
        self._files[file].write(data)
        if file == OUTCOME:
            self._open.close()
            self.pieces.append(self._piece)
            self._files = {}

    @property
    def _piece(self) -> Piece:
        return Piece(len(self.pieces), 0, 1, 0)
