"""Window sums minute by minute, as a worker exports them: whole numbers, corrected by labels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stream_metrics.core.engine.config import WINDOW_BUCKETS
from stream_metrics.core.engine.window import Window
from tests.drill.library import Numbers
from tests.drill.world import MINUTE, START_US, Placed


def window_sums(
    placed: Placed, codes: Iterable[str], window: Window, minutes: int
) -> dict[str, Numbers]:
    """The window's sums of these codes; entry m is what is exported at the start of minute m."""
    bucket = placed.about_us // window.bucket_us
    enters = _minute(np.maximum(placed.at_us, bucket * window.bucket_us))
    leaves = _minute((bucket + WINDOW_BUCKETS) * window.bucket_us)
    column = {code: at for at, code in enumerate(placed.codes)}
    sums = {}
    for code in codes:
        if code not in column:
            sums[code] = np.zeros(minutes, np.int64)
            continue
        deltas = placed.deltas[:, column[code]]
        seen = (deltas != 0) & (enters < leaves) & (enters < minutes)
        came = _added(enters[seen], deltas[seen], minutes)
        went = _added(np.minimum(leaves[seen], minutes), deltas[seen], minutes)
        sums[code] = np.cumsum(came - went)
    return sums


def _added(at: Numbers, deltas: Numbers, minutes: int) -> Numbers:
    """Sums by minute; doubles hold them exactly, as they are far below 2**53."""
    sums = np.bincount(at, weights=deltas, minlength=minutes + 1)
    return sums[:minutes].astype(np.int64)


def arrivals(times_us: Iterable[Numbers], minutes: int) -> Numbers:
    """A counter of arrivals: by the start of each minute, how many have come."""
    came = np.zeros(minutes + 1, np.int64)
    for times in times_us:
        np.add.at(came, np.minimum(_minute(times), minutes), 1)
    return np.asarray(np.cumsum(came[:minutes]))


def _minute(at_us: Numbers) -> Numbers:
    """The first minute at whose start this has happened; 0 for what was before the start."""
    return np.maximum(0, -((START_US - at_us) // MINUTE))
