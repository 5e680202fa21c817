"""The time of day, as the earlier of two clocks.

A worker uses the wall clock for two things: record time is limited to now, in case a producer's
clock is ahead; and a topic that has been read to its end counts as read up to now, so that
conversations expire. A jump of the machine's clock would make both wrong, so the earlier of that
clock and the store's is used. Pauses and timeouts use the monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def wall_ms() -> int:
    """This machine's clock, in milliseconds of Unix time."""
    return time.time_ns() // 1_000_000


class Clock:
    """The earlier of this machine's clock and the store's, in milliseconds of Unix time.

    Between two answers of the store, its clock is advanced by the monotonic clock.
    """

    def __init__(
        self,
        wall: Callable[[], int] = wall_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._store_offset_ms: float | None = None  # the store's clock minus the monotonic clock

    def set_store_time(self, store_ms: int) -> None:
        """Set the store's clock."""
        self._store_offset_ms = store_ms - 1000 * self._monotonic()

    def now_ms(self) -> int:
        """The earlier of the two clocks; this machine's alone until the store's is known."""
        return min(self._times_ms())

    def latest_ms(self) -> int:
        """The later of the two clocks."""
        return max(self._times_ms())

    def _times_ms(self) -> list[int]:
        times = [self._wall()]
        if self._store_offset_ms is not None:
            times.append(int(self._store_offset_ms + 1000 * self._monotonic()))
        return times
