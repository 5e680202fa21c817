"""How often evidence reaches a threshold by chance, measured on simulated healthy weeks.

``MEASURED`` has, for each figure, thresholds in nats with the alarms a month and agent. None is
below 5 nats: weaker evidence does for simulated agents, but real ones vary more. No rate is below
that of three alarms: where none was seen, the true rate may be that high (95%).
"""

from __future__ import annotations

from typing import Final

FALSE_ALARMS: Final = 1.0  # a month and agent, of all figures

MEASURED: Final[dict[str, tuple[tuple[float, float], ...]]] = {
    "srr": (
        (7, 16), (7.5, 12), (8, 8.8), (8.5, 6.6), (9, 4.9), (9.5, 3.8), (10, 2.9), (10.5, 2.2),
        (11, 1.6), (11.5, 1.3), (12, 0.94), (12.5, 0.77), (13, 0.59), (13.5, 0.42), (14, 0.32),
        (14.5, 0.26), (15, 0.2), (15.5, 0.14), (16, 0.11), (17, 0.064), (18, 0.044), (19, 0.03),
        (20, 0.025), (22, 0.02), (23, 0.015),
    ),
    "results": ((5, 0.015),),
    "sre": (
        (5, 9.7), (5.5, 5.7), (6, 3.2), (6.5, 1.9), (7, 1.1), (7.5, 0.65), (8, 0.36), (8.5, 0.21),
        (9, 0.14), (9.5, 0.089), (10, 0.035), (10.5, 0.03), (11, 0.015),
    ),
    "gain": (
        (5, 9.4), (5.5, 5.5), (6, 3.3), (6.5, 1.9), (7, 1.1), (7.5, 0.6), (8, 0.34), (8.5, 0.21),
        (9, 0.15), (9.5, 0.099), (10, 0.044), (10.5, 0.035), (11, 0.015),
    ),
    "missed_searches": (
        (5, 2.6), (5.5, 1.7), (6, 1.1), (6.5, 0.7), (7, 0.46), (7.5, 0.36), (8, 0.24), (8.5, 0.15),
        (9, 0.099), (9.5, 0.074), (10, 0.035), (10.5, 0.03), (11, 0.02), (11.5, 0.015),
    ),
    "wrong_routes": (
        (5, 9.3), (5.5, 6.5), (6, 3.8), (6.5, 2.6), (7, 1.5), (7.5, 0.99), (8, 0.67), (8.5, 0.43),
        (9, 0.31), (9.5, 0.23), (10, 0.16), (10.5, 0.1), (11, 0.069), (11.5, 0.044), (12, 0.04),
        (12.5, 0.025), (13.5, 0.015),
    ),
    "repeated_searches": (
        (5, 23), (5.5, 15), (6, 10), (6.5, 7.3), (7, 5), (7.5, 3.5), (8, 2.4), (8.5, 1.7),
        (9, 1.2), (9.5, 0.85), (10, 0.59), (10.5, 0.45), (11, 0.33), (11.5, 0.22), (12, 0.18),
        (12.5, 0.14), (13, 0.11), (13.5, 0.084), (14, 0.079), (14.5, 0.04), (15, 0.035),
        (15.5, 0.02), (16, 0.015),
    ),
    "empty_searches": (
        (5, 0.53), (5.5, 0.46), (6, 0.35), (6.5, 0.27), (7, 0.2), (7.5, 0.14), (8, 0.069),
        (8.5, 0.04), (9, 0.02), (9.5, 0.015),
    ),
    "reranking": (
        (5, 2), (5.5, 1.4), (6, 1), (6.5, 0.7), (7, 0.52), (7.5, 0.37), (8, 0.24), (8.5, 0.17),
        (9, 0.12), (9.5, 0.059), (10, 0.044), (10.5, 0.035), (11, 0.025), (11.5, 0.02),
        (12, 0.015),
    ),
}  # fmt: skip
SHARES: Final[dict[str, float]] = {
    "srr": 0.2,
    "results": 0.06,
    "sre": 0.15,
    "gain": 0.15,
    "missed_searches": 0.1,
    "wrong_routes": 0.08,
    "reranking": 0.06,
    "repeated_searches": 0.06,
    "empty_searches": 0.06,
}
"""How the alarms of an agent are divided among its figures.

The rest is for alerts that compare windows, and for chance. More alarms notice hardly more, however
they are divided (``tests/drill/budget.py``).
"""


class OutOfRange(ValueError):
    """So few false alarms were not measured; the message says how many were."""


def threshold(figure: str, false_alarms: float) -> float:
    """The threshold in nats with which an agent has so many false alarms a month, of all figures.

    It is the lowest measured one that has no more: between two of them, rates fall in steps where
    a ratio takes few values. Raises ``OutOfRange`` for fewer alarms than were measured.

    >>> threshold("sre", 1_000), threshold("sre", 1)
    (5, 9)
    """
    for found, rate in MEASURED[figure]:
        if rate <= false_alarms * SHARES[figure] * (1 + 1e-9):
            return found
    raise OutOfRange(
        f"thresholds for {false_alarms:g} false alarms a month and agent were not measured; "
        f"the fewest are {fewest():.2g}"
    )


def thresholds(false_alarms: float) -> dict[str, float]:
    """Those of all figures. Raises ``OutOfRange``."""
    return {figure: threshold(figure, false_alarms) for figure in MEASURED}


def fewest() -> float:
    """The fewest false alarms a month and agent for which every figure has a threshold."""
    return max(points[-1][1] / SHARES[figure] for figure, points in MEASURED.items())
