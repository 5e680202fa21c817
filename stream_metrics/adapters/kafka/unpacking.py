"""What a fetch may take in memory once it is decompressed.

A broker bounds what a record batch is before decompression; a megabyte of it can hold many
gigabytes. aiokafka decompresses whatever comes, so its decompressors are replaced, for the whole
process, by ones with a limit (``bound_batches``). One round of fetching (a call of ``getmany``)
takes up to ``ROUND`` times that limit, of all partitions; what is beyond is fetched again.
"""

from __future__ import annotations

import asyncio
import gzip
import io
from collections.abc import Callable
from typing import Any, Final

import cramjam
from aiokafka.consumer import fetcher
from aiokafka.errors import KafkaError
from aiokafka.record import default_records, legacy_records
from aiokafka.record._crecords import default_records as compiled_default
from aiokafka.record._crecords import legacy_records as compiled_legacy

ROUND: Final = 4
FEW_HEADERS: Final = 1_000
HEADER_BYTES: Final = 64  # what a header takes as Python objects
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


class UnreadableBatch(KafkaError):  # type: ignore[misc]
    """A record batch that cannot be read: where it is, and why.

    Records that were read before it may be lost with the call that raises: seek back.
    """

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        self.message = f"the batch at offset {offset} of {topic} [{partition}] {why}"
        super().__init__(self.message)
        self.topic = topic
        self.partition = partition


class _TooLarge(Exception):
    """More bytes than the limit."""


class _RoundFull(Exception):
    """This round has taken enough."""


class _Round:
    """How much the present round of fetching may take, and has taken.

    aiokafka hands out what it has fetched without a pause, so that a round ends when the event loop
    comes round again.
    """

    def __init__(self) -> None:
        self.limit_bytes = 0
        self._taken = 0

    def weigh(self, record: Any) -> None:
        """Count what a record's headers take, which can be many times what they were sent as."""
        if len(record.headers) > FEW_HEADERS:
            self._take(HEADER_BYTES * len(record.headers))

    def decompress(self, decode: Callable[[bytes, int], bytes], data: bytes) -> bytes:
        """One batch decompressed; the first of a round always may be as large as the limit."""
        if self._taken >= ROUND * self.limit_bytes:
            raise _RoundFull
        found = decode(data, self.limit_bytes)
        self._take(len(found))
        return found

    def _take(self, size_bytes: int) -> None:
        if not self._taken:
            try:
                asyncio.get_running_loop().call_soon(self._end)
            except RuntimeError:  # nobody fetches
                return
        self._taken += size_bytes

    def _end(self) -> None:
        self._taken = 0


_round: Final = _Round()


def bound_batches(limit_bytes: int) -> None:
    """Let no batch of any Kafka consumer of this process be larger than that, decompressed."""
    _round.limit_bytes = limit_bytes
    fetcher.PartitionRecords = _Records
    for name, decode in _DECODERS.items():
        bounded = _bounded(decode)
        for module in (default_records, legacy_records, compiled_default, compiled_legacy):
            if hasattr(module, name):
                setattr(module, name, bounded)


def _bounded(decode: Callable[[bytes, int], bytes]) -> Callable[[Any], bytes]:
    return lambda payload: _round.decompress(decode, bytes(payload))


def gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Decompressed gzip; raises ``_TooLarge``, or ``OSError`` and others for what is none."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as members:
        return _within(members.read(limit_bytes + 1), limit_bytes)


def unzstd(data: bytes, limit_bytes: int) -> bytes:
    """Decompressed zstd, likewise."""
    return _into(cramjam.zstd.decompress_into, data, limit_bytes)


def unlz4(data: bytes, limit_bytes: int) -> bytes:
    """Decompressed lz4 frames, likewise."""
    return _into(cramjam.lz4.decompress_into, data, limit_bytes)


def unsnappy(data: bytes, limit_bytes: int) -> bytes:
    """Decompressed snappy, likewise: one block, or several each with its size before it."""
    if not data.startswith(_XERIAL):
        return _block(data, limit_bytes)
    blocks, at, size = [], _XERIAL_HEADER_BYTES, 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        blocks.append(_block(data[at + 4 : end], limit_bytes - size))
        size += len(blocks[-1])
        at = end
    return b"".join(blocks)


def _block(data: bytes, limit_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > limit_bytes:  # what the block says of itself
        raise _TooLarge
    return bytes(cramjam.snappy.decompress_raw(data))


def _into(decompress: Callable[[bytes, bytearray], int], data: bytes, limit_bytes: int) -> bytes:
    """Decompress into a buffer, which is kept, and grows up to the limit."""
    while True:
        try:
            size = decompress(data, _buffer)
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL not in str(error):
                raise
            if len(_buffer) > limit_bytes:
                raise _TooLarge from None
            _buffer.extend(bytes(min(3 * len(_buffer), limit_bytes + 1 - len(_buffer))))
        else:
            return _within(bytes(memoryview(_buffer)[:size]), limit_bytes)


_buffer: Final = bytearray(1 << 20)
_BUFFER_FULL: Final = "failed to write whole buffer"


def _within(found: bytes, limit_bytes: int) -> bytes:
    if len(found) > limit_bytes:
        raise _TooLarge
    return found


_DECODERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip_decode": gunzip,
    "snappy_decode": unsnappy,
    "lz4_decode": unlz4,
    "zstd_decode": unzstd,
}


class _Records(fetcher.PartitionRecords):  # type: ignore[misc]
    """A partition's fetched records; they end early where the round is full."""

    def __next__(self) -> Any:
        try:
            record = super().__next__()
        except (StopIteration, KafkaError):
            raise
        except _RoundFull:
            raise StopIteration from None
        except _TooLarge:
            why = (
                f"is larger than {_round.limit_bytes} bytes decompressed (`kafka.max_batch_bytes`)"
            )
        except Exception as error:  # whatever a decompressor says of bytes that are none of its own
            why = f"cannot be read ({type(error).__name__})"
        else:
            _round.weigh(record)
            return record
        raise UnreadableBatch(
            self._tp.topic, self._tp.partition, self.next_fetch_offset, why
        ) from None
