"""Decompresses record batches up to a size limit.

A broker limits only the compressed size of a batch; one megabyte can expand to many gigabytes.
``kafka.aiokafka_private`` installs these functions in place of aiokafka's.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from typing import Final

import cramjam

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


class BatchTooLarge(Exception):
    """The decompressed batch is larger than the limit."""


def gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Decompress gzip; raises ``BatchTooLarge``, or ``OSError`` and others for invalid data."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as members:
        return _check_size(members.read(limit_bytes + 1), limit_bytes)


def decompress_zstd(data: bytes, limit_bytes: int) -> bytes:
    """Decompress zstd, likewise."""
    return _decompress_into_buffer(cramjam.zstd.decompress_into, data, limit_bytes)


def unlz4(data: bytes, limit_bytes: int) -> bytes:
    """Decompress lz4 frames, likewise."""
    return _decompress_into_buffer(cramjam.lz4.decompress_into, data, limit_bytes)


def unsnappy(data: bytes, limit_bytes: int) -> bytes:
    """Decompress snappy, likewise: one block, or several, each preceded by its size."""
    if not data.startswith(_XERIAL):
        return _unsnappy_block(data, limit_bytes)
    blocks, at, size = [], _XERIAL_HEADER_BYTES, 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        blocks.append(_unsnappy_block(data[at + 4 : end], limit_bytes - size))
        size += len(blocks[-1])
        at = end
    return b"".join(blocks)


def _unsnappy_block(data: bytes, limit_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > limit_bytes:  # as the block declares
        raise BatchTooLarge
    return bytes(cramjam.snappy.decompress_raw(data))


def _decompress_into_buffer(
    decompress: Callable[[bytes, bytearray], int], data: bytes, limit_bytes: int
) -> bytes:
    """Decompress into a reused buffer, which grows up to the limit."""
    while True:
        try:
            size = decompress(data, _buffer)
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL not in str(error):
                raise
            if len(_buffer) > limit_bytes:
                raise BatchTooLarge from None
            _buffer.extend(bytes(min(3 * len(_buffer), limit_bytes + 1 - len(_buffer))))
        else:
            return _check_size(bytes(memoryview(_buffer)[:size]), limit_bytes)


_buffer: Final = bytearray(1 << 20)
_BUFFER_FULL: Final = "failed to write whole buffer"


def _check_size(found: bytes, limit_bytes: int) -> bytes:
    if len(found) > limit_bytes:
        raise BatchTooLarge
    return found


DECODERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip_decode": gunzip,
    "snappy_decode": unsnappy,
    "lz4_decode": unlz4,
    "zstd_decode": decompress_zstd,
}
