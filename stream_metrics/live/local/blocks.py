"""Records of a topic in blocks: what is appended together is compressed together.

Events resemble each other, so a block takes about a sixth of their bytes, and less is written. The
records of a block have one timestamp.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from stream_metrics.core.events.record import Record
from stream_metrics.live.local.database import insert_rows

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BLOCK_RECORDS: Final = 128
BLOCK_BYTES: Final = 256 << 10
"""So large a block becomes before its values are compressed, unless one value alone is larger."""

NO_SPANS: Final = b'{"resourceSpans":[]}'
"""The value of records whose block was emptied."""

_COLUMNS: Final = '"offset", records, timestamp_ms, content'

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[tuple[bytes | None, bytes | None]]).decode
_COMPRESSION: Final[Mapping[int, int]] = {
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.checksum_flag: 1,
}


class BlockDamaged(sqlite3.DatabaseError):
    """The content of a block is not what was stored; SQLite has no checksums that would tell."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


class Block(NamedTuple):
    """Records in a row, the first of which is at ``offset``; without content they were emptied."""

    offset: int
    records: int
    timestamp_ms: int
    content: bytes | None

    @property
    def end(self) -> int:
        """The offset behind its last record."""
        return self.offset + self.records

    def unpacked(self, topic: str) -> list[Record]:
        """Its records."""
        at, stamp, content = self.offset, self.timestamp_ms, self.content
        if content is None:
            return [Record(NO_SPANS, None, stamp, topic, 0, n) for n in range(at, self.end)]
        pairs = self._pairs(content)
        return [Record(value, key, stamp, topic, 0, n) for n, (key, value) in enumerate(pairs, at)]

    def distinct_keys(self) -> set[bytes]:
        """The keys of its records."""
        if self.content is None:
            return set()
        return {key for key, _ in self._pairs(self.content) if key is not None}

    def _pairs(self, content: bytes) -> list[tuple[bytes | None, bytes | None]]:
        """The keys and values; raises ``BlockDamaged``."""
        try:
            pairs = _decode(zstd.decompress(content))
        except (zstd.ZstdError, msgspec.MsgspecError) as error:
            raise BlockDamaged(f"the records from offset {self.offset} on: {error}") from error
        if len(pairs) != self.records:
            raise BlockDamaged(f"the records from offset {self.offset} on are not {self.records}")
        return pairs


def add_blocks(connection: sqlite3.Connection, topic: str, records: Sequence[Record]) -> None:
    """Store records that follow the last ones of a topic."""
    blocks, keys = list[Block](), list[tuple[bytes, int, int]]()
    for part in _parts(records):
        first = part[0]
        content = zstd.compress(
            _encode([(one.key, one.value) for one in part]), options=_COMPRESSION
        )
        blocks.append(Block(first.offset, len(part), first.timestamp_ms or 0, content))
        last = {one.key: one.offset for one in part}
        keys += [(key, first.offset, offset) for key, offset in last.items() if key is not None]
    insert_rows(connection, f"INSERT INTO {topic} VALUES", blocks)
    insert_rows(connection, f"INSERT INTO {topic}_keys VALUES", keys)


def _parts(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """The records of each block."""
    begin = size = 0
    for at, record in enumerate(records):
        size += len(record.value or b"")
        full = at - begin == BLOCK_RECORDS or size > BLOCK_BYTES
        if at > begin and (full or record.timestamp_ms != records[begin].timestamp_ms):
            yield records[begin:at]
            begin, size = at, len(record.value or b"")
    if records:
        yield records[begin:]


def blocks_from(connection: sqlite3.Connection, topic: str, offset: int) -> Iterator[Block]:
    """The blocks from the one with an offset on, in order."""
    statement = (
        f'SELECT {_COLUMNS} FROM {topic} WHERE "offset" >= '  # noqa: S608
        f'coalesce((SELECT max("offset") FROM {topic} WHERE "offset" <= ?1), ?1) ORDER BY "offset"'
    )
    return (block for block in _blocks(connection, statement, offset) if block.end > offset)


def records_from(connection: sqlite3.Connection, topic: str, offset: int) -> Iterator[Record]:
    """The records from an offset on, in order."""
    for block in blocks_from(connection, topic, offset):
        for record in block.unpacked(topic):
            if record.offset >= offset:
                yield record


def records_before(connection: sqlite3.Connection, topic: str, offset: int) -> Iterator[Record]:
    """The records before an offset, the last one first."""
    statement = f'SELECT {_COLUMNS} FROM {topic} WHERE "offset" < ? ORDER BY "offset" DESC'  # noqa: S608
    for block in _blocks(connection, statement, offset):
        for record in reversed(block.unpacked(topic)):
            if record.offset < offset:
                yield record


def records_of_key(
    connection: sqlite3.Connection, topic: str, key: bytes, after: int
) -> Iterator[Record]:
    """The records with a key behind an offset, in order."""
    statement = (
        f'SELECT {_COLUMNS} FROM {topic}_keys JOIN {topic} USING ("offset") '  # noqa: S608
        'WHERE key = ? AND last > ? ORDER BY "offset"'
    )
    for block in _blocks(connection, statement, key, after):
        for record in block.unpacked(topic):
            if record.key == key and record.offset > after:
                yield record


def last_of_key(connection: sqlite3.Connection, topic: str, key: bytes) -> int | None:
    """The offset of the last record with a key."""
    statement = f'SELECT last FROM {topic}_keys WHERE key = ? ORDER BY "offset" DESC LIMIT 1'  # noqa: S608
    found = connection.execute(statement, (key,)).fetchone()
    return None if found is None else int(found[0])


def delete_blocks(connection: sqlite3.Connection, topic: str, blocks: Iterable[Block]) -> None:
    """Delete blocks, and note their keys no more."""
    for block in blocks:
        _delete_keys(connection, topic, block)
        connection.execute(f'DELETE FROM {topic} WHERE "offset" = ?', (block.offset,))  # noqa: S608


def empty_block(connection: sqlite3.Connection, topic: str, block: Block) -> None:
    """Delete the content of a block whose records are spans; their offsets stay."""
    _delete_keys(connection, topic, block)
    connection.execute(
        f'UPDATE {topic} SET content = NULL WHERE "offset" = ?',  # noqa: S608
        (block.offset,),
    )


def _delete_keys(connection: sqlite3.Connection, topic: str, block: Block) -> None:
    connection.executemany(
        f'DELETE FROM {topic}_keys WHERE key = ? AND "offset" = ?',  # noqa: S608
        [(key, block.offset) for key in block.distinct_keys()],
    )


def _blocks(connection: sqlite3.Connection, statement: str, *values: Any) -> Iterator[Block]:
    return map(Block._make, connection.execute(statement, values))
