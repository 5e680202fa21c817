"""The events in the body of a request: one JSON object, a JSON array of them, or one a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import msgspec

MAX_PARTS: Final = 6_000_000
BOM: Final = b"\xef\xbb\xbf"
_MANY_LINES: Final = 100_000
_OPENS: Final = re.compile(rb"^[ \t\r]*(\{.*)", re.MULTILINE)
_WHITE: Final = b" \t\r\n"
_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Placed(NamedTuple):
    """The bytes of an event, and its place: its number in an array, or its line, from 1."""

    place: int
    value: bytes


def has_too_many_parts(body: bytes, most: int = MAX_PARTS) -> bool:
    """Whether JSON has so many objects, lists and commas that decoding it would take much more
    memory than it has bytes.

    >>> [has_too_many_parts(b'{"a": [1, 2, 3]}', most) for most in (3, 4)]
    [True, False]
    """
    return len(body) > most and sum(map(body.count, (b"{", b"[", b","))) > most


def events_of(body: bytes) -> Iterator[Placed]:
    r"""The events of a body; what is no JSON is one event, or each such line among others is.

    >>> [*events_of(b'[{"a": 1}, 2]')]
    [Placed(place=1, value=b'{"a": 1}'), Placed(place=2, value=b'2')]
    >>> [*events_of(b'{"a": 1}\n\n{"b": 2}\n')]
    [Placed(place=1, value=b'{"a": 1}'), Placed(place=3, value=b'{"b": 2}')]
    >>> [*events_of(b'\n{"a": 1}\n{"b": 2}')]
    [Placed(place=2, value=b'{"a": 1}'), Placed(place=3, value=b'{"b": 2}')]
    >>> [*events_of(b'{"a": \n{"b": 2}')]
    [Placed(place=1, value=b'{"a":'), Placed(place=2, value=b'{"b": 2}')]
    >>> [*events_of(b'{\n"a": 1}')]
    [Placed(place=1, value=b'{\n"a": 1}')]
    """
    whole = body.removeprefix(BOM).rstrip(_WHITE)
    body = whole.lstrip(_WHITE)
    if not body:
        return
    if (array := _array_of(body)) is not None:
        yield from (Placed(place, bytes(value)) for place, value in enumerate(array, 1))
    elif not _is_one(body) and _are_lines(body):
        above = whole.count(b"\n", 0, len(whole) - len(body))
        yield from (Placed(above + place, value) for place, value in _lines(body))
    else:
        yield Placed(1, body)


def _array_of(body: bytes) -> list[msgspec.Raw] | None:
    try:
        return _array(body) if body.startswith(b"[") else None
    except (ValueError, RecursionError):  # all of msgspec's decoding errors are ValueErrors
        return None


def _lines(body: bytes) -> Iterator[Placed]:
    place = begin = 0
    while begin < len(body):
        place, end = place + 1, body.find(b"\n", begin)
        end = len(body) if end < 0 else end
        if value := body[begin:end].strip(_WHITE):
            yield Placed(place, value)
        begin = end + 1


def _are_lines(body: bytes) -> bool:
    """Whether the first line is a value, or any line an object; so many that begin like one are not
    looked at, and count as lines."""
    if _is_one(body[: body.find(b"\n") + 1]):
        return True
    like_objects = _OPENS.finditer(body)
    if any(_is_one(found[1]) for found in islice(like_objects, _MANY_LINES)):
        return True
    return next(like_objects, None) is not None


def _is_one(body: bytes) -> bool:
    """Whether the body is one JSON value."""
    try:
        _value(body)
    except (ValueError, RecursionError):
        return False
    return True
