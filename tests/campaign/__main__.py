"""``python -m tests.campaign --seed N --rounds K``: run the campaign and print its tables.

Exits with 1 on a difference. A failed seed does not stop the others; results are written after
each seed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.campaign.faults import FAULTS
from tests.campaign.plan import Options
from tests.campaign.report import Outcome, coverage, summary, table, verdict
from tests.campaign.round import run_rounds


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="the first round's seed (default: 1)")
    add("--rounds", type=int, default=1, help="how many seeds, one after the other (default: 1)")
    add("--faults", type=int, default=5, help="faults per seed (default: 5)")
    add("--events", type=int, default=100_000, help="records at least (default: 100000)")
    add("--conversations", type=int, default=20_000, help="at least (default: 20000)")
    add("--rate", type=float, default=6_000.0, help="maximum records per second (default: 6000)")
    add("--report", type=Path, help="folder of report.md and of failed rounds' files")
    add(
        "--publish",
        type=Path,
        help="file for the tables alone, such as docs/evidence/campaign-run.md",
    )
    add("--only", action="append", choices=sorted(FAULTS), help="this fault only; repeatable")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run all rounds; returns the exit code."""
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

    names = chosen.only or list(FAULTS)
    done: list[Outcome] = []

    def note(outcome: Outcome, folder: Path) -> None:
        done.append(outcome)
        say(summary(outcome))
        if chosen.report:
            if outcome.failed:
                keep(folder, chosen.report / f"seed-{outcome.seed}")
            write(chosen.report / "report.md", [*pages(done, names), *map(summary, done)])

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # errors are expected
    asyncio.run(run_rounds(many, say, note))
    say("\n" + "\n\n".join(pages(done, names)))
    if chosen.publish:
        write(chosen.publish, ["# Last full run of the fault campaign", *pages(done, names)])
    return int(len(done) < len(many) or any(outcome.failed for outcome in done))


def pages(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[str]:
    """The paragraphs of the report: the verdict and both tables."""
    day = datetime.now(UTC).date()
    return [
        f"{day}, {os.cpu_count()} processors. {verdict(outcomes)}",
        "## Faults",
        table(outcomes),
        "## By kind of fault",
        coverage(outcomes, names),
    ]


def write(path: Path, paragraphs: Sequence[str]) -> None:
    """Write a Markdown file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(paragraphs) + "\n")


def keep(folder: Path, place: Path) -> None:
    """Save a failed round's logs, recording and exports."""
    place.mkdir(parents=True, exist_ok=True)
    for path in [*folder.glob("*.log"), *folder.glob("log.jsonl")]:
        shutil.copy(path, place)
    for name in ("live", "replayed"):
        if (folder / name).exists():
            shutil.copytree(folder / name, place / name, dirs_exist_ok=True)


def say(line: str) -> None:
    """Print and flush."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
