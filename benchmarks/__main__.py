"""``python -m benchmarks [all | live | cost | …] [--quick] …``; ``--help`` lists the parts."""

from __future__ import annotations

import argparse
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

IN_ALL = (
    "live",
    "cost",
    "peers",
    "ranked",
    "bootstrap",
    "scaling",
    "conversations",
    "freshness",
    "recovery",
    "scrape",
)
PARTS = ("all", *IN_ALL, "profile", "bounds", "replay")
KEPT = {
    "all": "latest.txt",
    "peers": "peers.txt",
    "ranked": "ranked.txt",
    "bootstrap": "bootstrap.txt",
    "scaling": "scaling.txt",
    "conversations": "conversations.txt",
    "freshness": "freshness.txt",
    "recovery": "recovery.txt",
    "scrape": "scrape.txt",
    "profile": "profile.txt",
    "bounds": "bounds.txt",
    "replay": "replay.txt",
}
RESULTS = Path(__file__).with_name("results")


def main() -> None:
    """Run one part, or those of ``IN_ALL``; whole runs of all are kept in ``results``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", nargs="?", default="all", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="a few thousand records, few rounds")
    parser.add_argument(
        "--records", type=int, help="size of the workload (bounds: conversations, ranked: queries)"
    )
    parser.add_argument("--conversations", type=int, help="conversations: the most that are open")
    parser.add_argument("--rounds", type=int, help="how often each thing is measured")
    chosen = parser.parse_args()
    head = describe()
    print(head, flush=True)
    parts = IN_ALL if chosen.part == "all" else (chosen.part,)
    report = head
    for part in parts:
        said = _run(part, chosen)
        print("\n" + said, flush=True)
        report += "\n" + said
    changed = chosen.quick or chosen.records or chosen.rounds or chosen.conversations
    if not changed and chosen.part in KEPT:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / KEPT[chosen.part]).write_text(report, encoding="utf-8")


def _run(part: str, chosen: argparse.Namespace) -> str:
    if part == "live":
        return live.run(quick=chosen.quick, records=chosen.records, rounds=chosen.rounds)
    if part == "cost":
        return cost.run(quick=chosen.quick, rounds=chosen.rounds)
    if part == "peers":
        return peer.run(quick=chosen.quick, records=chosen.records, rounds=chosen.rounds)
    if part == "ranked":
        return ranked.run(quick=chosen.quick, queries=chosen.records, rounds=chosen.rounds)
    if part == "bootstrap":
        return bootstrap.run(quick=chosen.quick, rounds=chosen.rounds)
    if part == "scaling":
        return scaling.run(quick=chosen.quick, records=chosen.records, rounds=chosen.rounds)
    if part == "conversations":
        return conversations.run(
            quick=chosen.quick, conversations=chosen.conversations, rounds=chosen.rounds
        )
    if part == "freshness":
        return freshness.run(quick=chosen.quick, records=chosen.records, rounds=chosen.rounds)
    if part == "recovery":
        return recovery.run(quick=chosen.quick, records=chosen.records, rounds=chosen.rounds)
    if part == "scrape":
        return scrape.run(quick=chosen.quick, rounds=chosen.rounds)
    if part == "bounds":
        return bounds.run(quick=chosen.quick, conversations=chosen.records)
    if part == "replay":
        return replay.run(quick=chosen.quick, records=chosen.records)
    return profiling.run(quick=chosen.quick, records=chosen.records)


if __name__ == "__main__":
    main()
