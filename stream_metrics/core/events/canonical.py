"""The canonical form of an event's JSON and its SHA-256.

This digest orders events with equal time and id but different content. It must not depend on key
order, white space or the library that wrote the record.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import msgspec

DIGEST_BYTES: Final = 16

# The largest double has 309 digits. All digits are mapped to 0 to find such a run quickly.
_LONG_RUN: Final = b"0" * 309
_DIGITS_ALIKE: Final = bytes.maketrans(b"123456789", b"0" * 9)

_ENCODE = msgspec.json.Encoder(order="deterministic").encode


class _FloatHook:
    """Parses the floats of a document and records whether one may be formatted differently.

    Python's ``repr`` and the fast encoder differ only for numbers with an exponent.
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


def decode_json(raw: bytes) -> tuple[Any, bool]:
    """Decode JSON; returns the value and whether ``content_digest`` needs the slow encoder.

    Raises msgspec's and Python's decoding errors, all of them ``ValueError`` or
    ``RecursionError``.
    """
    floats = _FloatHook()  # of this call: threads decode at the same time
    obj = msgspec.json.Decoder(float_hook=floats).decode(raw)
    return obj, floats.delicate or _LONG_RUN in raw.translate(_DIGITS_ALIKE)


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

    Raises ``OverflowError`` for an integer beyond the range of a double, on which JSON readers
    disagree.
    """
    if delicate:
        _check_integers(obj)
    return hashlib.sha256(canonical_json(obj, delicate=delicate)).digest()[:DIGEST_BYTES]
