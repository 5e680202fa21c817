"""When to send each record of a recording, and with which times.

The clock of a recording is the largest time so far. An earlier record is due immediately. So is a
record more than a day ahead of the clock, which does not advance it: its timestamp is taken to be
wrong.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import msgspec
from msgspec import structs

from stream_metrics.core.events.decode import instant
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.times import MICROS, rfc3339

DAY_US: Final = 86_400 * MICROS


def parse_speed(text: str) -> Fraction | None:
    """Parse a speed, relative to that of the recording; None for ``max``. Raises ``ValueError``.

    >>> parse_speed("10x"), parse_speed("0.5x"), parse_speed("max")
    (Fraction(10, 1), Fraction(1, 2), None)
    """
    if text == "max":
        return None
    number = text.removesuffix("x")
    try:
        speed = Fraction(number)
    except (ValueError, ZeroDivisionError):
        speed = Fraction(0)
    if number == text or speed <= 0 or "/" in number:
        raise ValueError(f"{text!r}: write 1x, 10x, 0.5x or max")
    return speed


class Pace:
    """Determines for each record, in order, when it is due and with which times to send it.

    ``speed`` is relative to the recording; None sends without pauses. With ``begin_us`` all times
    are shifted so that the first record has this time, and intervals are scaled by the speed.
    """

    def __init__(self, speed: Fraction | None, begin_us: int | None = None) -> None:
        if speed is None and begin_us is not None:
            raise ValueError("records cannot be moved in time at speed max")
        self._speed = speed
        self._begin_us = begin_us
        self._first_us: int | None = None
        self._last_us = 0

    def due_seconds(self, record: Record) -> float:
        """The seconds after the first record at which this one is due."""
        moment_us = moment_of(record)
        if self._first_us is None:
            if moment_us is None:
                return 0.0
            self._first_us = self._last_us = moment_us
        if moment_us is not None and moment_us - self._last_us <= DAY_US:
            self._last_us = max(self._last_us, moment_us)
        if self._speed is None:
            return 0.0
        return float((self._last_us - self._first_us) / self._speed / MICROS)

    def retimed(self, record: Record) -> Record:
        """The record with its times moved; call ``due_seconds`` for the first record before.

        A value that is not an event with a time is unchanged.
        """
        if self._begin_us is None or self._first_us is None:
            return record
        stamp = record.timestamp_ms
        if stamp is not None and stamp >= 0:
            stamp = max(0, self._moved(1000 * stamp) // 1000)
        return structs.replace(record, value=self._moved_value(record.value), timestamp_ms=stamp)

    def _moved(self, moment_us: int) -> int:
        assert self._begin_us is not None
        assert self._first_us is not None
        assert self._speed is not None
        return self._begin_us + int((moment_us - self._first_us) // self._speed)

    def _moved_value(self, value: bytes | None) -> bytes | None:
        event = _event(value)
        occurred_us = None if event is None else instant(event.get("occurred_at"))
        if event is None or occurred_us is None:
            return value
        try:
            event["occurred_at"] = rfc3339(self._moved(occurred_us))
            return msgspec.json.encode(event)
        except (OverflowError, msgspec.MsgspecError, RecursionError):
            return value  # invalid before and after


def moment_of(record: Record) -> int | None:
    """A record's time in microseconds: its timestamp, else its event's time, else None."""
    if record.timestamp_ms is not None and record.timestamp_ms >= 0:
        return 1000 * record.timestamp_ms
    event = _event(record.value)
    return None if event is None else instant(event.get("occurred_at"))


def _event(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if type(found) is dict else None
