"""How often evidence reaches a threshold by chance, measured on simulated healthy weeks.

``MEASURED`` has, for each figure, thresholds in nats with the alarms a month and agent.
"""

from __future__ import annotations

from itertools import pairwise
from math import log
from typing import Final

MEASURED: Final[dict[str, tuple[tuple[float, float], ...]]] = {
    "srr": (
        (9, 4.9), (10, 2.9), (11, 1.7), (12, 0.97), (13, 0.58), (14, 0.3), (15, 0.18),
        (16, 0.097), (17, 0.048), (18, 0.033), (19, 0.021), (21, 0.0091), (24, 0.003),
    ),
    "results": ((4, 19), (5, 0.89), (6, 0.85), (7, 0.22), (8, 0.18), (9.5, 0.16), (10, 0.0015)),
    "sre": (
        (4.5, 17), (5, 9.3), (6, 3.1), (7, 0.98), (8, 0.34), (9, 0.12), (10, 0.033), (11, 0.018),
        (12, 0.0091),
    ),
    "gain": (
        (4.5, 16), (5, 8.6), (6, 2.8), (7, 0.93), (8, 0.27), (9, 0.1), (10, 0.048), (11, 0.018),
        (12, 0.0091),
    ),
    "missed_searches": (
        (4.5, 19), (5, 13), (6, 4.2), (7, 1.2), (8, 0.53), (9, 0.22), (10, 0.072), (11, 0.021),
        (12, 0.0091),
    ),
    "wrong_routes": (
        (4.5, 39), (5, 24), (6, 9.1), (7, 3.7), (8, 1.5), (9, 0.59), (10, 0.25), (11, 0.1),
        (12, 0.027), (13, 0.012),
    ),
    "reranking": (
        (2, 5.2), (3, 2.7), (4, 1.3), (5, 0.69), (6, 0.36), (7, 0.16), (8, 0.079), (9, 0.033),
        (10, 0.018),
    ),
}  # fmt: skip
SHARES: Final[dict[str, float]] = {
    "srr": 0.22,
    "results": 0.02,
    "sre": 0.13,
    "gain": 0.13,
    "missed_searches": 0.09,
    "wrong_routes": 0.15,
    "reranking": 0.11,
}
"""How the alarms of an agent are divided among its figures.

The rest is for alerts that compare windows.
"""


class OutOfRange(ValueError):
    """So few false alarms were not measured; the message says how many were."""


def threshold(figure: str, false_alarms: float) -> float:
    """The threshold in nats with which an agent has so many false alarms a month, of all figures.

    Between measured points, the logarithm of the rate is interpolated. If a figure had fewer alarms
    even at its lowest threshold, it is that. Raises ``OutOfRange`` for fewer than were measured.

    >>> threshold("sre", 0.34 / 0.13), threshold("sre", 1_000)
    (8.0, 4.5)
    """
    points, rate = MEASURED[figure], false_alarms * SHARES[figure]
    if rate >= points[0][1]:
        return points[0][0]
    for (low, often), (high, seldom) in pairwise(points):
        if rate >= seldom * (1 - 1e-9):
            return low + (high - low) * log(often / rate) / log(often / seldom)
    least = fewest()
    raise OutOfRange(
        f"thresholds for {false_alarms:g} false alarms a month and agent were not measured; "
        f"the fewest are {least:.2g}"
    )


def fewest() -> float:
    """The fewest false alarms a month and agent for which every figure has a threshold."""
    return max(points[-1][1] / SHARES[figure] for figure, points in MEASURED.items())
