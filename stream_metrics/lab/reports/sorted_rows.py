"""Sort rows in bounded memory with temporary files."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NamedTuple, Self

import msgspec

from stream_metrics.core.engine.row import Row, canonical

RUN_BYTES: Final = 64 << 20
ROW_BYTES: Final = 400  # memory of a row in addition to its line
LENGTH_BYTES: Final = 4


class _Entry(NamedTuple):
    """A row's sort key and line; ``read`` numbers the calls of ``add``."""

    conversation_id: str
    source: int
    read: int
    turn: int
    line: str


class SortedRows:
    """Takes rows in any order and returns their lines sorted by conversation and turn.

    Up to ``run_bytes`` are held in memory. The rest is written to sorted, unnamed temporary files
    in ``folder``, which are merged at the end.
    """

    def __init__(self, folder: Path, run_bytes: int = RUN_BYTES) -> None:
        self._folder = folder
        self._run_bytes = run_bytes
        self._files = ExitStack()
        self._runs: list[IO[bytes]] = []
        self._buffer: list[_Entry] = []
        self._size = 0
        self._reads = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.close()

    def add(self, source: int, rows: Sequence[Row]) -> None:
        """Add all rows of a conversation in one state partition, ``source``.

        They replace the rows that were added for it before.
        """
        self._reads += 1
        for row in rows:
            line = canonical(row) + "\n"
            entry = _Entry(row["conversation_id"], source, self._reads, row["turn"], line)
            self._buffer.append(entry)
            self._size += ROW_BYTES + len(line)
        if self._size > self._run_bytes:
            self._spill()

    def lines(self) -> Iterator[str]:
        """The sorted lines; call this once, after all rows have been added."""
        self._buffer.sort()
        runs = [*map(_entries, self._runs), iter(self._buffer)]
        for _, entries in groupby(heapq.merge(*runs), key=_conversation):
            yield from _latest(list(entries))

    def _spill(self) -> None:
        """Write the buffered rows to a file, sorted."""
        run = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed with the others
        self._files.callback(run.close)
        encode = msgspec.msgpack.encode
        for entry in sorted(self._buffer):
            data = encode(entry)
            run.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        run.seek(0)
        self._runs.append(run)
        self._buffer, self._size = [], 0


def _entries(run: IO[bytes]) -> Iterator[_Entry]:
    decoder = msgspec.msgpack.Decoder(_Entry)
    while length := run.read(LENGTH_BYTES):
        yield decoder.decode(run.read(int.from_bytes(length, "big")))


def _conversation(entry: _Entry) -> str:
    return entry.conversation_id


def _latest(entries: list[_Entry]) -> Iterator[str]:
    """The lines of one conversation: for each source, the rows that were added last."""
    last = {entry.source: entry.read for entry in entries}  # in order of reading
    latest = [entry for entry in entries if entry.read == last[entry.source]]
    latest.sort(key=lambda entry: (entry.turn, entry.source))
    return (entry.line for entry in latest)
