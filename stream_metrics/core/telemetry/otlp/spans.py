"""Parts that both encodings of spans share."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from stream_metrics.core.telemetry.spans import NO_ID

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
MAX_NS: Final = 2**63 - 1

_HEX: Final = re.compile(r"[0-9a-fA-F]*")
_URL_SAFE: Final = str.maketrans("-_", "+/")


class OtlpError(Exception):
    """A payload is not OTLP traces; the message says why and what to do, and names no file."""


class TooManyCopies(Exception):
    """The payloads of single traces would have too many copies of their resources and scopes."""


def id_of_bytes(value: bytes, size: int) -> str:
    """An id as hexadecimal; empty if it is all zeros, which means none, or of another size.

    >>> id_of_bytes(bytes(7) + b"*", 8)
    '000000000000002a'
    """
    return value.hex() if len(value) == size and any(value) else ""


def id_of_text(value: str | None, size: int) -> str:
    """An id in JSON as hexadecimal; OTLP writes hexadecimal, and some senders base64.

    >>> id_of_text("000000000000002A", 8), id_of_text("AAAAAAAAACo=", 8)
    ('000000000000002a', '000000000000002a')
    >>> id_of_text("__8AAAAAACo=", 8)
    'ffff00000000002a'
    """
    if not value:
        return ""
    try:
        if len(value) == 2 * size and _HEX.fullmatch(value):
            return id_of_bytes(bytes.fromhex(value), size)
        return id_of_bytes(base64.b64decode(value.translate(_URL_SAFE), validate=True), size)
    except (binascii.Error, ValueError):
        return ""


def bounded_ns(value: int) -> int:
    """The time clamped to the range that is stored."""
    return max(0, min(value, MAX_NS))


def parent_of(found: str, given: object) -> str:
    """The parent's id, or ``NO_ID`` if one was given that is malformed.

    >>> parent_of("", b""), parent_of("", b"short")
    ('', 'invalid')
    """
    return found or (NO_ID if given else "")
