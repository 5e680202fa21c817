"""Records on disk, dealt out to files so that a conversation's are all in one.

The number of files is fixed. How many processes work on them changes neither what a file holds nor
what comes of it.
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

from stream_metrics.events.decode import BadRecord
from stream_metrics.events.key import key_of
from stream_metrics.events.limits import Limits
from stream_metrics.events.record import Record

SHARDS: Final = 64
BUFFER_BYTES: Final = 128 << 10
LENGTH_BYTES: Final = 4


_NUMBERS: Final = Struct(">III").unpack


class SpoolDamaged(Exception):
    """A spool file does not hold what was written to it; the message says where."""


class Place(NamedTuple):
    """Where a record goes: three independent numbers of 16 bits and more."""

    shard: int
    part: int
    member: int


def place_of(record: Record, number: int, limits: Limits) -> Place:
    """By the conversation's id; of a record that names none by its number in the input.

    >>> place_of(Record(b'{"conversation_id": "c-1"}'), 7, Limits()).shard % SHARDS
    62
    """
    key = key_of(record.value, record.timestamp_ms, limits)
    data = str(number).encode() if isinstance(key, BadRecord) else key
    digest = hashlib.blake2b(data, digest_size=12).digest()
    return Place._make(_NUMBERS(digest))


class Spooled(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A record as it was read: its number in the input (from 0), and all that an event depends on.

    ``part`` is the second number of its ``Place``.
    """

    number: int
    part: int
    value: bytes | None
    key: bytes | None
    timestamp_ms: Any

    @property
    def record(self) -> Record:
        """The record, without its place in a topic."""
        return Record(self.value, self.key, self.timestamp_ms)


class Piece(NamedTuple):
    """Part ``part`` of ``parts`` of a shard, whose file has ``size`` bytes."""

    shard: int
    part: int
    parts: int
    size: int

    @property
    def name(self) -> str:
        """Of its files; no piece of other pieces, or of another number of them, has it."""
        return f"piece-{self.shard:03}-{self.part:04}-of-{self.parts:04}"

    def has(self, spooled: Spooled) -> bool:
        """Whether a record of the shard is of this piece."""
        return spooled.part % self.parts == self.part


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Spooled).decode


class SpoolWriter:
    """Deals records out to the files of a folder; ``sizes`` are those to go on from, or none."""

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

    def add(self, place: Place, number: int, record: Record) -> int:
        """Write one record; the bytes that it takes."""
        data = _ENCODE(Spooled(number, place.part, record.value, record.key, record.timestamp_ms))
        shard = place.shard % SHARDS
        file = self._files[shard]
        file.write(len(data).to_bytes(LENGTH_BYTES, "big"))
        file.write(data)
        taken = LENGTH_BYTES + len(data)
        self.sizes[shard] += taken
        return taken

    def flush(self) -> list[int]:
        """See that all that was added is in the files; their sizes."""
        for file in self._files:
            file.flush()
        return list(self.sizes)


def spool_path(folder: Path, shard: int) -> Path:
    """The file of a shard."""
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
    """The record that begins here; raises ``SpoolDamaged``."""
    return _read(file, path)[0]


def _read(file: IO[bytes], path: Path) -> tuple[Spooled, int]:
    """The record that begins here, and the bytes that it takes."""
    length = int.from_bytes(file.read(LENGTH_BYTES), "big")
    data = file.read(length)
    try:
        if length and len(data) == length:
            return _DECODE(data), LENGTH_BYTES + length
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise SpoolDamaged(
        f"{path}: what is there is no record; it was cut or overwritten. Use --restart"
    )
