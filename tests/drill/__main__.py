"""Run the drill: ``python -m tests.drill --tuning 1 11 --held-out 31 32 --out page.md``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from tests.drill.report import Group, page
from tests.drill.run import Drill, Size, run
from tests.drill.world import Libraries

STANDARD: Final = Size()


def main() -> int:
    """Simulate and write the page; returns 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("--tuning", type=int, nargs="*", default=[1, 11], metavar="SEED")
    parser.add_argument("--held-out", type=int, nargs="*", default=[31, 32], metavar="SEED")
    parser.add_argument("--agents", type=int, default=STANDARD.agents)
    parser.add_argument("--days", type=int, default=STANDARD.days, help="of each simulated world")
    parser.add_argument("--turns", type=int, default=STANDARD.turns_each, help="in each library")
    parser.add_argument("--out", type=Path, help="write the page there, not to standard output")
    parser.add_argument("--processes", type=int, default=1, help="seeds simulated at a time")
    asked = parser.parse_args()
    size = Size(asked.agents, asked.days, asked.turns)
    seeds = {"Held out": asked.held_out, "Tuning": asked.tuning}
    with ProcessPoolExecutor(asked.processes) as pool:
        worlds = {
            (title, seed): pool.submit(_held, title, seed, size)
            for title, of in seeds.items()
            for seed in of
        }
        groups = [
            Group(
                title,
                tuple(of),
                [worlds[title, seed].result()[0] for seed in of],
                [worlds[title, seed].result()[1] for seed in of],
            )
            for title, of in seeds.items()
            if of
        ]
    text = page(groups, size)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0 if all(group.kept for group in groups) else 1


def _held(title: str, seed: int, size: Size) -> tuple[Drill, Drill]:
    """The worlds of a seed: one in which nothing is wrong, and one with incidents."""
    shelf = Libraries(size.turns_each)
    found = []
    for healthy in (True, False):
        with tempfile.TemporaryDirectory(prefix="drill-") as place:
            say = _saying(f"{title.lower()}, seed {seed}, {'healthy' if healthy else 'troubled'}")
            drill = asyncio.run(run(seed, size, Path(place), shelf, healthy=healthy, say=say))
            found.append(drill)
    return found[0], found[1]


def _saying(what: str) -> Callable[[str], None]:
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{what}, {time.monotonic() - began:.0f} s: {line}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    raise SystemExit(main())
