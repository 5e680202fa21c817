"""Records on disk, distributed to files so that each conversation is in one file.

The number of files is fixed. The number of processes affects neither their content nor the results.
Of records that can be read again, the spool has only the places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from struct import Struct
from typing import IO, Any, Final, NamedTuple, Self

import msgspec

from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.key import key_of
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.files import FileRange, StoredRecord, read_again
from stream_metrics.lab.sources.place import LocatedRecord
from stream_metrics.lab.sources.unchanged import (
    FileState,
    InputChanged,
    check_unchanged,
    open_known,
)

SHARDS: Final = 64
BUFFER_BYTES: Final = 128 << 10
LENGTH_BYTES: Final = 4

_NUMBERS: Final = Struct(">II").unpack


class SpoolDamaged(Exception):
    """A spool file does not contain what was written to it."""


class SpoolKey(NamedTuple):
    """Two independent hash values that select a record's shard and part."""

    shard: int
    part: int


def spool_key(record: Record, number: int, limits: Limits) -> SpoolKey:
    """Hash the conversation id or, of a record that names none, a number of its own.

    >>> spool_key(Record(b'{"conversation_id": "c-1"}'), 7, Limits()).shard % SHARDS
    17
    """
    key = key_of(record.value, record.timestamp_ms, limits)
    data = str(number).encode() if isinstance(key, BadRecord) else key
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return SpoolKey._make(_NUMBERS(digest))


class Spooled(msgspec.Struct, array_like=True, tag=0, gc=False, frozen=True):
    """A record as read: its number in a source, everything that an event depends on, and its place.

    ``part`` is that of its ``SpoolKey``; ``source`` is the index of its source in a ``Spool``.
    """

    source: int
    number: int
    part: int
    value: bytes | None
    key: bytes | None
    timestamp_ms: Any
    topic: str
    partition: int
    offset: int

    @property
    def record(self) -> Record:
        """The record."""
        place = (self.topic, self.partition, self.offset)
        return Record(self.value, self.key, self.timestamp_ms, *place)


class SpooledPlaces(msgspec.Struct, array_like=True, tag=1, gc=False, frozen=True):
    """The places of records that can be read again, each in ``PLACE``."""

    places: bytes


PLACE: Final = Struct("<IQIQI")
"""Source, number and part of a record, as in ``Spooled``; where its bytes start, and their size."""
ENTRY_BYTES: Final = 32_768 * PLACE.size
"""The most bytes of places in one entry."""


class SpoolSource(msgspec.Struct, array_like=True, frozen=True):
    """A source of records, or a range of one.

    Attributes:
        name: Its name; the absolute path of a plain file.
        start: How many lines of the file precede it. The numbers in the spool count from here.
        lines: How many lines a range has; 0 for a whole source.
        file: The state of a plain file; None for other sources.
    """

    name: str
    start: int = 0
    lines: int = 0
    file: FileState | None = None


class Spool(msgspec.Struct):
    """What has been written to a spool.

    Attributes:
        sizes: The sizes of its files.
        held: The bytes of their records, wherever these are.
        sources: The sources of its records.
    """

    sizes: list[int]
    held: list[int]
    sources: list[SpoolSource]

    @classmethod
    def empty(cls, shards: int = SHARDS) -> Self:
        """A spool without records."""
        return cls([0] * shards, [0] * shards, [])


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

    def has(self, part: int) -> bool:
        """Whether a record of the shard with this part of its key belongs to this piece."""
        return part % self.parts == self.part


class IndexedLines(NamedTuple):
    """What a range of a file has for a spool.

    Attributes:
        lines, records: How many.
        places: For each file of the spool, the places of its records.
        held: The bytes of these records.
    """

    lines: int
    records: int
    places: list[bytes]
    held: list[int]


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Spooled | SpooledPlaces).decode


def _entry(spooled: Spooled | SpooledPlaces) -> bytes:
    """An entry as it is in a file of the spool."""
    data = _ENCODE(spooled)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


class SpoolWriter:
    """Distributes records to the files of a folder, which are open until ``close``.

    ``spool`` is what they have to begin with; None: there are ``shards`` new files.
    """

    def __init__(self, folder: Path, spool: Spool | None = None, *, shards: int = SHARDS) -> None:
        self._spool = Spool.empty(shards) if spool is None else spool
        self._sources = {(one.name, one.file): at for at, one in enumerate(self._spool.sources)}
        self._files: list[IO[bytes]] = []
        self._open = ExitStack()
        for shard, size in enumerate(self._spool.sizes):
            mode = "wb" if spool is None else "r+b"
            path = spool_path(folder, shard)
            file = self._open.enter_context(path.open(mode, buffering=BUFFER_BYTES))
            file.truncate(size)
            file.seek(size)
            self._files.append(file)

    def close(self) -> None:
        """Close its files."""
        self._open.close()

    def add(self, key: SpoolKey, located: LocatedRecord) -> int:
        """Write a record, or where it is; returns its size in bytes."""
        name, number, record = located
        if isinstance(record, StoredRecord):
            held, source = record.length, self._source(record.path, record.file)
            data = _entry(SpooledPlaces(PLACE.pack(source, number, key.part, record.start, held)))
        else:
            sent = (record.value, record.key, record.timestamp_ms)
            place = (record.topic, record.partition, record.offset)
            data = _entry(Spooled(self._source(name), number, key.part, *sent, *place))
            held = len(data)
        shard = key.shard % len(self._files)
        self._write(shard, data)
        self._spool.held[shard] += held
        return held

    def add_range(self, part: FileRange, found: IndexedLines) -> None:
        """Write the places of a range, the first one of a file or the next."""
        before = 0
        if part.start:
            before = self._spool.sources[-1].start + self._spool.sources[-1].lines
        path = _absolute(part.path)
        self._spool.sources.append(SpoolSource(path, before, found.lines, part.file))
        for shard, (places, held) in enumerate(zip(found.places, found.held, strict=True)):
            for at in range(0, len(places), ENTRY_BYTES):
                self._write(shard, _entry(SpooledPlaces(places[at : at + ENTRY_BYTES])))
            self._spool.held[shard] += held

    def _write(self, shard: int, data: bytes) -> None:
        self._files[shard].write(data)
        self._spool.sizes[shard] += len(data)

    def _source(self, name: str, file: FileState | None = None) -> int:
        found = self._sources.get((name, file))
        if found is None:
            found = self._sources[name, file] = len(self._spool.sources)
            path = name if file is None else _absolute(name)
            self._spool.sources.append(SpoolSource(path, file=file))
        return found

    def flush(self) -> Spool:
        """Flush the files; returns what they have."""
        for file in self._files:
            file.flush()
        return self._spool


