"""Run the simulations: ``python -m tests.label_calibration --samples 2000``."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.machine import commit
from tests.label_calibration.money import picture, table, widths
from tests.label_calibration.page import Run, described, page
from tests.label_calibration.study import Rate, coverage
from tests.label_calibration.world import FIGURES, World

SIZES = (10, 30, 60, 150, 600)
BIASES = (-0.1, 0.1)
WORLDS = (
    *(World(kappa=kappa, bias=bias) for kappa in (0.4, 0.65, 0.85) for bias in BIASES),
    *(World(kappa=kappa, bias=bias, drift=True) for kappa in (0.4, 0.65, 0.85) for bias in BIASES),
    *(World(turns=6, bias=bias) for bias in BIASES),
    World(alike=0.3),
    World(turns=6, alike=0.3),
    *(World(good=good, bias=bias) for good in (0.1, 0.8, 0.95) for bias in BIASES),
    World(good=0.95, kappa=0.4),
    World(good=0.95, kappa=0.85),
    World(good=0.99),
    World(good=0.95, alike=0.3),
)


def main() -> int:
    """Print the rates, and write them to a page; 1 if the promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=4_000, help="of each cell")
    parser.add_argument("--out", type=Path, help="the folder to write to, such as docs")
    asked = parser.parse_args()
    by_figure: dict[str, list[Rate]] = {figure: [] for figure in FIGURES}
    for world in WORLDS:
        for rate in coverage(world, SIZES, asked.samples):
            by_figure[rate.figure].append(rate)
        print(described(world), flush=True)
    rates = [rate for of in by_figure.values() for rate in of]
    missed = [rate for rate in rates if rate.promised and not rate.kept]
    lines = widths()
    minutes = time.process_time() / 60
    print(table(lines), f"{minutes:.1f} minutes of one core")
    for rate in missed:
        where = f"{rate.figure}, {described(rate.world)}, n = {rate.n}, {rate.source}"
        print(f"MISSED: {where}: {rate.covered:.1f}%, {rate.above:.1f}% above")
    if asked.out is not None:
        today = datetime.now(UTC).date()
        about = Run(today, asked.samples, minutes, f"numpy {version('numpy')}, commit {commit()}")
        text = page(about, rates, table(lines))
        (asked.out / "evidence" / "label-estimates.md").write_text(text, encoding="utf-8")
        (asked.out / "pictures" / "label-money.svg").write_text(picture(lines), encoding="utf-8")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
