"""Generates ``docs/evidence/calibration.md``: the method and results of the simulations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final, NamedTuple

from stream_metrics.lab.choices import RESAMPLES
from tests.calibration.study import (
    COVERAGE,
    COVERED_FROM,
    FALSE_POSITIVES,
    SOUND_FROM,
    SOUND_PLAIN_FROM,
    Rate,
    missed,
)


class Run(NamedTuple):
    """A run of the simulations.

    Attributes:
        day: When.
        simulations: Of each cell.
        draws: Of each test that resamples.
        cpu_minutes: What it took.
        versions: Of what it ran with.
    """

    day: date
    simulations: int
    draws: int
    cpu_minutes: float
    versions: str


def page(run: Run, tables: Sequence[str], rates: Sequence[Rate]) -> str:
    """The page of a run."""
    wrong = [rate for rate in rates if missed(rate)]
    kept = "The run below keeps it."
    if wrong:
        listed = "; ".join(f"{r.shape.name}, n = {r.n}, {r.what}: {r.rate:.1%}" for r in wrong)
        kept = f"**Not kept in the run below**: {listed}."
    about = [
        f"- {run.day:%Y-%m-%d}, {run.cpu_minutes:.0f} CPU minutes; {run.versions}.",
        f"- {run.simulations:,} simulations per cell; the error of a rate of 95% is "
        f"± {196 * (0.95 * 0.05 / run.simulations) ** 0.5:.1f} points.",
        *_with_more(run, rates),
        f"- {RESAMPLES:,} resamples per interval, {run.draws:,} draws per test.",
        "",
    ]
    words = _INTRO.format(
        low=COVERAGE[0], high=COVERAGE[1], covered=COVERED_FROM, false=FALSE_POSITIVES,
        sound=SOUND_FROM, plain=SOUND_PLAIN_FROM, kept=kept,
    )  # fmt: skip
    return "\n".join([words, *about, *tables, _READING])


def _with_more(run: Run, rates: Sequence[Rate]) -> list[str]:
    """What says which cells were simulated more often."""
    cells: dict[int, dict[str, None]] = {}
    for rate in rates:
        if rate.simulations > run.simulations:
            named = f"{rate.shape.name}, n = {rate.n}, {rate.kind}"
            cells.setdefault(rate.simulations, {})[named] = None
    return [
        f"- {count:,} simulations where the result is within two and a half standard errors of a "
        f"bound: {'; '.join(named)}."
        for count, named in cells.items()
    ]


def table(title: str, rates: Sequence[Rate], sizes: Sequence[int]) -> str:
    """A Markdown table: a row a shape and method, a column a size."""
    lines = [
        f"## {title}",
        "",
        "| data | method | " + " | ".join(f"n = {n}" for n in sizes) + " |",
        "|---|---|" + "---|" * len(sizes),
    ]
    cells = {(rate.shape.name, rate.what, rate.n): rate.rate for rate in rates}
    for shape, what in dict.fromkeys((rate.shape.name, rate.what) for rate in rates):
        row = " | ".join(f"{cells[shape, what, n]:.1%}" for n in sizes)
        lines.append(f"| {shape} | {what} | {row} |")
    return "\n".join([*lines, ""])


_INTRO: Final = """\
# Calibration of intervals and tests

A 95% interval should contain the true value in 95 of 100 cases, and a test at 5% should report a
difference between equal systems in at most 5 of 100. `make calibration` counts both by simulation
on data whose true value is known, and writes this page. The sources are in `tests/calibration`.

The promise:

- From {covered} units on, intervals contain the true value in {low:.0%} to {high:.0%} of cases.
- From {sound} units on, tests at 5% have at most {false:.0%} false positives;
  `plain_bootstrap` from {plain} units on.

There is no promise for intervals of fewer units, for `t` on 0/1 values, and for searches of one
conversation that are treated as independent. The tables show them for comparison.

{kept}

| data | distribution |
|---|---|
| hit, p = 0.9 | 0 or 1 |
| reciprocal rank | 1, 1/2, … 1/10 or 0; 42% of the units have 1, 16% have 0 |
| NDCG | 10% of the units have 0, 15% have 1, the others lie between |
| SRR, 60% zeros | 60% of the units have 0, the others Beta(2, 5) |
| hits by conversation | 1 to about 10 searches per conversation, which has its own hit rate |
| long when bad | the worse the searches of a conversation, the more of them there are |
| micro SRR | duplicates of 10 to 80 results per conversation, as a ratio of sums |

n is the number of units (conversations or queries). Tests compare two equal systems: in pairs, half
of the units have the same value in both, and the others are drawn independently. PCG64 draws data
sets, seeded by their name, n and the name of the study. The statistics use their default seed,
20,240,501. `tests/unit/test_calibration.py` checks the fast, joint computation of many data sets
against the shipped functions, to 1e-12.

## The run
"""

_READING: Final = """\
## Conclusions

- **Few units.** With 9 or 20 units of a 0/1 metric near 1, all values are often 1, and the
  percentile interval has no width. Use `wilson` for such metrics; reports say so beside an interval
  without width.
- **`t` for 0/1 values** is too narrow near 0 and 1 even with 200 units, because the error of a
  share near 1 is not symmetric.
- **Skewed values, few units.** `bca` is closer to 95% than `percentile` for many zeros or few
  conversations, but not for 0/1 values.
- **Conversations.** If the searches of a conversation are treated as independent, intervals contain
  the true value in 49 to 86% of cases.
- **Tests.** With 20 units the studentised bootstrap stays below 5%, and the plain one reaches 8%.
- **Chance.** With a true rate of 5.5%, one of fifty runs of 10,000 simulations shows 6% or more, so
  rates near a bound are simulated more often. The exact rates of Welch's test for hits, summed over
  all outcomes, are 1.0% with 20 against 40 units, 5.5% with 50 against 100 (100,000 simulations:
  5.6%) and 5.1% with 200 against 400.

Generated by `make calibration`.
"""
