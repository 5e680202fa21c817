"""Generates ``docs/evidence/label-estimates.md``: the method and results of the simulations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from itertools import groupby
from typing import Final, NamedTuple

from tests.label_calibration.money import BY_MODEL, BY_PERSON
from tests.label_calibration.study import FEW_FROM, JUDGED, PROMISED, PROMISED_FROM, Rate
from tests.label_calibration.world import CONVERSATIONS, World

NAMES: Final = {"sre": "SRE", "gain": "Good gain of an iteration", "ndcg@10": "NDCG@10"}


class Run(NamedTuple):
    """A run: when, the samples of each cell, the minutes of one core, and what it ran with."""

    day: date
    samples: int
    cpu_minutes: float
    versions: str


def page(run: Run, rates: Sequence[Rate], money: str) -> str:
    """The page of a run."""
    missed = [rate for rate in rates if rate.promised and not rate.kept]
    kept = "The run below keeps it."
    if missed:
        listed = "".join(
            f"\n- {NAMES[rate.figure]}, {described(rate.world)}, n = {rate.n}, {rate.source}: "
            f"{rate.covered:.1f}%"
            for rate in missed
        )
        kept = f"**Not kept in the run below**, beyond chance:\n{listed}"
    words = _INTRO.format(
        low=PROMISED[0], high=PROMISED[1], covered=PROMISED_FROM, few=FEW_FROM, kept=kept,
        judged=JUDGED, conversations=CONVERSATIONS, day=run.day, minutes=run.cpu_minutes,
        versions=run.versions, samples=run.samples, error=196 * (0.95 * 0.05 / run.samples) ** 0.5,
    )  # fmt: skip
    tables = [
        tables_of(figure, list(of)) for figure, of in groupby(rates, lambda rate: rate.figure)
    ]
    costs = _MONEY.format(person=BY_PERSON, model=BY_MODEL, table=money)
    return "\n".join([words, *tables, costs])


def described(world: World) -> str:
    """A world in words."""
    return (
        f"{world.good:.0%} good, κ {world.kappa:g}, bias {100 * world.bias:+g}"
        f"{' from the middle on' if world.drift else ''}"
        f"{f', {world.turns:g} turns' if world.turns != World().turns else ''}"
        f"{f', alike {world.alike:g}' if world.alike != World().alike else ''}"
    )


def tables_of(figure: str, rates: Sequence[Rate]) -> str:
    """The coverage and the width of a figure: a row a world, a column a size."""
    sizes = sorted({rate.n for rate in rates})
    lines = [
        f"## {NAMES[figure]}",
        "",
        "Per cent of intervals that contain the true value: by people alone, and combined. In "
        "brackets, how wide the combined interval is beside that of people alone.",
        "",
        "| world | " + " | ".join(f"n = {n}" for n in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for world, of in groupby(rates, lambda rate: rate.world):
        cells = " | ".join(_cells(list(of), sizes))
        lines.append(f"| {described(world)} | {cells} |")
    return "\n".join([*lines, ""])


def _cells(rates: Sequence[Rate], sizes: Iterable[int]) -> Iterable[str]:
    for n in sizes:
        human, combined = (rate for rate in rates if rate.n == n)
        narrowed = combined.width / human.width
        yield f"{human.covered:.1f}, {combined.covered:.1f} ({narrowed:.2f})"


_INTRO: Final = """\
# Estimates from labels by people and by a model

The 95% intervals of estimates from labels should contain the true value in 95 of 100 cases.
`make label-calibration` counts how often they do, by simulation of worlds whose true value is
known, and writes this page. The sources are in `tests/label_calibration`, and the formulas in
`stream_metrics/core/alerts/estimates.py`.

The promise: from {covered} conversations on that people labelled, intervals contain the true value
in {low:.0f}% to {high:.0f}% of cases. NDCG needs {few} where 95% of results are good and those of a
conversation are very alike (0.3): nearly all conversations then have an NDCG near 1, and samples
often miss the few near 0. {kept}

## The worlds

A world has {conversations:,} conversations. A conversation has 2 turns on average, a turn 2
searches, and a search about 8 results. Each conversation has its own share of good results, so that
results of a conversation are alike: their intraclass correlation is 0.1, unless a row says
otherwise. Good results have grades from 2 to 4.

A model judges every result. **κ** is Cohen's kappa of the model and people. **Bias** is how many
points more of the results the model calls good than people do, or the most that κ allows: 8 points,
for instance, where κ is 0.85 and 40% of results are good. Its errors differ by conversation. Where
a bias begins in the middle, the model has none in the first half of the conversations.

Of each world, {samples:,} samples are drawn: **n** conversations that people and the model
labelled, and {judged:,} others that the model alone labelled. PCG64 draws them, seeded by the
world, the figure and n.

- {day:%Y-%m-%d}, {minutes:.0f} minutes of one core; {versions}.
- The error of a rate of 95% is ± {error:.1f} points.

## Why intervals are not symmetric

Where most results are good, most samples of 60 conversations have fewer bad results than the
world, and such samples also vary less: a symmetric interval is then both too high and too narrow.
Where 95% of the results are good, Student's t contained the true value in 91% of cases by people
alone, and combined in 88% to 90%. Three things help, and need no further sums:

1. The interval is symmetric on the scale of log-odds; for gain, on that of logarithms.
2. The variance is increased by three times the square of the variance of people's log-odds. That is
   15% to 20% where n is 60 and 95% of results are good, 3% where 40% are good, and less with a
   larger n. The combined variance is increased by as much: a model does not show what people have
   not seen.
3. The combined variance is further increased by 2λ ÷ n: λ comes from the same conversations.

Where all labelled results are good, the interval of n conversations begins near 1 − 3 ÷ n.
"""

_MONEY: Final = """\
## What labels cost

A label of a document costs {person:g} by a person who labels a hundred an hour, and {model:g} by a
model. The table has the width of the interval of SRE in points, for the best division of the money
between people and the model. 40% of results are good, and the bias is 10 points, or the most that κ
allows.

{table}
![The width of the interval of SRE against what its labels cost](../pictures/label-money.svg)

Generated by `make label-calibration`.
"""
