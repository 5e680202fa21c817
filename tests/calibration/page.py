"""``docs/evidence/calibration.md``: what the simulations found, and how."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final, NamedTuple

from stream_metrics.statistics.intervals import RESAMPLES
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
    kept = "All of it holds in the run below."
    if wrong:
        listed = "; ".join(f"{r.shape.name}, n = {r.n}, {r.what}: {r.rate:.1%}" for r in wrong)
        kept = f"**Not kept in the run below**: {listed}."
    about = [
        f"- {run.day:%Y-%m-%d}, {run.cpu_minutes:.0f} CPU minutes; {run.versions}.",
        f"- {run.simulations:,} simulations a cell, so that a rate of 95% is known to "
        f"± {196 * (0.95 * 0.05 / run.simulations) ** 0.5:.1f} points.",
        *_with_more(run, rates),
        f"- Intervals of {RESAMPLES:,} resamples, tests of {run.draws:,} draws.",
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
        "- Where two and a half standard errors would decide whether a promise is kept, "
        f"{count:,}: {'; '.join(named)}."
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
# How often intervals hold and tests find

An interval of 95% is worth its name if it holds the true value 95 times of 100, and a test at 5%
if it finds a difference between equals in no more than 5 of 100. Here both are counted, over data
whose true figure is known. `make calibration` draws them again and writes this page; the sources
are in `tests/calibration`.

What is promised:

- From {covered} units on, intervals hold the true value in {low:.0%} to {high:.0%} of all cases.
- From {sound} units on, a test at 5% finds no more than {false:.0%} where nothing is;
  `plain_bootstrap` from {plain} units on.

Nothing is promised of intervals of fewer units, of `t` for 0/1 values, and of searches that are
taken one by one though they come from the same conversation. These are in the tables to be seen.

{kept}

| data | is |
|---|---|
| hit, p = 0.9 | 0 or 1, a value a unit |
| reciprocal rank | 1, 1/2, … 1/10 or 0; 42% of the units have 1, 16% have 0 |
| NDCG | 10% of the units have 0, 15% have 1, the others lie between |
| SRR, 60% zeros | 60% of the units have 0, the others Beta(2, 5) |
| hits by conversation | 1 to some 10 searches a conversation, which has a hit rate of its own |
| long when bad | the worse the searches of a conversation, the more of them there are |
| micro SRR | duplicates of 10 to 80 results a conversation, as a quotient of sums |

n is the number of units: conversations, or queries. In the tests two systems are equal: paired,
half of the units have the same value in both, and the others are drawn anew. The draws of a data
set come from PCG64 with a seed made of its name, n and the study's name; those of the statistics
from their default seed, 20,240,501, as in every report. Data sets are computed many at a time;
`tests/unit/test_calibration.py` holds bounds and p-values of hundreds of them to those of the
shipped functions, to 1e-12.

## The run
"""

_READING: Final = """\
## What follows

- **Few units.** With 9 or 20 units of a 0/1 metric near 1 the percentile interval often has no
  width at all (every value is 1), and holds far less than it says. Take `wilson` for such
  metrics; every report says so beside an interval without spread.
- **`t` for 0/1 values** is too narrow near 0 and 1 still at 200 units, since the error of a share
  that is near 1 is not symmetric.
- **Skewed values, few units.** `bca` is nearer to 95% than `percentile` for many zeros or few
  conversations. For 0/1 values it is not.
- **Conversations.** Searches of a conversation taken one by one give intervals that hold 49 to
  86%.
- **Tests.** The studentised bootstrap finds less than 5% with 20 units: it is careful, where the
  plain one finds up to 8%.
- **Chance.** Of a true rate of 5.5%, one run of 10,000 in fifty shows 6% or more; rates so
  near to a bound are therefore counted over more simulations. For hits the rates of Welch's test
  can be summed up over all outcomes instead: 1.0% with 20 units against 40, 5.5% with 50 against
  100 (100,000 simulations show 5.6%), 5.1% with 200 against 400.

Generated by `make calibration`.
"""
