"""Bounds what decoding a payload takes, before it is decoded.

A message without content is two bytes in protobuf, and a hundred times as many once it is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stream_metrics.core.events.bodies import MAX_PARTS, has_too_many_parts

MAX_MESSAGES: Final = 1_000_000
MAX_LEVELS: Final = 200  # twice as many as protobuf reads
LIGHT_BYTES: Final = 1 << 20  # a smaller payload is never too heavy

_Fields = dict[int, "_Fields"]
"""The fields that are messages, by number, and the same of them."""

_ANY: _Fields = {}
_ATTRIBUTE: Final[_Fields] = {2: _ANY}
_ANY.update({5: {1: _ANY}, 6: {1: _ATTRIBUTE}})
_RESOURCE: Final[_Fields] = {1: _ATTRIBUTE}
_SCOPE: Final[_Fields] = {3: _ATTRIBUTE}
_SPAN: Final[_Fields] = {9: _ATTRIBUTE, 11: {3: _ATTRIBUTE}, 13: {4: _ATTRIBUTE}, 15: {}}
_RECORD: Final[_Fields] = {5: _ANY, 6: _ATTRIBUTE}
_SIGNALS: Final[Mapping[str, _Fields]] = {
    signal: {1: {1: _RESOURCE, 2: {1: _SCOPE, 2: one}}}
    for signal, one in (("spans", _SPAN), ("logs", _RECORD))
}


def is_too_heavy(
    value: bytes, signal: str, *, as_json: bool, most: int = MAX_MESSAGES, marks: int = MAX_PARTS
) -> bool:
    """Whether a payload has so many parts that decoding it would take much more memory than it
    has bytes.

    >>> is_too_heavy(bytes([10, 6, 18, 4, 18, 0, 18, 0]) * 2, "spans", as_json=False, most=7)
    True
    >>> is_too_heavy(bytes([10, 6, 18, 4, 18, 0, 18, 0]) * 2, "spans", as_json=False, most=8)
    False
    """
    if as_json:
        return has_too_many_parts(value, marks)
    return _messages(value, _SIGNALS[signal], most) > most


def _messages(value: bytes, fields: _Fields, most: int) -> int:
    """The number of messages in a message, counted up to ``most`` and one; of one that cannot be
    parsed, those that come before the error."""
    at, end, known, number = 0, len(value), fields, 0
    around: list[tuple[int, int, _Fields]] = []  # where reading goes on
    try:
        while number <= most and len(around) < MAX_LEVELS:
            if at >= end:
                if not around:
                    break
                at, end, known = around.pop()
                continue
            tag, at = _varint(value, at)
            kind = tag & 7
            if kind == 2:
                length, at = _varint(value, at)
                inner = known.get(tag >> 3)
                number += inner is not None
                if inner and length:
                    around.append((at + length, end, known))
                    at, end, known = at, min(at + length, end), inner
                else:
                    at += length
            elif kind == 0:
                _, at = _varint(value, at)
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            else:
                break
    except IndexError:
        pass  # it ends too early, which decoding says
    return number


def _varint(value: bytes, at: int) -> tuple[int, int]:
    byte = value[at]
    if byte < 0x80:
        return byte, at + 1
    found, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = value[at]
        found |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            return found, at + 1
        shift += 7
