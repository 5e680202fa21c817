"""Limits repeated log lines: a few of a kind are written a minute, and the others are counted.

Without it, a client library that retries ten times a second fills disks with one sentence, and
hides what else is said.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

Kind = tuple[str, ...]
"""Logger and level, then the message without values, then what it is about."""

FEW: Final = 5  # of a kind and minute, which are written as they come
SECONDS: Final = 60.0
MOST_KINDS: Final = {1: 200, 2: 50}
"""The most kinds of one logger and level, and of one message, that are told apart at a time."""
SUBJECTS: Final = ("agent", "service", "scope", "topic", "partition", "reason", "kind")
"""Fields that say what a line is about: lines with other values are of another kind."""

_PLACEHOLDER: Final = re.compile(r"%(\(\w+\))?[-#0 +]*[\d*]*(\.[\d*]+)?[a-zA-Z]")
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, slots=True)
class Repeated(Generic[T]):
    """Lines that were held back: their number, the first and the last."""

    count: int
    first: T
    last: T


@dataclass(slots=True)
class _Minute(Generic[T]):
    """The lines of a kind within a minute; ``room`` is how many of them may still be written."""

    started: float
    room: int
    lines: int = 0
    held: Repeated[T] | None = None


class RepeatLimiter(Generic[T]):
    """Decides which lines are written. Times are in seconds of a clock that never goes back.

    The first ``FEW`` lines of a kind within a minute are written. The others are held, and said at
    the end of the minute by the last of them. While a kind keeps coming more often than that, all
    its lines are held, and said once a minute. Kinds beyond ``MOST_KINDS`` share one.
    """

    def __init__(self) -> None:
        self._minutes: dict[Kind, _Minute[T]] = {}  # in the order in which they began
        self._below: Counter[Kind] = Counter()

    def admit(self, kind: Kind, line: T, now: float) -> bool:
        """Whether to write the line now; otherwise it is held. Call ``due`` first."""
        kind = self._told_apart(kind)
        minute = self._minutes.get(kind)
        if minute is None:
            minute = self._begin(kind, now, FEW)
        minute.lines += 1
        if minute.room:
            minute.room -= 1
            return True
        held = minute.held
        minute.held = Repeated(1, line, line) if held is None else Repeated(
            held.count + 1, held.first, line
        )  # fmt: skip
        return False

    def due(self, now: float) -> Iterator[Repeated[T]]:
        """Take what was held in minutes that have ended."""
        while self._minutes:
            kind, minute = next(iter(self._minutes.items()))
            if now < minute.started + SECONDS:
                return
            self._end(kind)
            if minute.held is not None:
                if minute.lines > FEW:
                    self._begin(kind, now, 0)
                yield minute.held

    def rest(self) -> Iterator[Repeated[T]]:
        """Take everything that is held."""
        while self._minutes:
            held = self._end(next(iter(self._minutes))).held
            if held is not None:
                yield held

    @property
    def next_due(self) -> float | None:
        """When ``due`` will have something; None while nothing is held."""
        return next((m.started + SECONDS for m in self._minutes.values() if m.held), None)

    def _told_apart(self, kind: Kind) -> Kind:
        """The kind, or a wider one if there are too many like it."""
        if kind not in self._minutes:
            for length, most in MOST_KINDS.items():
                if self._below[kind[:length]] >= most:
                    return kind[:length]
        return kind

    def _begin(self, kind: Kind, now: float, room: int) -> _Minute[T]:
        minute = self._minutes[kind] = _Minute[T](now, room)
        self._below.update(kind[:length] for length in range(1, len(kind)))
        return minute

    def _end(self, kind: Kind) -> _Minute[T]:
        for above in (kind[:length] for length in range(1, len(kind))):
            self._below[above] -= 1
            if not self._below[above]:
                del self._below[above]
        return self._minutes.pop(kind)


def kind_of(record: logging.LogRecord) -> Kind:
    """The kind of a line, by what the code that logs it says, without the values in it.

    Errors among the values count by their type. A message that has no words of its own, such as
    ``%s: %s``, counts with its values, but numbers in it make no difference.
    """
    source = f"{record.levelname} {record.name}"
    if isinstance(record.msg, Mapping):  # structlog's
        fields = record.msg
        about = (f"{name}={_text(fields[name])}" for name in SUBJECTS if name in fields)
        return source, _without_numbers(str(fields.get("event"))), *_joined(about)
    text = str(record.msg)
    if record.args and not any(map(str.isalpha, _PLACEHOLDER.sub("", text))):
        text = record.getMessage()
    errors: list[Any] = [*(record.args or ()), *(record.exc_info or ())]
    names = (type(error).__name__ for error in errors if isinstance(error, BaseException))
    return source, _without_numbers(text), *_joined(names)


def _joined(parts: Iterator[str]) -> Iterator[str]:
    if joined := " ".join(parts):
        yield joined


def _text(value: object) -> str:
    return _without_numbers(value) if isinstance(value, str) else str(value)


def _without_numbers(text: str) -> str:
    return _NUMBER.sub("0", text)
