"""The canonical form of an event's JSON and its SHA-256.

Two events of one version but different content are put in order by this digest, so it must not
depend on key order, white space or the library that wrote the record.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import msgspec

_ENCODE = msgspec.json.Encoder(order="deterministic").encode

# A number whose shortest form may be written in more than one way (exponent, many digits, tiny).
_DELICATE_NUMBER = re.compile(rb"[:\[,][ \t\r\n]*-?(?:0\.0000|\d+(?:\.\d*)?[eE]|\d{16})")

DIGEST_BYTES = 16


_PAST_DOUBLES = 2**1024 - 2**970  # the smallest integer that no longer rounds to a double


def canonical_json(obj: Any, raw: bytes) -> bytes:
    """``obj`` (the object or list in ``raw``): sorted keys, no spaces, floats as in ``repr``."""
    return _ENCODE(obj) if _DELICATE_NUMBER.search(raw) is None else _slowly(obj)


def content_digest(obj: Any, raw: bytes) -> bytes:
    """The first 16 bytes of the SHA-256 of the canonical JSON; compared as unsigned, big-endian.

    Raises:
        OverflowError: An integer is beyond the doubles, so that JSON readers disagree about it.
    """
    if _DELICATE_NUMBER.search(raw) is None:
        text = _ENCODE(obj)
    else:
        _check_integers(obj)
        text = _slowly(obj)
    return hashlib.sha256(text).digest()[:DIGEST_BYTES]


def _slowly(obj: Any) -> bytes:
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _check_integers(obj: Any) -> None:
    kind = type(obj)
    if kind is dict:
        for value in obj.values():
            _check_integers(value)
    elif kind is list:
        for value in obj:
            _check_integers(value)
    elif kind is int and not -_PAST_DOUBLES < obj < _PAST_DOUBLES:
        raise OverflowError
