"""Latencies count from when records are due, so a delayed producer hides no stall."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.freshness import latencies
from benchmarks.pacing import Sent, send_evenly
from benchmarks.workload import traffic
from stream_metrics.lab.traffic import TrafficRecord

RATE = 100.0
STALLED = 30  # the record whose sending takes long
STALL_SECONDS = 2.0


class Time:
    """A clock that advances a millisecond per call, by what is slept, and by a stalled send."""

    def __init__(self) -> None:
        self.now = 50.0
        self.sent = 0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let them pass."""
        self.now += seconds

    async def send(self, record: TrafficRecord) -> None:
        """Accept a record; one of them stalls."""
        self.sent += 1
        if self.sent == STALLED:
            self.now += STALL_SECONDS


async def produced() -> tuple[Sent, Time]:
    """Three seconds of records; the producer stalls for two of them."""
    clock = Time()
    records = itertools.cycle(traffic(20).records)
    until = 3 * RATE
    sent = await send_evenly(records, clock.send, RATE, lambda n: n >= until, clock, clock.sleep)
    return sent, clock


async def test_due_times_are_at_an_even_rate_despite_a_stall() -> None:
    """Records due during the stall keep their times."""
    sent, clock = await produced()
    gaps = [later - earlier for earlier, later in itertools.pairwise(sent.due)]

    assert len(sent) == clock.sent >= 3 * RATE
    assert gaps == pytest.approx([1 / RATE] * len(gaps))
    assert sent.due[0] == pytest.approx(50.0 + 0.001 + 1 / RATE)


async def test_no_record_is_sent_before_it_is_due() -> None:
    """The producer may be late, but never early."""
    sent, _ = await produced()

    assert all(at >= due for due, at in zip(sent.due, sent.handed, strict=True))


async def test_a_stall_is_in_the_latencies_of_all_delayed_records() -> None:
    """Counted from sending, only one record in three hundred would show it."""
    sent, _ = await produced()
    at_once = [(at, number) for number, at in enumerate(sent.handed, 1)]
    slow = [one for one in latencies(sent.due, 0, at_once) if one > STALL_SECONDS / 2]

    assert len(slow) >= RATE * STALL_SECONDS / 2
    assert STALL_SECONDS < sent.behind_seconds < STALL_SECONDS + 0.5


def test_the_reported_rate_is_the_achieved_one() -> None:
    """It is not the requested rate."""
    sent = Sent(due=[1.0, 2.0, 3.0], handed=[1.0, 4.0, 5.0])

    assert sent.rate == 0.5
    assert sent.behind_seconds == 2.0
