"""What was caught by how much traffic there was, with intervals, and two sets of rules compared.

Ten minutes of a quiet agent have a handful of turns. A share over all incidents says little about
it, because most of them may be of busy agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from scipy.stats import binomtest

from tests.drill.score import Caught

LATER: Final = (0, 20, 30)  # minutes more than in time


@dataclass(frozen=True, slots=True)
class Band:
    """Incidents with so many turns of the agent in their first ten minutes; both ends included."""

    low: int
    high: int | None

    def __contains__(self, turns: int) -> bool:
        return self.low <= turns and (self.high is None or turns <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low}+"
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"


BANDS: Final = (
    Band(0, 0), Band(1, 2), Band(3, 5), Band(6, 9), Band(10, 19), Band(20, None),
)  # fmt: skip


class Share(NamedTuple):
    """So many of so many."""

    hits: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval by Wilson; all of it if there is nothing."""
        if not self.of:
            return 0.0, 1.0
        found = binomtest(self.hits, self.of).proportion_ci(method="wilson")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        """As in a table.

        >>> str(Share(7, 10)), str(Share(0, 0))
        ('70% (40% to 89%) of 10', '-')
        """
        if not self.of:
            return "-"
        low, high = self.interval
        return f"{self.hits / self.of:.0%} ({low:.0%} to {high:.0%}) of {self.of}"


def caught_within(one: Caught, later: int = 0) -> bool:
    """Whether the alert fired in time, or so many minutes later."""
    return one.minutes is not None and one.minutes <= one.due + later


def share_within(found: Iterable[Caught], later: int = 0) -> Share:
    """The share that was caught in time, or so many minutes later."""
    hits = [caught_within(one, later) for one in found]
    return Share(sum(hits), len(hits))


def in_band(found: Iterable[Caught], band: Band) -> list[Caught]:
    """Those of one agent in the band, of real size."""
    return [one for one in found if one.real and one.turns is not None and one.turns in band]


class Compared(NamedTuple):
    """How two sets of rules did on the same incidents: what only one of them caught in time."""

    only_first: int
    only_second: int
    of: int

    @property
    def chance(self) -> float:
        """The probability of a difference as large, if both were as good: McNemar's exact test.

        >>> Compared(9, 1, 40).chance < 0.05 < Compared(6, 2, 40).chance
        True
        """
        differing = self.only_first + self.only_second
        return float(binomtest(self.only_first, differing).pvalue) if differing else 1.0

    @property
    def better(self) -> bool:
        """Whether the first caught more, beyond chance at 95%."""
        return self.only_first > self.only_second and self.chance < 0.05

    @property
    def worse(self) -> bool:
        """Whether the first caught less, beyond chance at 95%."""
        return self.only_first < self.only_second and self.chance < 0.05


def compare(
    first: Sequence[Caught],
    second: Sequence[Caught],
    caught: Callable[[Caught], bool] = caught_within,
) -> Compared:
    """Compare two sets of rules on the same incidents in the same order."""
    pairs = list(zip(first, second, strict=True))
    if any((a.incident, a.kind) != (b.incident, b.kind) for a, b in pairs):
        raise ValueError("the two lists are about different incidents")
    both = [(caught(a), caught(b)) for a, b in pairs]
    return Compared(both.count((True, False)), both.count((False, True)), len(both))


def band_table(found: Sequence[Caught]) -> list[str]:
    """The rows of the table of bands, and one for all with less traffic than enough."""
    rows = [(f"{band} turns", in_band(found, band)) for band in BANDS]
    less = [one for one in found if one.real and not one.telling]
    return [
        "| in the first ten minutes | in time | within 20 minutes more | within 30 minutes more |",
        "|---|---|---|---|",
        *(
            f"| {title} | {' | '.join(str(share_within(of, later)) for later in LATER)} |"
            for title, of in [*rows, ("less traffic than enough", less)]
        ),
    ]
