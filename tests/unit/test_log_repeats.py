"""What of repeated log lines is written, and when."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from stream_metrics.cli.log_repeats import FEW, MOST_KINDS, SECONDS, RepeatLimiter, kind_of

KIND = ("ERROR aiokafka", "Unable connect to node")


class Log:
    """A limiter with a clock, and what it lets through: lines, and summaries with their counts."""

    def __init__(self) -> None:
        self.limiter: RepeatLimiter[str] = RepeatLimiter()
        self.now = 0.0
        self.written: list[str | tuple[int, str, str]] = []

    def line(self, text: str, kind: tuple[str, ...] = KIND) -> None:
        """Log a line."""
        self.wait(0)
        if self.limiter.admit(kind, text, self.now):
            self.written.append(text)

    def wait(self, seconds: float) -> None:
        """Move the clock."""
        self.now += seconds
        self.written += [(one.count, one.first, one.last) for one in self.limiter.due(self.now)]


def test_a_flood_is_a_few_lines_and_one_a_minute() -> None:
    """After the first lines, each minute is one line with the number, the first and the last."""
    log = Log()
    for number in range(1_000):
        log.line(str(number))
        log.wait(0.125)

    first = [str(number) for number in range(FEW)]
    assert log.written == [*first, (480 - FEW, str(FEW), "479"), (480, "480", "959")]
    assert [(one.count, one.last) for one in log.limiter.rest()] == [(40, "999")]


def test_a_few_lines_a_minute_are_untouched() -> None:
    """A kind that comes ``FEW`` times a minute is written whole, for as long as it comes."""
    log = Log()
    lines = [str(number) for number in range(20 * FEW)]
    for line in lines:
        log.line(line)
        log.wait(SECONDS / FEW)

    assert log.written == lines


def test_after_a_flood_a_kind_is_written_as_before() -> None:
    """Once a minute had few lines, the next ones are written as they come."""
    log = Log()
    for number in range(100):
        log.line(str(number))
    log.wait(SECONDS)
    log.line("late")
    log.wait(SECONDS)
    log.line("again")

    assert log.written[FEW:] == [(100 - FEW, str(FEW), "99"), (1, "late", "late"), "again"]


def test_what_is_held_is_due_at_the_end_of_its_minute() -> None:
    """``next_due`` is that time while something is held, and None otherwise."""
    log = Log()
    log.line("other", ("INFO a", "b"))
    log.wait(10)
    for _ in range(FEW):
        log.line("x")
    assert log.limiter.next_due is None

    log.line("x")
    assert log.limiter.next_due == 10 + SECONDS
    log.wait(SECONDS)
    assert log.written[-1] == (1, "x", "x")
    assert log.limiter.next_due is None


def test_kinds_do_not_hide_each_other() -> None:
    """The first line of a kind is written in the middle of the flood of another."""
    log = Log()
    for number in range(1_000):
        log.line(str(number))
    log.line("the cause", ("ERROR aiokafka", "Topic is not authorized"))

    assert log.written[-1] == "the cause"


def test_the_memory_of_kinds_is_bounded() -> None:
    """However many messages and subjects come, those of one logger and level take bounded space."""
    log = Log()
    for number in range(10_000):
        log.line("x", ("ERROR a", f"message {number % 100}", f"subject {number}"))
        log.line("x", ("ERROR a", f"message {number}"))
    kept = MOST_KINDS[1] + 1
    log.line("y", ("ERROR b", "message"))

    assert log.written[-1] == "y", "other loggers have their own room"
    held = list(log.limiter.rest())
    assert len(held) <= kept
    written = sum(isinstance(line, str) for line in log.written) - 1
    assert sum(one.count for one in held) + written == 20_000
    assert written <= kept * FEW


def test_one_message_leaves_room_for_others() -> None:
    """A message about very many subjects does not take the space of other messages."""
    log = Log()
    for number in range(10_000):
        log.line("x", ("ERROR a", "refused", f"agent={number}"))
    for number in range(FEW):
        log.line("y", ("ERROR a", "crashed"))
        assert log.written[-1] == "y", number


def test_forgotten_kinds_leave_room() -> None:
    """Kinds that no longer come are forgotten after a minute."""
    log = Log()
    for minute in range(5):
        for number in range(MOST_KINDS[1]):
            log.line("x", ("ERROR a", f"message {minute} {number}"))
        log.wait(SECONDS)

    assert log.written == ["x"] * (5 * MOST_KINDS[1])


def record(message: object, *args: Any, name: str = "a", level: int = 40) -> logging.LogRecord:
    """A line as the standard library passes it on."""
    return logging.LogRecord(name, level, "file.py", 1, message, args, None)


SAME = [
    (record("node %s: %s", 1, OSError("x")), record("node %s: %s", 22, OSError("y"))),
    (record("%s: %s", "E", "offset 12"), record("%s: %s", "E", "offset 7")),
    (record("<Task at 0x7fa1>, offset 3"), record("<Task at 0x66>, offset 41")),
    (
        record({"event": "refused", "agent": "a", "trace_id": "t-1", "reason": "too large"}),
        record({"event": "refused", "agent": "a", "trace_id": "u-2", "reason": "too large"}),
    ),
]
DIFFERENT = [
    (record("node %s: %s", 1, OSError("x")), record("node %s: %s", 1, TimeoutError("x"))),
    (record("%s: %s", "A", "x"), record("%s: %s", "B", "x")),
    (record("x"), record("x", name="b")),
    (record("x"), record("x", level=30)),
    (record("x"), record("y")),
    *(
        (
            record({"event": "refused", name: "a"}),
            record({"event": "refused", name: "b"}),
        )
        for name in ("agent", "service", "scope", "topic", "partition", "reason", "kind")
    ),
    (record({"event": "halted", "partition": 1}), record({"event": "halted", "partition": 2})),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_values_do_not_make_a_kind(one: logging.LogRecord, other: logging.LogRecord) -> None:
    """Lines that differ only in their values are repeats."""
    assert kind_of(one) == kind_of(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_is_said_and_of_what_make_a_kind(
    one: logging.LogRecord, other: logging.LogRecord
) -> None:
    """Lines are of different kinds by logger, level, message, errors' types and subject."""
    assert kind_of(one) != kind_of(other)


