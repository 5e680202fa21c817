"""Write recordings: records in one file, which appears when it is complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from stream_metrics.core.events.record import Record
from stream_metrics.lab.atomic_files import replacing
from stream_metrics.lab.sources.files import record_line
from stream_metrics.lab.sources.packing import PARQUET, open_packed, packing_of_name
from stream_metrics.lab.sources.parquet import ParquetWriter


class Recording(Protocol):
    """Takes records in order."""

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
    """Open a recording at ``out``. Its extension selects the format: .gz, .zst, .parquet or plain.

    ``-`` is standard output. The file appears when the block ends; after an error, a previous file
    is unchanged. Equal records produce equal bytes. Raises ``OSError``, and ``ParquetError``
    without pyarrow.
    """
    if out == "-":
        yield _Lines(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    with replacing(path) as temporary:
        with ExitStack() as opened:
            if packing_of_name(out) == PARQUET:
                writer = ParquetWriter(temporary)
                opened.callback(writer.close)
                yield writer
            else:
                file = opened.enter_context(temporary.open("wb"))
                yield _Lines(opened.enter_context(open_packed(file, packing_of_name(out))))
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
