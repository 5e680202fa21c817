"""``python -m benchmarks [all | live | cost | …] [--quick] …``; ``--help`` lists the parts."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.parts import RUNS, run

IN_ALL = tuple(name for name in RUNS if name != "profile")
"""The most important parts first, so that an interrupted run has them."""
ONCE = ("replay", "bounds", "traced", "profile")
KEPT = {"all": "latest.txt"} | {name: f"{name}.txt" for name in RUNS}
RESULTS = Path(__file__).with_name("results")


def main() -> None:
    """Run one part, or those of ``IN_ALL``; whole runs are kept in ``results``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", nargs="?", default="all", choices=("all", *RUNS))
    parser.add_argument("--quick", action="store_true", help="a few thousand records, few rounds")
    parser.add_argument(
        "--records", type=int, help="size of the workload (bounds: conversations, ranked: queries)"
    )
    parser.add_argument("--conversations", type=int, help="conversations: the most that are open")
    parser.add_argument("--rounds", type=int, help="how often each thing is measured")
    chosen = parser.parse_args()
    if chosen.rounds and chosen.part in ONCE:
        parser.error(f"{chosen.part} measures each thing once, and takes no --rounds")
    changed = chosen.quick or chosen.records or chosen.rounds or chosen.conversations
    report = describe()
    print(report, flush=True)
    # Each in a separate process, so that none inherits the memory of another.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as one:
        for name in IN_ALL if chosen.part == "all" else (chosen.part,):
            said = one.submit(run, name, chosen).result()
            print("\n" + said, flush=True)
            report += "\n" + said
            if (
                not changed and chosen.part in KEPT
            ):  # after each part, so that a long run is not lost
                RESULTS.mkdir(exist_ok=True)
                (RESULTS / KEPT[chosen.part]).write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
