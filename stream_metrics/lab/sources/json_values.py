"""Split concatenated JSON values, each on one line or on several."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

_WHITESPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder()


class JsonValue(NamedTuple):
    """The text of a value and the line on which it begins, from 1."""

    line: int
    text: bytes


class InvalidJson(ValueError):
    """The text is not JSON; ``line`` is where the error is, from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


def json_values(data: bytes) -> Iterator[JsonValue]:
    r"""Split ``data`` into its JSON values, each byte for byte as written.

    ``data`` is UTF-8, with or without a byte order mark. Raises ``InvalidJson`` at the first place
    that is not JSON, after the values before it.

    >>> [(value.line, value.text) for value in json_values(b'{"a": 1}\n{\n  "b": 2\n}\n')]
    [(1, b'{"a": 1}'), (2, b'{\n  "b": 2\n}')]
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidJson(1 + data.count(b"\n", 0, error.start), "not UTF-8") from error
    at, line = 0, 1
    while True:
        begin = _after_whitespace(text, at)
        if begin == len(text):
            return
        line += text.count("\n", at, begin)
        try:
            _, at = _DECODER.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            raise InvalidJson(error.lineno, f"not JSON: {error.msg}") from error
        except RecursionError as error:
            raise InvalidJson(line, "too many levels of nested JSON") from error
        except ValueError as error:
            raise InvalidJson(line, "an integer has too many digits") from error
        yield JsonValue(line, text[begin:at].encode())
        line += text.count("\n", begin, at)


def _after_whitespace(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITESPACE:
        at += 1
    return at
