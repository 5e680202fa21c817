"""Rows brought into their order in bounded memory, by way of temporary files."""

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

from stream_metrics.engine.row import Row, canonical

RUN_BYTES: Final = 64 << 20
ROW_BYTES: Final = 400  # what a row costs in memory beside its line
LENGTH_BYTES: Final = 4


class _Entry(NamedTuple):
    """A row as a line, by what it is sorted by; ``read`` numbers the readings."""

    conversation_id: str
    source: int
    read: int
    turn: int
    line: str


class SortedRows:
    """Takes rows in any order, and gives their lines by conversation, then turn, by code point.

    ``run_bytes`` are held in memory at a time; what is beyond lies sorted in files without a name
    in ``folder``, and is merged in the end.
    """

    def __init__(self, folder: Path, run_bytes: int = RUN_BYTES) -> None:
        self._folder = folder
        self._run_bytes = run_bytes
        self._files = ExitStack()
        self._runs: list[IO[bytes]] = []
        self._held: list[_Entry] = []
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
        """All rows of a conversation in one state partition, ``source``.

        They stand in the place of those that were added for it before.
        """
        self._reads += 1
        for row in rows:
            line = canonical(row) + "\n"
            entry = _Entry(row["conversation_id"], source, self._reads, row["turn"], line)
            self._held.append(entry)
            self._size += ROW_BYTES + len(line)
        if self._size > self._run_bytes:
            self._put_aside()

    def lines(self) -> Iterator[str]:
        """The lines in order; once, when all rows have been added."""
        self._held.sort()
        runs = [*map(_entries, self._runs), iter(self._held)]
        for _, entries in groupby(heapq.merge(*runs), key=_conversation):
            yield from _latest(list(entries))

    def _put_aside(self) -> None:
        """Write what is held to a file, sorted."""
        run = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed with the others
        self._files.callback(run.close)
        encode = msgspec.msgpack.encode
        for entry in sorted(self._held):
            data = encode(entry)
            run.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        run.seek(0)
        self._runs.append(run)
        self._held, self._size = [], 0


def _entries(run: IO[bytes]) -> Iterator[_Entry]:
    decoder = msgspec.msgpack.Decoder(_Entry)
    while length := run.read(LENGTH_BYTES):
        yield decoder.decode(run.read(int.from_bytes(length, "big")))


def _conversation(entry: _Entry) -> str:
    return entry.conversation_id


def _latest(entries: list[_Entry]) -> Iterator[str]:
    """The lines of one conversation, of each source those that were read last."""
    last = {entry.source: entry.read for entry in entries}  # in order of reading
    standing = [entry for entry in entries if entry.read == last[entry.source]]
    standing.sort(key=lambda entry: (entry.turn, entry.source))
    return (entry.line for entry in standing)
