"""Format turn numbers."""

from __future__ import annotations

from stream_metrics.core.events.decode import EARLIEST_US, LATEST_US
from stream_metrics.core.events.times import rfc3339


def turn_text(number: int) -> str:
    """Format a turn's number, followed by its time if it is one, as for turns from traces.

    Unix microseconds from 2000 to 2100 are times, which are truncated to seconds.

    >>> turn_text(3), turn_text(1_718_020_800_005_000)
    ('3', '1718020800005000 (2024-06-10 12:00:00Z)')
    """
    if not EARLIEST_US <= number <= LATEST_US:
        return str(number)
    date, time = rfc3339(number)[:19].split("T")
    return f"{number} ({date} {time}Z)"
