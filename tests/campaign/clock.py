"""A clock with an offset that is read from a file, by ``libfaketime`` for servers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

AGAIN_SECONDS: Final = 0.1


class Clock:
    """A file with the seconds by which a clock is ahead (negative: behind)."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def set(self, ahead_seconds: int) -> None:
        """Set the offset atomically; 0 is the correct time."""
        draft = self.file.with_suffix(".draft")
        draft.write_text(f"{ahead_seconds:+d}\n")
        draft.rename(self.file)

    @property
    def ahead_seconds(self) -> int:
        """The offset in the file; 0 without a file."""
        try:
            return int(self.file.read_text())
        except FileNotFoundError:
            return 0


def obey_clock(clock: Clock) -> None:
    """Apply the clock's offset to ``time.time`` of this process."""
    seconds, nanoseconds, monotonic = time.time, time.time_ns, time.monotonic
    ahead, look_at = 0, 0.0

    def wrong_by() -> int:
        nonlocal ahead, look_at
        if monotonic() >= look_at:
            ahead, look_at = clock.ahead_seconds, monotonic() + AGAIN_SECONDS
        return ahead

    time.time = lambda: seconds() + wrong_by()
    time.time_ns = lambda: nanoseconds() + 1_000_000_000 * wrong_by()
