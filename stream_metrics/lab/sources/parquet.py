"""Recordings as Parquet: one row per record, read and written in row groups.

The columns are ``topic``, ``partition``, ``offset``, ``timestamp``, ``key`` and ``value``, as in
JSONL, but bytes need no columns of their own. pyarrow is the extra ``parquet``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from stream_metrics.core.events.foreign import foreign_columns
from stream_metrics.core.events.record import Record, bounded_timestamp
from stream_metrics.lab.extras import install_hint

COLUMNS: Final = {
    "topic": "text",
    "partition": "whole numbers",
    "offset": "whole numbers",
    "timestamp": "times, or milliseconds as whole numbers",
    "key": "bytes or text",
    "value": "bytes or text",
}
"""The content of each column; ``topic`` may be missing, as in a copy of one topic."""

READ_ROWS: Final = 2_000
READ_BYTES: Final = 1 << 20
GROUP_ROWS: Final = 50_000
GROUP_BYTES: Final = 16 << 20


class ParquetError(Exception):
    """A Parquet file cannot be used. The message does not name the file."""


def load_pyarrow() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet module; raises ``ParquetError`` if it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ParquetError(install_hint("Parquet", "pyarrow", "parquet")) from error
    return pyarrow, pyarrow.parquet


def read_parquet(opened: IO[bytes]) -> Iterator[Record]:
    """Stream the records of an open file in order.

    Additional columns are ignored. Raises ``ParquetError`` for a file that is damaged or lacks
    columns.
    """
    arrow, parquet = load_pyarrow()
    try:
        with parquet.ParquetFile(opened, pre_buffer=False, buffer_size=READ_BYTES) as file:
            names = _names(arrow.types, file.schema_arrow)
            for batch in file.iter_batches(batch_size=READ_ROWS, columns=names):
                yield from records_of(batch)
    except (arrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split()).removesuffix(".")
        raise ParquetError(
            f"incomplete, or not a Parquet file ({reason}); copy it again, or record it again"
        ) from error


def read_rows(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream the numbered rows of any table, from 1; times have microseconds.

    Raises ``ParquetError`` for a damaged file, and ``OSError`` for one that cannot be opened.
    """
    arrow, parquet = load_pyarrow()
    number = 0
    with open(path, "rb") as opened:
        try:
            with parquet.ParquetFile(opened, pre_buffer=False, buffer_size=READ_BYTES) as file:
                for batch in file.iter_batches(batch_size=READ_ROWS):
                    for at, one in enumerate(batch.schema):
                        if arrow.types.is_timestamp(one.type):
                            exact = arrow.timestamp("us", tz=one.type.tz)
                            column = batch.column(at).cast(exact, safe=False)
                            batch = batch.set_column(at, one.name, column)
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
        except (arrow.ArrowException, OSError) as error:
            reason = " ".join(str(error).split()).removesuffix(".")
            raise ParquetError(
                f"incomplete, or not a Parquet file ({reason}); copy it again"
            ) from error


def _names(kinds: Any, schema: Any) -> list[str]:
    """The columns of ``COLUMNS`` in the file; raises ``ParquetError`` if they are unsuitable."""
    found = {field.name: field.type for field in schema}
    wrong = [
        f"{name} is {found[name]}, not {what}" if name in found else f"{name} is missing"
        for name, what in COLUMNS.items()
        if not (_fits(kinds, name, found[name]) if name in found else name == "topic")
    ]
    if wrong:
        there = ", ".join(found) or "none"
        if (form := foreign_columns(found)) is not None:
            raise ParquetError(f"it looks like {form}")
        raise ParquetError(
            f"not the columns of a recording: {'; '.join(wrong)}. There are: {there}. Rename them "
            f"to {', '.join(COLUMNS)}, or write the file with `stream-metrics record`"
        )
    return [name for name in COLUMNS if name in found]


def _fits(kinds: Any, name: str, kind: Any) -> bool:
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    text = kinds.is_string(kind) or kinds.is_large_string(kind)
    match name:
        case "topic":
            return bool(text)
        case "partition" | "offset":
            return bool(kinds.is_integer(kind))
        case "timestamp":
            return bool(kinds.is_timestamp(kind) or kinds.is_integer(kind))
        case _:
            return bool(text or kinds.is_binary(kind) or kinds.is_large_binary(kind))


def records_of(batch: Any) -> Iterator[Record]:
    """The records of an Arrow batch with ``COLUMNS``, of which ``topic`` may be missing."""
    arrow, _ = load_pyarrow()
    columns = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if name in ("key", "value"):
            column = column.cast(arrow.binary())
        elif arrow.types.is_timestamp(column.type):
            milliseconds = arrow.timestamp("ms", tz=column.type.tz)
            column = column.cast(milliseconds, safe=False).cast(arrow.int64())
        columns[name] = column.to_pylist()
    topics = columns.get("topic") or [""] * len(columns["value"])
    rest = (columns[name] for name in COLUMNS if name != "topic")
    for topic, partition, offset, timestamp_ms, key, value in zip(topics, *rest, strict=True):
        yield Record(
            value,
            key,
            None if timestamp_ms is None else bounded_timestamp(timestamp_ms),
            topic or "",
            partition or 0,
            offset or 0,
        )


class ParquetWriter:
    """Writes records to a new file in row groups; raises ``ParquetError``."""

    def __init__(self, path: Path) -> None:
        self._arrow, parquet = load_pyarrow()
        arrow = self._arrow
        self._schema = arrow.schema(
            [
                arrow.field("topic", arrow.string(), nullable=False),
                arrow.field("partition", arrow.int32(), nullable=False),
                arrow.field("offset", arrow.int64(), nullable=False),
                arrow.field("timestamp", arrow.timestamp("ms", tz="UTC")),
                arrow.field("key", arrow.binary()),
                arrow.field("value", arrow.binary()),
            ]
        )
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def write(self, record: Record) -> None:
        """Add a record."""
        place = (record.topic, record.partition, record.offset)
        self._rows.append((*place, record.timestamp_ms, record.key, record.value))
        self._bytes += len(record.key or b"") + len(record.value or b"")
        if len(self._rows) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True)
        arrays = [
            self._arrow.array(column, type=field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows, self._bytes = [], 0