PROGRAM = """
import logging
from structlog import get_logger
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.settings import LogSettings

configure_logs(LogSettings(level="{level}"))
for number in range(100):
    logging.getLogger("aiokafka").error("Unable to connect to node %s", number)
    get_logger("ours").warning("refused", agent="a", number=number)
logging.getLogger("aiokafka").error("broken %d", "format")
get_logger("ours").warning("the end")
"""


def logged(level: str) -> list[dict[str, Any]]:
    """What a program writes that logs 201 lines, and one that cannot be formatted."""
    command = [sys.executable, "-X", "dev", "-c", PROGRAM.format(level=level)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]


@pytest.mark.slow
def test_the_end_of_a_process_says_what_was_held() -> None:
    """Of both logging libraries, the last line has the number and the time of the first one."""
    lines = logged("INFO")

    assert len(lines) == 2 * FEW + 3
    assert lines[2 * FEW]["event"] == "the end"
    for last, event in zip(lines[-2:], ("Unable to connect to node 99", "refused"), strict=True):
        assert (last["event"], last["repeated"]) == (event, 100 - FEW)
        assert lines[0]["timestamp"] < last["since"] < lines[2 * FEW]["timestamp"]
    assert lines[-1]["number"] == 99


@pytest.mark.slow
def test_debug_writes_every_line() -> None:
    """At the level DEBUG no line is held."""
    lines = logged("DEBUG")

    assert len(lines) == 201
    assert not any("repeated" in line for line in lines)
