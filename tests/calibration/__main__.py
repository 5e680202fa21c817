"""Run the simulations: ``python -m tests.calibration --simulations 10000``."""

from __future__ import annotations

import argparse
import os
import resource
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks.machine import commit
from stream_metrics.lab.choices import TEST_RESAMPLES
from tests.calibration.page import Run, page, table
from tests.calibration.shapes import CLUSTERED, SHAPES, Shape
from tests.calibration.study import (
    Rate,
    coverage,
    false_positives,
    false_positives_unpaired,
    missed,
    near,
)

SIZES = (9, 20, 50, 200, 500)
TEST_SIZES = (20, 50, 200)
MORE = 10
"""How many times as many simulations decide where a rate is near its bound."""
Study = Callable[[Shape, int, int], list[Rate]]


def main() -> int:
    """Print the tables, and write them to a page; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=10_000, help="of each cell")
    parser.add_argument("--draws", type=int, default=TEST_RESAMPLES, help="of each test")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument(
        "--out", type=Path, help="the page to write, such as docs/evidence/calibration.md"
    )
    asked = parser.parse_args()
    today = datetime.now(UTC).date()
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    versions += f", commit {commit()}"
    tables: list[str] = []
    found: list[Rate] = []
    of_pairs = partial(false_positives, resample_count=asked.draws)
    of_others = partial(false_positives_unpaired, resample_count=asked.draws)
    every = (*SHAPES, *CLUSTERED)
    with ProcessPoolExecutor(asked.processes) as pool:

        def run(study: Study, shapes: Iterable[Shape], sizes: Sequence[int], title: str) -> None:
            cells = [(shape, n) for shape in shapes for n in sizes]
            by_cell = [pool.submit(study, *cell, asked.simulations).result for cell in cells]
            first = [result() for result in by_cell]
            again = {
                at: pool.submit(study, *cell, MORE * asked.simulations).result
                for at, cell in enumerate(cells)
                if any(map(near, first[at]))
            }
            rates = [
                rate
                for at, one in enumerate(first)
                for rate in (again[at]() if at in again else one)
            ]
            found.extend(rates)
            tables.append(table(title, rates, sizes))
            print(tables[-1], flush=True)

        run(coverage, SHAPES, SIZES, "Coverage of 95% intervals, one value per unit")
        run(
            coverage,
            CLUSTERED,
            SIZES,
            "Coverage of 95% intervals, several searches per conversation",
        )
        run(of_pairs, every, TEST_SIZES, "False positives at 5%, paired")
        run(of_others, every, TEST_SIZES, "False positives at 5%, n units against 2 n other units")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (spent.ru_utime + spent.ru_stime) / 60
    print(f"{minutes:.1f} CPU minutes")
    if asked.out is not None:
        about = Run(today, asked.simulations, asked.draws, minutes, versions)
        asked.out.write_text(page(about, tables, found), encoding="utf-8")
    wrong = [rate for rate in found if missed(rate)]
    for rate in wrong:
        print(f"MISSED: {rate.shape.name}, n = {rate.n}, {rate.what}: {rate.rate:.2%}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
