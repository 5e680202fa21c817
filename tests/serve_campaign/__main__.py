"""``python -m tests.serve_campaign``: faults of one process while clients send; then compare.

Exits with 1 on a difference.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import describe
from tests.campaign.report import Outcome, aligned, publish
from tests.serve_campaign.faults import FAULTS
from tests.serve_campaign.round import Options, run_round, summary


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.serve_campaign", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="the first seed (default: 1)")
    add("--rounds", type=int, default=1, help="how many seeds, one after the other (default: 1)")
    add("--faults", type=int, default=5, help="faults per seed (default: 5)")
    add("--events", type=int, default=20_000, help="events at least (default: 20000)")
    add("--traces", type=int, default=600, help="traces (default: 600)")
    add("--only", action="append", choices=sorted(FAULTS), help="this fault only; repeatable")
    add("--unmounted", action="store_true", help="without a file system of its own (no root)")
    add("--publish", type=Path, help="file for the tables, such as docs/evidence/serve-run.md")
    return parser.parse_args(arguments)


def page(done: list[Outcome]) -> str:
    """The tables."""
    exact = sum(not one.failed for one in done)
    struck = [(one, landing) for one in done for landing in one.landings]
    faults: list[tuple[str, ...]] = [
        ("seed", "fault", "share", "held s", "until answered s", "differences")
    ]
    for one, landing in struck:
        seconds = f"{landing.outage_seconds + landing.recovery_seconds:.1f}"
        times = (f"{landing.landed:.0%}", f"{landing.held_seconds:.1f}", seconds)
        faults.append((str(one.seed), landing.fault, *times, str(len(one.problems))))
    seeds: list[tuple[str, ...]] = [
        ("seed", "events and traces", "turns", "records in the log", "at most MiB", "seconds")
    ]
    for one in done:
        numbers = (one.events, one.conversations, one.compared_events, one.most_rss_bytes >> 20)
        seconds = f"{one.seconds.get('faults', 0):.0f}"
        seeds.append((str(one.seed), *(f"{number:,}" for number in numbers), seconds))
    never = sorted(FAULTS.keys() - {landing.fault for _, landing in struck})
    parts = [
        "# Last run of one process under faults",
        "[How it is done](campaign.md#one-process) (`make serve-campaign`). "
        f"{exact} of {len(done)} seeds equal, {len(struck)} faults. "
        + (f"Not among them: {', '.join(never)}." if never else "Each kind was among them."),
        aligned(seeds),
        "A log has more records where an answer was lost, and the events of traces.",
        aligned(faults),
        "The time until an answer begins with the fault, and has the time for which it is held.",
        f"```text\n{describe().rstrip()}\n```",
    ]
    return "\n\n".join(parts) + "\n"


async def rounds(chosen: argparse.Namespace) -> list[Outcome]:
    """All seeds."""
    done = []
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        options = Options(
            seed,
            chosen.faults,
            chosen.events,
            chosen.traces,
            only=tuple(chosen.only or ()),
            mounted=not chosen.unmounted,
        )
        with tempfile.TemporaryDirectory(prefix=f"serve-{seed}-") as folder:
            done.append(await run_round(options, Path(folder)))
        print(summary(done[-1]), flush=True)
    return done


def main() -> int:
    """Run all seeds; the exit code."""
    chosen = parse()
    done = asyncio.run(rounds(chosen))
    publish(page(done), chosen.publish)
    return int(any(one.failed for one in done))


if __name__ == "__main__":
    sys.exit(main())
