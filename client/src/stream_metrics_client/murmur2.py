"""Kafka's default partitioner, on which all producers to the worker's topics must agree."""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit hash that Kafka's Java client uses.

    >>> murmur2(b"21"), murmur2(b"foobar")
    (3321034988, 3504634814)
    """
    length = len(data)
    found = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        found = (found * _M & _MASK) ^ word
    if whole != length:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15


def partition(key: bytes, count: int) -> int:
    """The partition of a key on a topic with `count` partitions.

    >>> partition(b"c-100", 12)
    7
    """
    return (murmur2(key) & 0x7FFFFFFF) % count
