"""What both encodings of spans share."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from stream_metrics.telemetry.spans import NO_ID

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
MAX_NS: Final = 2**63 - 1

_HEX: Final = re.compile(r"[0-9a-fA-F]*")


class OtlpError(Exception):
    """A payload that is no OTLP traces; the message says why and what to do, and names no file."""


class OtlpUnavailable(Exception):
    """What reads this encoding is not installed; the message says how to install it."""


def id_of_bytes(value: bytes, size: int) -> str:
    """An id as hexadecimal; empty for another size, and for the id of zeros, which means none.

    >>> id_of_bytes(bytes(7) + b"*", 8)
    '000000000000002a'
    """
    return value.hex() if len(value) == size and any(value) else ""


def id_of_text(value: str | None, size: int) -> str:
    """The same of an id in JSON: hexadecimal as OTLP has it, or base64 as some senders do.

    >>> id_of_text("000000000000002A", 8), id_of_text("AAAAAAAAACo=", 8)
    ('000000000000002a', '000000000000002a')
    """
    if not value:
        return ""
    try:
        if len(value) == 2 * size and _HEX.fullmatch(value):
            return id_of_bytes(bytes.fromhex(value), size)
        return id_of_bytes(base64.b64decode(value, validate=True), size)
    except (binascii.Error, ValueError):
        return ""


def bounded_ns(value: int) -> int:
    """A time that fits where times are kept."""
    return max(0, min(value, MAX_NS))


def parent_of(found: str, given: object) -> str:
    """A parent's id; one that is given and is no id is told from none.

    >>> parent_of("", b""), parent_of("", b"short")
    ('', 'invalid')
    """
    return found or (NO_ID if given else "")
