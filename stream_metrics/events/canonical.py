"""The canonical form of an event's JSON and its SHA-256.

Two events of one version but different content are put in order by this digest, so it must not
depend on key order, white space or the library that wrote the record.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import msgspec

DIGEST_BYTES: Final = 16

# The largest double has 309 digits; digits are made alike to find a run of so many quickly.
_LONG_RUN: Final = b"0" * 309
_DIGITS_ALIKE: Final = bytes.maketrans(b"123456789", b"0" * 9)

_ENCODE = msgspec.json.Encoder(order="deterministic").encode


class _FloatWatch:
    """Reads the floats of a document, and notes whether one may be written in several ways.

    Python's ``repr`` and the fast encoder agree but for numbers that are written with an exponent.
    """

    __slots__ = ("delicate",)

    def __init__(self) -> None:
        self.delicate = False

    def __call__(self, text: str) -> float:
        value = float(text)
        if not 1e-4 <= value < 1e16 and value != 0.0:
            if value - value != 0.0:
                raise ValueError("a number beyond the range of a double")
            if not 1e-4 <= -value < 1e16:
                self.delicate = True
        return value


_watch: Final = _FloatWatch()
_DECODE = msgspec.json.Decoder(float_hook=_watch).decode


def decode_json(raw: bytes) -> tuple[Any, bool]:
    """The JSON value, and whether its floats need the slow form of ``content_digest``.

    Raises msgspec's and Python's decoding errors, all of them ``ValueError`` or
    ``RecursionError``.
    """
    _watch.delicate = False
    obj = _DECODE(raw)
    return obj, _watch.delicate or _LONG_RUN in raw.translate(_DIGITS_ALIKE)


def canonical_json(obj: Any, *, delicate: bool = True) -> bytes:
    """``obj`` with sorted keys, no spaces, floats as Python's ``repr``, in UTF-8."""
    if not delicate:
        return _ENCODE(obj)
    text = json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _check_integers(obj: Any) -> None:
    pending = [obj]
    while pending:
        item = pending.pop()
        if type(item) is dict:
            pending.extend(item.values())
        elif type(item) is list:
            pending.extend(item)
        elif type(item) is int:
            float(item)


def content_digest(obj: Any, *, delicate: bool = True) -> bytes:
    """The first 16 bytes of the SHA-256 of the canonical JSON; compared as unsigned, big-endian.

    Raises ``OverflowError`` for an integer that no double can stand for: JSON readers disagree
    about it.
    """
    if delicate:
        _check_integers(obj)
    return hashlib.sha256(canonical_json(obj, delicate=delicate)).digest()[:DIGEST_BYTES]
