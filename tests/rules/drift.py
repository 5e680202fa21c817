"""Cases of the alert on drift, which takes days: a step is half an hour."""

from __future__ import annotations

from typing import Final

from tests.rules.cases import Case, Phase, Series, gauge

STEP: Final = 30
DAY: Final = 48  # steps
WEEK: Final = 7 * DAY
RESULTS: Final = 20_000.0
WARNING: Final = {"agent": "a", "severity": "warning"}


def agent(*srr: Phase, results: float = RESULTS, name: str = "a") -> Series:
    """The sums of an agent's last day with this SRR."""
    of = {"agent": name, "window": "24h"}
    shares = [(n, None if share is None else share * results) for n, share in srr]
    return gauge("streammetrics_window_duplicate_results", *shares, **of) | gauge(
        "streammetrics_window_results", *[(n, results) for n, _ in srr], **of
    )


def slope(days: int, start: float, end: float) -> list[Phase]:
    """An SRR that changes linearly between two values."""
    steps = days * DAY
    return [(1, start + (end - start) * step / steps) for step in range(steps)]


SILENT: Final = dict.fromkeys(range(0, 12 * DAY, DAY // 4), ())

CASES: Final = {
    "StreamMetricsRedundancyDrift": [
        Case("fires on a slope of three days, and ends when the week has the new level",
             agent((WEEK, 0.25), *slope(3, 0.25, 0.45), (10 * DAY, 0.45)),
             {WEEK: (), WEEK + 3 * DAY: [WARNING], WEEK + 12 * DAY: ()}, STEP),
        Case("is silent on one bad hour, which is in the sums for a day",
             agent((WEEK, 0.25), (DAY, 0.36), (4 * DAY, 0.25)), SILENT, STEP),
        Case("is silent on noise from day to day",
             agent(*[(DAY, 0.23), (DAY, 0.27)] * 6), SILENT, STEP),
        Case("is silent where there are few results",
             agent((WEEK, 0.25), *slope(3, 0.25, 0.45), (2 * DAY, 0.45), results=500), SILENT,
             STEP),
        Case("is silent about an agent that is new",
             agent(*slope(3, 0.1, 0.4), (DAY, 0.4)), {4 * DAY: ()}, STEP),
        Case("names the agent that drifts",
             agent((WEEK, 0.25), *slope(3, 0.25, 0.45), (DAY, 0.45))
             | agent((WEEK + 4 * DAY, 0.25), name="b"), {WEEK + 3 * DAY: [WARNING]}, STEP),
    ],
}  # fmt: skip
