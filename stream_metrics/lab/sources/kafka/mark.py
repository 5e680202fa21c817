"""Where to start and to stop reading topics: times, offsets or neither."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from stream_metrics.core.engine.window import parse_duration
from stream_metrics.core.events.times import parse_rfc3339

HOW: Final = (
    "is not a place in a topic. Write a time in RFC 3339, such as 2024-05-01T12:00:00Z, an offset, "
    "such as 1200, a duration before now, such as -2h, earliest or end"
)


class Mark(NamedTuple):
    """A point in every partition: its first offset, its end, an offset, or the first record at or
    after a time in milliseconds."""

    kind: Literal["earliest", "end", "offset", "time"]
    value: int = 0


EARLIEST: Final = Mark("earliest")
END: Final = Mark("end")


def parse_mark(text: str, now_ms: int) -> Mark:
    """Parse a mark as commands accept it; raises ``ValueError``.

    >>> parse_mark("-2h", now_ms=10_000_000)
    Mark(kind='time', value=2800000)
    >>> parse_mark("1970-01-01T00:00:01.0001Z", now_ms=0)
    Mark(kind='time', value=1001)
    """
    if text in ("earliest", "end"):
        return END if text == "end" else EARLIEST
    if text.isascii() and text.isdigit():
        return Mark("offset", int(text))
    if text.startswith("-"):
        try:
            return Mark("time", max(0, now_ms - parse_duration(text[1:]) // 1000))
        except ValueError as error:
            raise ValueError(f"{text!r} {HOW}") from error
    instant = parse_rfc3339(text)
    if instant is None:
        raise ValueError(f"{text!r} {HOW}")
    return Mark("time", max(0, -(-instant // 1000)))
