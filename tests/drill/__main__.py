"""Hold the drill: ``python -m tests.drill --tuning 1 11 --held-out 21 22 --out page.md``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.drill.report import Group, page
from tests.drill.run import Drill, Size, run
from tests.drill.world import Libraries

STANDARD: Final = Size()


def main() -> int:
    """Simulate, write the page, and say whether what is promised was kept (exit code 1: not)."""
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("--tuning", type=int, nargs="*", default=[1, 11], metavar="SEED")
    parser.add_argument("--held-out", type=int, nargs="*", default=[21, 22], metavar="SEED")
    parser.add_argument("--agents", type=int, default=STANDARD.agents)
    parser.add_argument("--days", type=int, default=STANDARD.days, help="of each simulated world")
    parser.add_argument("--turns", type=int, default=STANDARD.turns_each, help="in each library")
    parser.add_argument("--out", type=Path, help="write the page there, not to standard output")
    asked = parser.parse_args()
    size = Size(asked.agents, asked.days, asked.turns)
    shelf = Libraries(size.turns_each)
    groups = [
        asyncio.run(_held(title, seeds, size, shelf))
        for title, seeds in (("Tuning", asked.tuning), ("Held out", asked.held_out))
        if seeds
    ]
    text = page(groups, size)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0 if all(group.kept for group in groups) else 1


async def _held(title: str, seeds: Sequence[int], size: Size, shelf: Libraries) -> Group:
    """Two worlds a seed: one in which nothing is wrong, one with incidents."""
    worlds: dict[bool, list[Drill]] = {True: [], False: []}
    for seed in seeds:
        for healthy in worlds:
            with tempfile.TemporaryDirectory(prefix="drill-") as place:
                say = _saying(
                    f"{title.lower()}, seed {seed}, {'healthy' if healthy else 'troubled'}"
                )
                drill = await run(seed, size, Path(place), shelf, healthy=healthy, say=say)
                worlds[healthy].append(drill)
    return Group(title, tuple(seeds), worlds[True], worlds[False])


def _saying(what: str) -> Callable[[str], None]:
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{what}, {time.monotonic() - began:.0f} s: {line}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    raise SystemExit(main())
