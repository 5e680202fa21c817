"""Divide the alarms that an agent may have among its figures: ``python -m tests.drill.budget``.

How often chance reaches a threshold is in ``calibration.py``. Here the same thresholds are tried on
incidents of real size, of seeds by which no rules are judged. Over the thresholds of a figure, the
share that is noticed in time rises by about as much with each doubling of the alarms. With such
straight lines, the most incidents are noticed if each figure has alarms in proportion to the slope
of its line. Each kind of incident counts alike, however many the worlds have of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from stream_metrics.core.alerts.calibration import MEASURED, SHARES
from stream_metrics.core.alerts.figures import FIGURES, Figure
from tests.drill.bands import Band, in_band, share_within
from tests.drill.gather import ALERT_OF, IN_USE
from tests.drill.judge import begun
from tests.drill.pictures import budget_picture
from tests.drill.plan import Planning, incidents, loops
from tests.drill.run import drill
from tests.drill.score import AFTERWARDS, Caught, caught
from tests.drill.simulation import Size, World, kept_world
from tests.drill.world import MINUTE, START_US

FAST: Final = Size(turns_each=250)  # what is noticed hardly depends on it
WORLDS: Final[Sequence[tuple[int, Size, Planning]]] = (
    (1, Size(), incidents),
    *((seed, FAST, incidents) for seed in (101, 102, 103, 104)),
    *((seed, Size(), loops) for seed in (1, 11, 124472, 491714, 805518)),
)
MOST: Final = 2.0  # alarms a month and agent; more are none of a line
AROUND: Final = 4  # thresholds on either side
SHOWN: Final = (Band(1, 2), Band(3, 5), Band(6, 19), Band(20, None))


class Step(NamedTuple):
    """A threshold in nats, its alarms a month and agent, and what becomes of incidents with it."""

    nats: float
    alarms: float
    found: Sequence[Caught]

    @property
    def value(self) -> float:
        """The shares that are noticed in time, added up over kinds of incidents."""
        kinds = {one.kind for one in self.found}
        each = [share_within(one for one in self.found if one.kind == kind) for kind in kinds]
        return sum(share.hits / share.of for share in each)


def main() -> None:
    """Print what each figure would have of all alarms, and the thresholds, as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m tests.drill.budget", description=__doc__)
    parser.add_argument("--picture", type=Path, help="draw the curves there")
    asked = parser.parse_args()
    worlds = [
        kept_world(seed, size, healthy=False, planning=planning) for seed, size, planning in WORLDS
    ]
    curves = {figure.name: curve(figure, worlds) for figure in FIGURES}
    print("\n".join(shares_table(curves)), end="\n\n")
    print("\n".join(steps_table(curves)))
    if asked.picture:
        lines = {name: shown(steps) for name, steps in curves.items()}
        asked.picture.write_text(budget_picture(lines, in_use(curves)), encoding="utf-8")


def curve(figure: Figure, worlds: Sequence[World]) -> list[Step]:
    """What the measured thresholds of a figure make of the incidents that its alert is for."""
    measured = MEASURED[figure.name]
    nats = np.array([nats for nats, _ in measured], float)
    found: list[list[Caught]] = [[] for _ in nats]
    for world in worlds:
        real = [
            one
            for one in caught(drill(world))
            if one.kind.alert == ALERT_OF[figure.name] and one.real
        ]
        if not real:
            continue
        rows: dict[str | None, int] = {agent.name: row for row, agent in enumerate(world.agents)}
        for of_step, (begins, _) in zip(found, begun(world, figure, nats), strict=True):
            for one in real:
                start = (one.incident.start_us - START_US) // MINUTE
                end = (one.incident.end_us - START_US) // MINUTE + AFTERWARDS
                late = np.flatnonzero(begins[rows[one.incident.agent], start:end])
                of_step.append(replace(one, minutes=int(late[0]) if len(late) else None))
    return [Step(float(at), rate, of) for (at, rate), of in zip(measured, found, strict=True)]


def slope(steps: Sequence[Step]) -> float:
    """What a doubling of the alarms adds to the shares in time; 0 if alarms are not known to rise.

    >>> round(slope([Step(9.0, 0.4, []), Step(10.0, 0.1, [])]), 3)
    0.0
    """
    line = [(np.log2(step.alarms), step.value) for step in steps if step.alarms <= MOST]
    if len(line) < 2:
        return 0.0
    doublings, values = np.array(line).T
    return max(0.0, float(np.polyfit(doublings, values, 1)[0]))


def shares_table(curves: Mapping[str, Sequence[Step]]) -> Iterator[str]:
    """A row for each figure: its slope, its part of all slopes, and the share that it has."""
    slopes = {name: slope(steps) for name, steps in curves.items()}
    yield "| figure | a doubling of its alarms notices | part of all | share |"
    yield "|---|---|---|---|"
    for name, steps in curves.items():
        kinds = len({one.kind for one in steps[0].found})
        part = slopes[name] / sum(slopes.values())
        more = f"{slopes[name] / kinds:.1%} more" + (" of each of 2 kinds" if kinds == 2 else "")
        yield f"| {name} | {more} | {part:.2f} | {SHARES[name]:.2f} |"


def steps_table(curves: Mapping[str, Sequence[Step]]) -> Iterator[str]:
    """A row for each figure and some thresholds, the one in use in bold: shares in time."""
    yield f"| figure | nats | alarms | {' | '.join(f'{band} turns' for band in SHOWN)} | all |"
    yield f"|---|---|---|{'---|' * len(SHOWN)}---|"
    for name, steps in curves.items():
        place = next(at for at, step in enumerate(steps) if step.nats == IN_USE[name])
        for step in steps[place % 2 :: 2]:
            if abs(steps.index(step) - place) > AROUND:
                continue
            bold = "**" if step.nats == IN_USE[name] else ""
            each = [share_within(in_band(step.found, band)) for band in SHOWN]
            cells = [f"{share.hits} of {share.of}" for share in [*each, share_within(step.found)]]
            said = " | ".join([f"{bold}{step.nats:g}{bold}", f"{step.alarms:g}", *cells])
            yield f"| {name} | {said} |"


def shown(steps: Sequence[Step]) -> dict[str, list[tuple[float, float]]]:
    """By band, alarms a month with the share in time."""
    found: dict[str, list[tuple[float, float]]] = {}
    for band in SHOWN:
        for step in steps:
            share = share_within(in_band(step.found, band))
            if share.of:
                found.setdefault(str(band), []).append((step.alarms, share.hits / share.of))
    return found


def in_use(curves: Mapping[str, Sequence[Step]]) -> dict[str, float]:
    """The alarms of each figure with the threshold of the rules."""
    return {
        name: step.alarms for name, steps in curves.items() for step in steps
        if step.nats == IN_USE[name]
    }  # fmt: skip


if __name__ == "__main__":
    main()