def _absolute(path: str) -> str:
    """The path in any working directory: it may be another one when the path is opened."""
    return str(Path.cwd() / path)


def spool_path(folder: Path, shard: int) -> Path:
    """The path of a shard's file."""
    return folder / f"shard-{shard:03}.spool"


def _position(source: int, start: int, length: int) -> int:
    """The position of a record in a plain file: negative, unlike those in the spool."""
    return ~(source << 96 | start << 32 | length)


def _place(position: int) -> tuple[int, int, int]:
    """The inverse of ``_position``."""
    place = ~position
    return place >> 96, place >> 32 & (1 << 64) - 1, place & (1 << 32) - 1


class SpooledRecords:
    """The records of a piece of the spool in ``folder``, whose files are open until ``close``.

    ``sources`` are those of ``Spool``. Reading raises ``SpoolDamaged``, ``InputChanged`` and
    ``OSError``.
    """

    def __init__(self, folder: Path, piece: Piece, sources: Sequence[SpoolSource]) -> None:
        self._path, self._piece, self._sources = spool_path(folder, piece.shard), piece, sources
        self._open = ExitStack()
        self._file = self._open.enter_context(self._path.open("rb"))
        self._plain_open = self._open.enter_context(ExitStack())
        self._plain: tuple[str, FileState | None] = ("", None)  # the plain file that is open
        self._descriptor = -1

    def close(self) -> None:
        """Close its files; raises ``InputChanged``."""
        self._open.close()

    def each(self) -> Iterator[tuple[int, LocatedRecord]]:
        """All records, each preceded by its position for ``at``."""
        at, size = 0, self._piece.size
        with self._path.open("rb", buffering=BUFFER_BYTES) as file:
            while at < size:
                entry, taken = self._read(file)
                if isinstance(entry, SpooledPlaces):
                    yield from self._each_of(entry.places)
                elif self._piece.has(entry.part):
                    source = self._sources[entry.source]
                    yield at, (source.name, source.start + entry.number, entry.record)
                at += taken
        if at != size:
            raise SpoolDamaged(
                f"{self._path}: a record ends beyond the {size} bytes that were written"
            )

    def _each_of(self, places: bytes) -> Iterator[tuple[int, LocatedRecord]]:
        """The records of a sequence of ``PLACE``."""
        for at, number, part, start, length in PLACE.iter_unpack(places):
            if self._piece.has(part):
                source = self._sources[at]
                record = self._record(source, start, length)
                yield _position(at, start, length), (source.name, source.start + number, record)

    def at(self, position: int) -> Record:
        """The record at a position."""
        if position < 0:
            source, start, length = _place(position)
            return self._record(self._sources[source], start, length)
        self._file.seek(position)
        entry, _ = self._read(self._file)
        assert isinstance(entry, Spooled)
        return entry.record

    def _record(self, source: SpoolSource, start: int, length: int) -> Record:
        plain = source.name, source.file
        if self._plain != plain:
            self._open_plain(*plain)
        record = read_again(self._descriptor, start, length)
        if record is None:
            raise InputChanged(source.name, "cut off")
        return record

    def _open_plain(self, path: str, known: FileState | None) -> None:
        """Open a plain file instead of the one that is open. Both are checked for changes."""
        assert known is not None
        self._plain_open.close()
        file = self._plain_open.enter_context(open_known(path, known))
        self._plain, self._descriptor = (path, known), file.fileno()
        self._plain_open.callback(check_unchanged, self._descriptor, path, known)

    def _read(self, file: IO[bytes]) -> tuple[Spooled | SpooledPlaces, int]:
        """Read at the current position; returns what is there and its size in bytes."""
        length = int.from_bytes(file.read(LENGTH_BYTES), "big")
        data = file.read(length)
        try:
            if length and len(data) == length:
                entry = _DECODE(data)
                if isinstance(entry, Spooled) or not len(entry.places) % PLACE.size:
                    return entry, LENGTH_BYTES + length
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        raise SpoolDamaged(
            f"{self._path}: not a record; the file was truncated or overwritten. Use --restart"
        )
