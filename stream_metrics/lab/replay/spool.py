"""Records on disk, distributed to files so that each conversation is in one file.

The number of files is fixed. The number of processes affects neither their content nor the results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, Self

import msgspec

from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.key import key_of
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record

SHARDS: Final = 64
BUFFER_BYTES: Final = 128 << 10
LENGTH_BYTES: Final = 4


_NUMBERS: Final = Struct(">III").unpack


class SpoolDamaged(Exception):
    """A spool file does not contain what was written to it."""


class SpoolKey(NamedTuple):
    """Three independent hash values that select a record's shard, part and member."""

    shard: int
    part: int
    member: int


def spool_key(record: Record, number: int, limits: Limits) -> SpoolKey:
    """Hash the conversation id, or the number in the input of a record that names none.

    >>> spool_key(Record(b'{"conversation_id": "c-1"}'), 7, Limits()).shard % SHARDS
    62
    """
    key = key_of(record.value, record.timestamp_ms, limits)
    data = str(number).encode() if isinstance(key, BadRecord) else key
    digest = hashlib.blake2b(data, digest_size=12).digest()
    return SpoolKey._make(_NUMBERS(digest))


class Spooled(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A record as read: its number in the input (from 0), and everything that an event depends on.

    ``part`` is that of its ``SpoolKey``.
    """

    number: int
    part: int
    value: bytes | None
    key: bytes | None
    timestamp_ms: Any

    @property
    def record(self) -> Record:
        """The record, without topic, partition and offset."""
        return Record(self.value, self.key, self.timestamp_ms)


class Piece(NamedTuple):
    """Part ``part`` of ``parts`` of a shard, whose file has ``size`` bytes."""

    shard: int
    part: int
    parts: int
    size: int

    @property
    def name(self) -> str:
        """The name of its files, unique among all divisions of the spool."""
        return f"piece-{self.shard:03}-{self.part:04}-of-{self.parts:04}"

    def has(self, spooled: Spooled) -> bool:
        """Whether a record of the shard belongs to this piece."""
        return spooled.part % self.parts == self.part


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Spooled).decode


class SpoolWriter:
    """Distributes records to the files of a folder; ``sizes`` are the file sizes to resume from."""

    def __init__(self, folder: Path, sizes: list[int] | None = None) -> None:
        self.sizes = sizes or [0] * SHARDS
        self._files: list[IO[bytes]] = []
        self._open = ExitStack()
        for shard in range(SHARDS):
            path = spool_path(folder, shard)
            mode = "r+b" if sizes else "wb"
            file = self._open.enter_context(path.open(mode, buffering=BUFFER_BYTES))
            file.truncate(self.sizes[shard])
            file.seek(self.sizes[shard])
            self._files.append(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def add(self, place: SpoolKey, number: int, record: Record) -> int:
        """Write a record; returns its size in bytes."""
        data = _ENCODE(Spooled(number, place.part, record.value, record.key, record.timestamp_ms))
        shard = place.shard % SHARDS
        file = self._files[shard]
        file.write(len(data).to_bytes(LENGTH_BYTES, "big"))
        file.write(data)
        taken = LENGTH_BYTES + len(data)
        self.sizes[shard] += taken
        return taken

    def flush(self) -> list[int]:
        """Flush the files; returns their sizes."""
        for file in self._files:
            file.flush()
        return list(self.sizes)


def spool_path(folder: Path, shard: int) -> Path:
    """The path of a shard's file."""
    return folder / f"shard-{shard:03}.spool"


def read_spool(path: Path, size: int) -> Iterator[tuple[int, Spooled]]:
    """The records of a spool file of ``size`` bytes, each with its offset.

    Raises ``SpoolDamaged``.
    """
    at = 0
    with path.open("rb", buffering=BUFFER_BYTES) as file:
        while at < size:
            spooled, taken = _read(file, path)
            yield at, spooled
            at += taken
    if at != size:
        raise SpoolDamaged(f"{path}: a record ends beyond the {size} bytes that were written")


def read_one(file: IO[bytes], path: Path) -> Spooled:
    """Read the record at the current position; raises ``SpoolDamaged``."""
    return _read(file, path)[0]


def _read(file: IO[bytes], path: Path) -> tuple[Spooled, int]:
    """Read the record at the current position; returns it with its size in bytes."""
    length = int.from_bytes(file.read(LENGTH_BYTES), "big")
    data = file.read(length)
    try:
        if length and len(data) == length:
            return _DECODE(data), LENGTH_BYTES + length
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise SpoolDamaged(
        f"{path}: not a record; the file was truncated or overwritten. Use --restart"
    )
