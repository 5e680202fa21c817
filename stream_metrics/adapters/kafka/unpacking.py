"""Decompressing record batches up to a limit, and what is said of those that cannot be read.

A broker bounds what a record batch is before decompression; a megabyte of it can hold many
gigabytes. ``adapters.kafka.internals`` puts these in the place of aiokafka's own.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from typing import Final

import cramjam

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


class TooLarge(Exception):
    """More bytes than the limit."""


def gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Decompressed gzip; raises ``TooLarge``, or ``OSError`` and others for what is none."""
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
        raise TooLarge
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
                raise TooLarge from None
            _buffer.extend(bytes(min(3 * len(_buffer), limit_bytes + 1 - len(_buffer))))
        else:
            return _within(bytes(memoryview(_buffer)[:size]), limit_bytes)


_buffer: Final = bytearray(1 << 20)
_BUFFER_FULL: Final = "failed to write whole buffer"


def _within(found: bytes, limit_bytes: int) -> bytes:
    if len(found) > limit_bytes:
        raise TooLarge
    return found


DECODERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip_decode": gunzip,
    "snappy_decode": unsnappy,
    "lz4_decode": unlz4,
    "zstd_decode": unzstd,
}
