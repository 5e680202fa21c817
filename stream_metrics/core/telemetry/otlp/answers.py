"""The bodies with which a receiver of OTLP over HTTP answers, in both encodings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

INVALID: Final = 3
CODES: Final[Mapping[int, int]] = {401: 16, 403: 7, 408: 4, 413: 8, 429: 8, 500: 13, 503: 14}
"""The codes of ``google.rpc`` for statuses of HTTP; ``INVALID`` for others."""


class Partial(NamedTuple):
    """How many spans or log records were not accepted, and why."""

    rejected: int
    message: str


def exported(partial: Partial | None, rejected: str, *, as_json: bool) -> bytes:
    """The answer to an export; ``rejected`` is the key of the number in JSON.

    >>> exported(Partial(2, "no id"), "rejectedSpans", as_json=True)
    b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no id"}}'
    """
    if not as_json:
        return b"" if partial is None else _bytes(1, _message(*partial))
    found: dict[str, Any] = {}
    if partial is not None:
        found["partialSuccess"] = {
            rejected: str(partial.rejected),
            "errorMessage": partial.message,
        }
    return json.dumps(found).encode()


def status(http: int, message: str, *, as_json: bool) -> bytes:
    """A ``google.rpc.Status``, which says why a request is refused.

    >>> status(503, "full", as_json=True), status(503, "full", as_json=False)
    (b'{"code": 14, "message": "full"}', b'\\x08\\x0e\\x12\\x04full')
    """
    code = CODES.get(http, INVALID)
    if as_json:
        return json.dumps({"code": code, "message": message}).encode()
    return _message(code, message)


def _message(number: int, text: str) -> bytes:
    """A message with a number as field 1, and a text as field 2."""
    first = b"\x08" + _varint(number) if number else b""
    return first + _bytes(2, text.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
