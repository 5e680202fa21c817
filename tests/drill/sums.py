"""Window sums minute by minute, as a worker exports them: whole numbers, corrected by labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_metrics.core.engine.config import WINDOW_BUCKETS
from stream_metrics.core.engine.window import Window, parse_window
from tests.drill.library import Numbers
from tests.drill.rows import Changes
from tests.drill.world import MINUTE, START_US


def window_sums(
    changes: Changes, asked: Mapping[str, Sequence[str]], minutes: int
) -> dict[str, dict[str, Numbers]]:
    """By window, the sums of some codes; entry m is what is exported at the start of minute m."""
    spans = {window: _span(changes, parse_window(window), minutes) for window in asked}
    nothing = np.zeros(minutes, np.int64)
    sums = {window: dict.fromkeys(codes, nothing) for window, codes in asked.items()}
    for code in dict.fromkeys(code for codes in asked.values() for code in codes):
        places, deltas = changes.of([code])
        for window, codes in asked.items():
            if code in codes:
                came, went = (added(at[places], deltas, minutes) for at in spans[window])
                sums[window][code] = np.cumsum(came - went)
    return sums


def _span(changes: Changes, window: Window, minutes: int) -> tuple[Numbers, Numbers]:
    """When each change enters the window and leaves it; ``minutes`` if it does not."""
    bucket = changes.about_us // window.bucket_us
    enters = minute_of(np.maximum(changes.at_us, bucket * window.bucket_us))
    leaves = minute_of((bucket + WINDOW_BUCKETS) * window.bucket_us)
    seen = (enters < leaves) & (enters < minutes)
    return np.where(seen, enters, minutes), np.where(seen, np.minimum(leaves, minutes), minutes)


def added(at: Numbers, deltas: NDArray[np.floating[Any]], minutes: int) -> Numbers:
    """Sums by minute; doubles hold them exactly, as they are far below 2**53.

    What is at ``minutes`` or later is left out.
    """
    sums = np.bincount(at, weights=deltas, minlength=minutes + 1)
    return sums[:minutes].astype(np.int64)


def arrivals(times_us: Iterable[Numbers], minutes: int) -> Numbers:
    """A counter of arrivals: by the start of each minute, how many have come."""
    came = np.zeros(minutes + 1, np.int64)
    for times in times_us:
        came += np.bincount(np.minimum(minute_of(times), minutes), minlength=minutes + 1)
    return np.asarray(np.cumsum(came[:minutes]))


def minute_of(at_us: Numbers) -> Numbers:
    """The first minute at whose start this has happened; 0 for what was before the start."""
    return np.maximum(0, -((START_US - at_us) // MINUTE))
