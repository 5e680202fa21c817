"""Writing recordings: records to one file, which is there once it is whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from stream_metrics.adapters.files import record_line
from stream_metrics.adapters.packing import PARQUET, named, packed
from stream_metrics.adapters.parquet import ParquetWriter
from stream_metrics.adapters.whole import replacing
from stream_metrics.events.record import Record


class Recording(Protocol):
    """Takes records in the order in which they are to be read again."""

    def write(self, record: Record) -> None:
        """Add a record."""
        ...


class _Lines:
    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, record: Record) -> None:
        """See ``Recording.write``."""
        self._file.write(record_line(record))


@contextmanager
def recording(out: str) -> Iterator[Recording]:
    """A recording at ``out``, whose name says how it is packed: .gz, .zst, .parquet, else plain.

    ``-`` is standard output. The file appears when the block ends; after an error, what was there
    before is there still. Equal records give equal bytes. Raises ``OSError``, and ``ParquetError``
    without pyarrow.
    """
    if out == "-":
        yield _Lines(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    with replacing(path) as temporary:
        with ExitStack() as opened:
            if named(out) == PARQUET:
                writer = ParquetWriter(temporary)
                opened.callback(writer.close)
                yield writer
            else:
                file = opened.enter_context(temporary.open("wb"))
                yield _Lines(opened.enter_context(packed(file, named(out))))
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
