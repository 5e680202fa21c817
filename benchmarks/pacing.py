"""Sends records at an even rate, and notes the time at which each was due.

A stalled producer sends records later than they were due. Latencies from the time of sending would
hide the stall (coordinated omission), so that each latency begins when its record was due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from stream_metrics.lab.traffic import TrafficRecord

TICK_SECONDS = 0.005  # between two checks for due records


@dataclass(slots=True)
class Sent:
    """When each record was due, and when it was sent."""

    due: list[float] = field(default_factory=list)
    handed: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.due)

    @property
    def rate(self) -> float:
        """Records per second that were actually sent."""
        return (len(self) - 1) / (self.handed[-1] - self.handed[0])

    @property
    def behind_seconds(self) -> float:
        """The largest delay of the producer."""
        return max(at - due for due, at in zip(self.due, self.handed, strict=True))


async def send_evenly(
    records: Iterator[TrafficRecord],
    send: Callable[[TrafficRecord], Awaitable[object]],
    rate: float,
    stop: Callable[[int], bool],
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Sent:
    """Send ``rate`` records a second until ``stop(sent)``; the n-th is due after n/rate seconds."""
    sent = Sent()
    began = clock()
    while not stop(len(sent)):
        now_due = int(rate * (clock() - began)) - len(sent)
        for record in islice(records, max(0, now_due)):
            await send(record)
            sent.due.append(began + (len(sent) + 1) / rate)
            sent.handed.append(clock())
        await sleep(TICK_SECONDS)
    return sent
