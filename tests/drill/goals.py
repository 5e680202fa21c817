"""What the alerts of evidence shall do, and whether they did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.stats import gamma

from tests.drill.bands import BANDS, Band, Compared, Share, compare, in_band, share_within
from tests.drill.curves import EVIDENCE, Point, Sweep
from tests.drill.gather import IN_USE
from tests.drill.score import Caught

LATER: Final = 20  # minutes more than in time
MOST_ALARMS: Final = 1.0  # a month and agent, of any severity
MOST_PAGES: Final = 0.3


Choose = Callable[[Sweep, float], Point]
"""Finds the point of a sweep to compare with a rate of false alarms a month and agent."""


class Goal(NamedTuple):
    """A share of incidents of real size that shall be caught; ``band`` is None for all of those
    with less traffic than enough."""

    title: str
    band: Band | None
    least: float
    later: int = 0

    def share(self, found: Sequence[Caught]) -> Share:
        """The share that was caught."""
        if self.band is None:
            chosen = [one for one in found if one.real and not one.telling]
        else:
            chosen = in_band(found, self.band)
        return share_within(chosen, self.later)


GOALS: Final = (
    Goal("20 and more turns in ten minutes: in time", Band(20, None), 0.98),
    Goal("6 to 19 turns: in time", Band(6, 19), 0.7),
    Goal("6 to 19 turns: with 20 minutes more", Band(6, 19), 0.9, LATER),
    Goal("3 to 5 turns: in time", Band(3, 5), 0.45),
    Goal("less traffic than enough: in time", None, 0.4),
    Goal("less traffic than enough: with 20 minutes more", None, 0.55, LATER),
)


class Rate(NamedTuple):
    """So many alarms in so many months of agents."""

    alarms: int
    months: float

    @property
    def a_month(self) -> float:
        """Alarms a month and agent."""
        return self.alarms / self.months

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of Poisson's distribution."""
        low = gamma.ppf(0.025, self.alarms) if self.alarms else 0.0
        high = gamma.ppf(0.975, self.alarms + 1)
        return float(low) / self.months, float(high) / self.months

    def __str__(self) -> str:
        """As in a table.

        >>> str(Rate(9, 18.0))
        '0.50 (0.23 to 0.95; 9 in 18 months)'
        """
        low, high = self.interval
        found = f"{self.alarms} in {self.months:.0f} months"
        return f"{self.a_month:.2f} ({low:.2f} to {high:.2f}; {found})"


class Reached(NamedTuple):
    """A goal, what was found, and whether it was reached; None if there was nothing to tell by."""

    title: str
    goal: str
    found: str
    reached: bool | None


def goals_of(found: Sequence[Caught], alarms: Rate, pages: Rate) -> Iterator[Reached]:
    """Every goal with what became of it."""
    for goal in GOALS:
        share = goal.share(found)
        reached = share.hits >= goal.least * share.of if share.of else None
        yield Reached(goal.title, f"at least {goal.least:.0%}", str(share), reached)
    for title, most, rate in (
        ("alarms about a healthy agent in a month, of any severity", MOST_ALARMS, alarms),
        ("pages about a healthy agent in a month", MOST_PAGES, pages),
    ):
        yield Reached(title, f"at most {most:g}", str(rate), rate.alarms <= most * rate.months)


def goal_table(goals: Iterable[Reached]) -> Iterator[str]:
    """The rows of the table of goals."""
    yield "| incidents of real size | goal | found | reached |"
    yield "|---|---|---|---|"
    for one in goals:
        said = {True: "yes", False: "no", None: "-"}[one.reached]
        yield f"| {one.title} | {one.goal} | {one.found} | {said} |"


def comparison_table(swept: Mapping[str, Mapping[str, Sweep]], choose: Choose) -> Iterator[str]:
    """Evidence against each kind of fixed threshold; ``choose`` finds it for a rate.

    ``swept`` has the sweeps of each figure by kind of rule. The last row has the false alarms a
    month and agent of all figures together.
    """
    kinds = [kind for kind in next(iter(swept.values())) if kind != EVIDENCE]
    yield f"| turns in the first ten minutes | {' | '.join(kinds)} |"
    yield f"|---|{'---|' * len(kinds)}"
    for band in BANDS:
        cells = [compared_cell(compared(swept, kind, band, choose)) for kind in kinds]
        yield f"| {band} | {' | '.join(cells)} |"
    rates = [
        [by_kind[of].a_month(found) for of, found in ((EVIDENCE, ours), (kind, fixed))]
        for kind in kinds
        for by_kind, ours, fixed in chosen(swept, kind, choose)
    ]
    sums = np.reshape(rates, (len(kinds), -1, 2)).sum(axis=1)
    cells = [f"{ours:.2f} : {fixed:.2f}" for ours, fixed in sums]
    yield f"| false alarms | {' | '.join(cells)} |"


def compared_cell(found: Compared) -> str:
    """How many only the first and only the second caught, and what follows.

    >>> compared_cell(Compared(9, 1, 40)), compared_cell(Compared(2, 1, 3))
    ('9 : 1 of 40, better (p 0.021)', '2 : 1 of 3')
    """
    verdict = "better" if found.better else "worse" if found.worse else None
    told = f", {verdict} (p {found.chance:.2g})" if verdict else ""
    return f"{found.only_first} : {found.only_second} of {found.of}{told}"


def compared(
    swept: Mapping[str, Mapping[str, Sweep]], kind: str, band: Band, choose: Choose
) -> Compared:
    """What evidence and a fixed threshold caught in time, of all figures together."""
    ours: list[Caught] = []
    theirs: list[Caught] = []
    for _, own, fixed in chosen(swept, kind, choose):
        ours += in_band(own.found, band)
        theirs += in_band(fixed.found, band)
    return compare(ours, theirs)


def chosen(
    swept: Mapping[str, Mapping[str, Sweep]], kind: str, choose: Choose
) -> Iterator[tuple[Mapping[str, Sweep], Point, Point]]:
    """For each figure, its sweeps, the threshold of evidence, and the fixed one to compare."""
    for figure, by_kind in swept.items():
        own = in_use(figure, by_kind[EVIDENCE])
        yield by_kind, own, choose(by_kind[kind], by_kind[EVIDENCE].a_month(own))


def no_more(sweep: Sweep, a_month: float) -> Point:
    """The most sensitive threshold with no more false alarms; with the fewest, if all have more."""
    few = [point for point in sweep.points if sweep.a_month(point) <= a_month]
    return max(few, key=lambda point: point.alarms, default=sweep.points[-1])


def in_use(figure: str, swept: Sweep) -> Point:
    """The point of the threshold that the rules have."""
    return min(swept.points, key=lambda point: abs(point.threshold - IN_USE[figure]))
