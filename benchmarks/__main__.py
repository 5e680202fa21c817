"""``python -m benchmarks [all | live | cost | …] [--quick] …``; ``--help`` lists the parts."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks import (
    bootstrap,
    bounds,
    conversations,
    cost,
    freshness,
    live,
    peer,
    profiling,
    ranked,
    recovery,
    replay,
    scaling,
    scrape,
)
from benchmarks.machine import describe

Part = Callable[[argparse.Namespace], str]
RUNS: dict[str, Part] = {
    "live": lambda c: live.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "peers": lambda c: peer.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "cost": lambda c: cost.run(quick=c.quick, rounds=c.rounds),
    "freshness": lambda c: freshness.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "recovery": lambda c: recovery.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "scrape": lambda c: scrape.run(quick=c.quick, rounds=c.rounds),
    "replay": lambda c: replay.run(quick=c.quick, records=c.records),
    "bounds": lambda c: bounds.run(quick=c.quick, conversations=c.records),
    "bootstrap": lambda c: bootstrap.run(quick=c.quick, rounds=c.rounds),
    "scaling": lambda c: scaling.run(quick=c.quick, records=c.records, rounds=c.rounds),
    "conversations": lambda c: conversations.run(
        quick=c.quick, conversations=c.conversations, rounds=c.rounds
    ),
    "ranked": lambda c: ranked.run(quick=c.quick, queries=c.records, rounds=c.rounds),
    "profile": lambda c: profiling.run(quick=c.quick, records=c.records),
}
IN_ALL = tuple(name for name in RUNS if name != "profile")
"""In the order of their weight: a run that is cut short has what matters most."""
SIZES_IN_ALL = {"replay": 200_000, "bounds": 200_000}
"""Records of parts that alone take a million, and a quarter of an hour."""
KEPT = {"all": "latest.txt"} | {
    name: f"{name}.txt" for name in RUNS if name not in ("live", "cost")
}
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
    changed = chosen.quick or chosen.records or chosen.rounds or chosen.conversations
    report = describe()
    print(report, flush=True)
    # Each in a process of its own: none meets the memory that another has left.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as one:
        for name in IN_ALL if chosen.part == "all" else (chosen.part,):
            said = one.submit(_said, name, _sized(chosen, name)).result()
            print("\n" + said, flush=True)
            report += "\n" + said
            if not changed and chosen.part in KEPT:  # so far, lest a long run be lost
                RESULTS.mkdir(exist_ok=True)
                (RESULTS / KEPT[chosen.part]).write_text(report, encoding="utf-8")


def _said(name: str, chosen: argparse.Namespace) -> str:
    return RUNS[name](chosen)


def _sized(chosen: argparse.Namespace, name: str) -> argparse.Namespace:
    """What was chosen, with the size that a part has among all."""
    if chosen.part != "all" or chosen.quick or chosen.records:
        return chosen
    return argparse.Namespace(**vars(chosen) | {"records": SIZES_IN_ALL.get(name)})


if __name__ == "__main__":
    main()
