"""Latencies begin when records are due, so that a producer that is held up hides no stall."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.freshness import latencies
from benchmarks.pacing import Sent, send_evenly
from benchmarks.workload import traffic
from stream_metrics.lab.traffic import TrafficRecord

pytestmark = pytest.mark.slow

RATE = 100.0
STALLED = 30  # the record whose sending takes long
STALL_SECONDS = 2.0


class Time:
    """A clock that goes on by a millisecond a look, and by as much as a stalled send takes."""

    def __init__(self) -> None:
        self.now = 50.0
        self.sent = 0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    async def send(self, record: TrafficRecord) -> None:
        """Take a record; one of them is held up."""
        self.sent += 1
        if self.sent == STALLED:
            self.now += STALL_SECONDS


async def produced() -> tuple[Sent, Time]:
    """Three seconds of records, two of which the producer stood still."""
    clock = Time()
    records = itertools.cycle(traffic(20).records)
    sent = await send_evenly(records, clock.send, RATE, lambda n: n >= 3 * RATE, clock)
    return sent, clock


async def test_a_record_is_due_at_the_even_rate_however_late_it_is_sent() -> None:
    """A stall moves nothing: what became due meanwhile keeps its time."""
    sent, clock = await produced()
    gaps = [later - earlier for earlier, later in itertools.pairwise(sent.due)]

    assert len(sent) == clock.sent >= 3 * RATE
    assert gaps == pytest.approx([1 / RATE] * len(gaps))
    assert sent.due[0] == pytest.approx(50.0 + 0.001 + 1 / RATE)


async def test_no_record_is_sent_before_it_is_due() -> None:
    """The producer may be late, never early."""
    sent, _ = await produced()

    assert all(at >= due for due, at in zip(sent.due, sent.handed, strict=True))


async def test_a_stall_is_in_the_latencies_of_all_that_waited_for_it() -> None:
    """Timed from when they were handed over, one record in three hundred would show it."""
    sent, _ = await produced()
    at_once = [(at, number) for number, at in enumerate(sent.handed, 1)]
    slow = [one for one in latencies(sent.due, 0, at_once) if one > STALL_SECONDS / 2]

    assert len(slow) >= RATE * STALL_SECONDS / 2
    assert STALL_SECONDS < sent.behind_seconds < STALL_SECONDS + 0.5


def test_the_rate_is_what_was_handed_over() -> None:
    """Not what was asked for."""
    sent = Sent(due=[1.0, 2.0, 3.0], handed=[1.0, 4.0, 5.0])

    assert sent.rate == 0.5
    assert sent.behind_seconds == 2.0
