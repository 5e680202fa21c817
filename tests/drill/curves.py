"""Operating curves: what is caught, and how soon, against how many false alarms.

Each kind of rule is tried with many thresholds. Its false alarms are those of the healthy worlds;
the incidents are those of real size in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from stream_metrics.core.alerts.figures import Figure
from tests.drill.evidence import Reals
from tests.drill.gather import ALERT_OF, IN_USE, Flags
from tests.drill.judge import RISES, Plain, begun, plain_begun, plain_ratio
from tests.drill.run import drill
from tests.drill.score import AFTERWARDS, Caught, caught
from tests.drill.simulation import World
from tests.drill.world import MINUTE, START_US, Incident

MONTH: Final = 1440 * 365.25 / 12  # minutes
DECISIONS: Final = ("missed_searches", "wrong_routes", "reranking")  # have no window of 30m
EVIDENCE: Final = "evidence"
_EVIDENCE_GRID: Final = np.geomspace(0.4, 2.0, 11)  # times the threshold in use
_TAIL: Final = np.concatenate([[0.0], np.geomspace(1e-6, 0.2, 15)])  # of the healthy ratios


class Point(NamedTuple):
    """One threshold: its false alarms, and when each incident of the figure's alert was caught."""

    threshold: float
    alarms: int
    found: list[Caught]


class Sweep(NamedTuple):
    """A kind of rule with many thresholds, the most sensitive first."""

    months: float  # of healthy agents together
    points: list[Point]

    def a_month(self, point: Point) -> float:
        """False alarms a month and agent."""
        return point.alarms / self.months

    def plus(self, other: Sweep) -> Sweep:
        """The sweep over the worlds of both."""
        points = [
            Point(one.threshold, one.alarms + two.alarms, one.found + two.found)
            for one, two in zip(self.points, other.points, strict=True)
        ]
        return Sweep(self.months + other.months, points)

    def at(self, a_month: float) -> Point:
        """The point with the fewest false alarms that still has at least so many."""
        enough = [point for point in self.points if self.a_month(point) >= a_month]
        return min(enough, key=lambda point: point.alarms, default=self.points[0])


def plains(figure: Figure) -> dict[str, Plain]:
    """The kinds of fixed thresholds to compare with."""
    longer = "1h" if figure.name in DECISIONS else "30m"
    return {
        "5m, for 5m": Plain("5m", 5),
        "5m": Plain("5m", 0),
        "30m or 1h": Plain(longer, 0),
    }


def months(world: World) -> float:
    """The months of agents in a world."""
    return len(world.agents) * world.minutes / MONTH


def sweep(
    healthy: World, troubled: World, figure: Figure, thresholds: Reals,
    begin: Callable[[World], Iterator[Flags]],
) -> Sweep:  # fmt: skip
    """What ``begin`` gives for each threshold: the minutes in which an alert begins, by agent."""
    base = [one for one in caught(drill(troubled)) if one.kind.alert == ALERT_OF[figure.name]]
    rows: dict[str | None, int] = {agent.name: n for n, agent in enumerate(troubled.agents)}
    points = [
        Point(
            float(level),
            int(false.sum()),
            [
                replace(one, minutes=_after(true[rows[one.incident.agent]], one.incident))
                for one in base
            ],
        )
        for level, false, true in zip(thresholds, begin(healthy), begin(troubled), strict=True)
    ]  # fmt: skip
    return Sweep(months(healthy), points)


def _after(begins: Flags, incident: Incident) -> int | None:
    """Minutes until an alert begins; it may come a little after the end."""
    start = (incident.start_us - START_US) // MINUTE
    end = (incident.end_us - START_US) // MINUTE + AFTERWARDS
    found = np.flatnonzero(begins[start:end])
    return int(found[0]) if len(found) else None


def evidence_thresholds(figure: Figure) -> Reals:
    """Thresholds around those of the rules, in nats."""
    return np.sort(np.append(_EVIDENCE_GRID, 1.0)) * IN_USE[figure.name]


def plain_thresholds(worlds: Iterable[World], figure: Figure, window: str) -> Reals:
    """Quantiles of the ratio in healthy worlds, most of them far out in the bad direction."""
    rises = figure.name in RISES
    ratios = [plain_ratio(world, figure, window) for world in worlds]
    values = np.concatenate([ratio[~np.isnan(ratio)] for ratio in ratios])
    found = np.unique(np.quantile(values, 1 - _TAIL if rises else _TAIL))
    return found if rises else found[::-1]


def sweeps(
    healthy: World, troubled: World, figure: Figure, fixed: Mapping[str, Reals]
) -> dict[str, Sweep]:
    """The sweeps of a figure by kind of rule: evidence, and fixed thresholds of each kind."""
    levels = evidence_thresholds(figure)

    def by_evidence(world: World) -> Iterator[Flags]:
        return (either for either, _ in begun(world, figure, levels))

    found = {EVIDENCE: sweep(healthy, troubled, figure, levels, by_evidence)}
    for kind, plain in plains(figure).items():
        found[kind] = sweep(
            healthy, troubled, figure, fixed[kind],
            partial(plain_begun, figure=figure, plain=plain, thresholds=fixed[kind]),
        )  # fmt: skip
    return found


def delays(found: Sequence[Caught]) -> tuple[float, float]:
    """Median and ninth decile of the minutes until the alert; infinite for missed incidents."""
    ordered = sorted(np.inf if one.minutes is None else one.minutes for one in found)
    return float(median(ordered)), float(ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))])
