"""The evidence that a worker tells of an agent at every minute, by the worker's own code.

``core.alerts.shifts`` computes the evidence of one minute from those before it. A drill asks for
tens of thousands of minutes, so steps are computed once, and their sum goes on from one minute to
the next where that is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from stream_metrics.core.alerts.figures import Figure
from stream_metrics.core.alerts.shifts import (
    WATCHED,
    Added,
    Minutes,
    Watch,
    course,
    gathered,
    ratio_lately,
    unlabelled,
)
from tests.drill.evidence import Reals
from tests.drill.library import Numbers


def counts_of(arrived: Mapping[str, Numbers]) -> Minutes:
    """Counts by minute, as state has them, from those of each minute by count."""
    names = [name for name, values in arrived.items() if values.any()]
    rows = np.array([arrived[name] for name in names])
    there = np.flatnonzero(rows.any(axis=0)).tolist() if names else list[int]()
    return {
        minute: {
            name: value
            for name, value in zip(names, rows[:, minute].tolist(), strict=True)
            if value
        }
        for minute in there
    }


def without_labels(counts: Minutes, minutes: int) -> frozenset[int]:
    """The minutes up to ``minutes`` in which labels are missing."""
    found = (
        {minute for minute in unlabelled(counts, now) if minute > now - WATCHED}
        for now in _ends(minutes)
    )
    return frozenset[int]().union(*found)


def steps(
    figure: Figure, counts: Minutes, minutes: int, threshold: float, missing: Collection[int]
) -> list[Added]:
    """What each minute from 0 on adds; ``missing`` are those in which labels are."""
    watch = Watch(figure, threshold)
    found = [Added(None, 0)] * min(counts, default=minutes)
    for now in _ends(minutes):
        if now >= len(found):
            found += watch.added(counts, now, missing)[len(found) - now - 1 :]
    return found


def evidence(figure: Figure, added: Sequence[Added]) -> Reals:
    """What ``gathered`` says of both shifts after each minute; NaN where nothing is usual."""
    found = np.full((len(figure.shifts), len(added)), np.nan)
    cleared = [0] * len(figure.shifts)  # when the sum of each shift was 0 the last time
    for minute, (values, _) in enumerate(course(figure, added)):
        cleared = [
            cleared_at if value else minute
            for cleared_at, value in zip(cleared, values, strict=True)
        ]
        if added[minute].steps is None:
            continue
        if minute - min(cleared) >= WATCHED:  # gathered begins at 0 later than that
            anew = gathered(figure, added[minute + 1 - WATCHED : minute + 1])
            assert anew is not None
            values = [one.value for one in anew]
        found[:, minute] = values
    return found


def ratios(figure: Figure, counts: Minutes, minutes: Collection[int]) -> dict[int, float]:
    """The ratio of what came lately, in those of the minutes in which there is one."""
    asked = ((minute, ratio_lately(figure, counts, minute)) for minute in minutes)
    return {minute: ratio for minute, ratio in asked if ratio is not None}


def _ends(minutes: int) -> Sequence[int]:
    """Minutes so far apart that each tells of those since the one before."""
    return [*range(WATCHED - 1, minutes - 1, WATCHED), minutes - 1]
