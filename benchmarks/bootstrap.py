"""The bootstrap interval of a mean, against ``scipy.stats.bootstrap``.

Both draw from the same generator with the same seed, so that the intervals must be the same. Each
measurement has a process of its own, whose peak memory is the measurement's.
"""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

from benchmarks.agreement import differs
from benchmarks.figures import Figure, figures_table, section
from benchmarks.ran import RAN
from benchmarks.rivals import MIB, PEERS, Measurement, Rival, peer_versions

ROUNDS: Final = 5
BATCHES: Final = (1, 10, 100)
"""Resamples that scipy may hold at a time; the fastest is taken."""
TOLERANCE: Final = 1e-12
MODULE: Final = "benchmarks.rivals.intervals"


class Work(NamedTuple):
    """What is computed."""

    method: str
    values: int
    resamples: int


def run(*, quick: bool = False, rounds: int | None = None) -> str:
    """Measure, and return the report.

    Raises:
        RuntimeError: The two do not give the same interval.
    """
    whole = Work("percentile", 10_000, 2_000) if quick else Work("percentile", 100_000, 10_000)
    versions = peer_versions(("scipy", "numpy"))
    batch = _fastest_batch(whole)
    # Most of scipy's BCa is the jackknife, whose cost grows with the square of the values.
    skewed = Work("bca", whole.values // 10, whole.resamples)
    return section(
        "bootstrap: the interval of a mean",
        f"A process a measurement, alternating. scipy is vectorised, with batch={batch}, the "
        f"fastest of {', '.join(map(str, BATCHES))}.\n"
        f"Same draws; the intervals are the same to {TOLERANCE:g}.\n"
        f"peers with {versions}\n",
        _compared(whole, rounds or ROUNDS, batch, goal="≥ 3"),
        _compared(skewed, 1, batch),
    )


def _fastest_batch(work: Work) -> int:
    few = work._replace(resamples=max(work.resamples // 50, max(BATCHES)))
    return min(BATCHES, key=lambda batch: _scipy(few, batch).cpu_seconds)


def _compared(work: Work, rounds: int, batch: int, goal: str = "") -> str:
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_measure("ours", work, python=sys.executable))
        theirs.append(_scipy(work, batch))
        if differs(theirs[-1].found, ours[-1].found, TOLERANCE).any():
            raise RuntimeError(f"{work}: {ours[-1].found} here, {theirs[-1].found} by scipy")
    ratios = [
        other.cpu_seconds / mine.cpu_seconds for mine, other in zip(ours, theirs, strict=True)
    ]
    title = f"{work.method}, {work.values:,} values × {work.resamples:,} resamples"
    return f"{title}\n" + figures_table(
        [
            Figure("ours", [one.cpu_seconds for one in ours], "CPU s"),
            Figure("scipy", [one.cpu_seconds for one in theirs], "CPU s"),
            Figure("scipy ÷ ours", ratios, "", goal),
            Figure("wall time, ours", [one.seconds for one in ours], "s"),
            Figure("wall time, scipy", [one.seconds for one in theirs], "s"),
            Figure("peak RSS, ours", [one.rss_bytes / MIB for one in ours], "MiB"),
            Figure("peak RSS, scipy", [one.rss_bytes / MIB for one in theirs], "MiB"),
        ]
    )


def _scipy(work: Work, batch: int) -> Measurement:
    return _measure("scipy", work, python=str(PEERS), batch=batch)


def _measure(tool: str, work: Work, *, python: str, **options: Any) -> Measurement:
    """One measurement, after a small one has loaded what the tool needs."""
    with Rival(MODULE, python=python, note=RAN.note) as rival:
        rival.ask(tool, **work._replace(values=100, resamples=100)._asdict(), **options)
        return rival.ask(tool, **work._asdict(), **options)
