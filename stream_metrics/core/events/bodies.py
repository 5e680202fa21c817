"""The events in the body of a request: one JSON object, a JSON array of them, or one a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

BOM: Final = b"\xef\xbb\xbf"
_WHITE: Final = b" \t\r\n"
_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Placed(NamedTuple):
    """The bytes of an event, and its place: its number in an array, or its line, from 1."""

    place: int
    value: bytes


def events_of(body: bytes) -> Iterator[Placed]:
    r"""The events of a body; what is no JSON is one event, or each such line is.

    >>> [*events_of(b'[{"a": 1}, 2]')]
    [Placed(place=1, value=b'{"a": 1}'), Placed(place=2, value=b'2')]
    >>> [*events_of(b'{"a": 1}\n\n{"b": 2}\n')]
    [Placed(place=1, value=b'{"a": 1}'), Placed(place=3, value=b'{"b": 2}')]
    >>> [*events_of(b'{\n"a": 1}')]
    [Placed(place=1, value=b'{\n"a": 1}')]
    """
    body = body.removeprefix(BOM).strip(_WHITE)
    if not body:
        return
    if body.startswith(b"["):
        yield from _of_array(body)
    elif b"\n" not in body or _is_one(body):
        yield Placed(1, body)
    elif _is_one(body[: body.index(b"\n")]):
        yield from _of_lines(body)
    else:
        yield Placed(1, body)


def _of_array(body: bytes) -> Iterator[Placed]:
    try:
        found = _array(body)
    except (ValueError, RecursionError):  # all of msgspec's decoding errors are ValueErrors
        yield Placed(1, body)
        return
    for place, value in enumerate(found, 1):
        yield Placed(place, bytes(value))


def _of_lines(body: bytes) -> Iterator[Placed]:
    start, place = 0, 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        place += 1
        if value := body[start:end].strip(_WHITE):
            yield Placed(place, value)
        start = end + 1


def _is_one(body: bytes) -> bool:
    """Whether the body is one JSON value."""
    try:
        _value(body)
    except (ValueError, RecursionError):
        return False
    return True
