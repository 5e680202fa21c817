"""Where producers put a key: the partitioners that Kafka's clients have by default."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from aiokafka.partitioner import murmur2

_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193


def _murmur2(key: bytes, count: int) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % count


def _crc32(key: bytes, count: int) -> int:
    return zlib.crc32(key) % count


def _fnv1a(key: bytes, count: int) -> int:
    found = _FNV_OFFSET
    for byte in key:
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    signed = found - (1 << 32) if found & 1 << 31 else found
    return abs(signed) % count


PARTITIONERS: Final[dict[str, Callable[[bytes, int], int]]] = {
    "murmur2": _murmur2,
    "crc32": _crc32,
    "fnv1a": _fnv1a,
}
"""By name: the partition of a key among so many.

``murmur2`` is that of Java's client, ``crc32`` that of librdkafka's (``consistent_random``),
``fnv1a`` that of Sarama and kafka-go (``Hash``).

>>> [PARTITIONERS[name](b"c-100", 12) for name in PARTITIONERS]
[7, 3, 0]
"""
