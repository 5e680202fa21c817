"""What time it is, as far as two clocks agree.

A worker does little by the wall clock: it holds record time back to now where a producer's clock
runs ahead, and a topic that is read to its end counts as read up to now, so that conversations
expire. Both would do harm if the machine's clock jumped ahead. So the store is asked for the time
as well, and the earlier of the two counts. All pauses and time-outs are of the monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def wall_ms() -> int:
    """This machine's clock: milliseconds of Unix time."""
    return time.time_ns() // 1_000_000


class Clock:
    """The earlier of this machine's clock and the store's as last heard, in milliseconds.

    Between two answers of the store its clock is taken to go on like the monotonic one.
    """

    def __init__(
        self,
        wall: Callable[[], int] = wall_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._ahead_ms: float | None = None  # the store's clock, of the monotonic one

    def heard(self, store_ms: int) -> None:
        """The store has said what time it is."""
        self._ahead_ms = store_ms - 1000 * self._monotonic()

    def now_ms(self) -> int:
        """What time it is; this machine's clock alone until the store was heard."""
        return min(self._told())

    def latest_ms(self) -> int:
        """The later of the two clocks; a clock that is behind does not move it."""
        return max(self._told())

    def _told(self) -> list[int]:
        told = [self._wall()]
        if self._ahead_ms is not None:
            told.append(int(self._ahead_ms + 1000 * self._monotonic()))
        return told
