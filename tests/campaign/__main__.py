"""``python -m tests.campaign --seed N --rounds K``: run it, print the table; 1 on a difference."""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
from pathlib import Path

from tests.campaign.faults import FAULTS
from tests.campaign.plan import Options
from tests.campaign.report import Outcome, summary, table
from tests.campaign.round import run_rounds


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="the first round's seed (default: 1)")
    add("--rounds", type=int, default=1, help="how many seeds, one after the other (default: 1)")
    add("--faults", type=int, default=5, help="faults a seed (default: 5)")
    add("--events", type=int, default=100_000, help="records at least (default: 100000)")
    add("--conversations", type=int, default=20_000, help="at least (default: 20000)")
    add("--rate", type=float, default=6_000.0, help="records a second at most (default: 6000)")
    add("--report", type=Path, help="where report.md and failed rounds' files go")
    add("--only", action="append", choices=sorted(FAULTS), help="this fault only; repeatable")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run all rounds; the exit code."""
    chosen = parse(arguments)
    many = [
        Options(
            seed=seed,
            faults=chosen.faults,
            events=chosen.events,
            conversations=chosen.conversations,
            rate=chosen.rate,
            only=tuple(chosen.only or ()),
        )
        for seed in range(chosen.seed, chosen.seed + chosen.rounds)
    ]

    def note(outcome: Outcome, folder: Path) -> None:
        if outcome.failed and chosen.report:
            keep(folder, chosen.report / f"seed-{outcome.seed}")
        say(summary(outcome))

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # faults are no news here
    outcomes = asyncio.run(run_rounds(many, say, note))
    written = "\n\n".join([table(outcomes), *map(summary, outcomes)]) + "\n"
    say("\n" + table(outcomes))
    if chosen.report:
        chosen.report.mkdir(parents=True, exist_ok=True)
        (chosen.report / "report.md").write_text(written)
    return int(any(outcome.failed for outcome in outcomes))


def keep(folder: Path, place: Path) -> None:
    """Save a failed round's logs, log of records and exports."""
    place.mkdir(parents=True, exist_ok=True)
    for path in [*folder.glob("*.log"), *folder.glob("log.jsonl")]:
        shutil.copy(path, place)
    for name in ("live", "replayed"):
        if (folder / name).exists():
            shutil.copytree(folder / name, place / name, dirs_exist_ok=True)


def say(line: str) -> None:
    """Print at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
