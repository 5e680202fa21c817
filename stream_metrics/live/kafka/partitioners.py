"""The default partitioners of Kafka clients, which choose the partition of a key.

``murmur2`` is aiokafka's; the library has none of the others.
"""

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
"""Functions from a key and a partition count to a partition number, by name.

``murmur2`` is the default of the Java client, ``crc32`` that of librdkafka
(``consistent_random``), ``fnv1a`` that of Sarama and kafka-go (``Hash``).

>>> [PARTITIONERS[name](b"c-100", 12) for name in PARTITIONERS]
[7, 3, 0]
"""
