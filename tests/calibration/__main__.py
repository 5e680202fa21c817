"""Run the simulations: ``python -m tests.calibration --simulations 10000``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from tests.calibration.shapes import CLUSTERED, SHAPES, Shape
from tests.calibration.study import (
    Rate,
    coverage,
    false_positives,
    false_positives_unpaired,
    missed,
)

SIZES = (9, 20, 50, 200, 500)
TEST_SIZES = (20, 50, 200)


def main() -> int:
    """Print the tables; 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=10_000, help="of each cell")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    asked = parser.parse_args()
    found: list[Rate] = []
    with ProcessPoolExecutor(asked.processes) as pool:

        def run(
            study: Callable[[Shape, int, int], list[Rate]],
            shapes: Iterable[Shape],
            sizes: Sequence[int],
            title: str,
        ) -> None:
            cells = [(shape, n) for shape in shapes for n in sizes]
            results = pool.map(study, *zip(*cells, strict=True), repeat(asked.simulations))
            rates = [rate for one in results for rate in one]
            found.extend(rates)
            print(table(title, rates, sizes), flush=True)

        run(coverage, SHAPES, SIZES, "Coverage of 95% intervals")
        run(coverage, CLUSTERED, SIZES, "Coverage, several searches a conversation")
        run(false_positives, (*SHAPES, *CLUSTERED), TEST_SIZES, "False positives at 5%, paired")
        run(
            false_positives_unpaired, (*SHAPES, *CLUSTERED), TEST_SIZES,
            "False positives at 5%, n units against 2 n others",
        )  # fmt: skip
    wrong = [rate for rate in found if missed(rate)]
    for rate in wrong:
        print(f"MISSED: {rate.shape.name}, n = {rate.n}, {rate.what}: {rate.rate:.2%}")
    return int(bool(wrong))


def table(title: str, rates: Sequence[Rate], sizes: Sequence[int]) -> str:
    """A Markdown table: a row a shape and method, a column a size."""
    lines = [
        f"### {title}",
        "",
        "| data | method | " + " | ".join(f"n = {n}" for n in sizes) + " |",
    ]
    lines.append("|---|---|" + "---|" * len(sizes))
    cells = {(rate.shape.name, rate.what, rate.n): rate.rate for rate in rates}
    for shape, what in dict.fromkeys((rate.shape.name, rate.what) for rate in rates):
        row = " | ".join(f"{cells[shape, what, n]:.1%}" for n in sizes)
        lines.append(f"| {shape} | {what} | {row} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    raise SystemExit(main())
