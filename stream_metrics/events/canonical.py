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


def canonical_json(obj: Any, raw: bytes) -> bytes:
    """``obj`` (decoded from ``raw``) with sorted keys, no spaces, floats as Python's ``repr``."""
    if _DELICATE_NUMBER.search(raw) is None:
        return _ENCODE(obj)
    text = json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def content_digest(obj: Any, raw: bytes) -> bytes:
    """The first 16 bytes of the SHA-256 of the canonical JSON; compared as unsigned, big-endian."""
    return hashlib.sha256(canonical_json(obj, raw)).digest()[:DIGEST_BYTES]
