"""Run the drill: ``python -m tests.drill --out page.md``.

Worlds and what fires in them are kept in ``out/drill``, so that a drill goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Final

from tests.drill.curves import Sweep
from tests.drill.evaluation import ALERTS, RECORDING, Firing, Rule
from tests.drill.kept import KEPT, digest, kept
from tests.drill.outcome import Outcome, fixed_thresholds, outcome
from tests.drill.report import Group, page
from tests.drill.run import Drill, fire
from tests.drill.seeds import TUNING, commit_of_rules, drawn
from tests.drill.simulation import Size, kept_world, world_key
from tests.drill.window_rules import PREFIX
from tests.drill.world import Libraries

STANDARD: Final = Size()
Fired = tuple[list[Rule], list[Firing]]


def main() -> int:
    """Simulate and write the page; returns 1 if a goal was not reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("--tuning", type=int, nargs="*", default=list(TUNING), metavar="SEED")
    parser.add_argument(
        "--held-out", type=int, nargs="*", metavar="SEED",
        help="drawn from the hash of the last commit that changed the rules, if not given",
    )  # fmt: skip
    parser.add_argument(
        "--prometheus", type=int, nargs="*", metavar="SEED",
        help="seeds in which Prometheus evaluates the alerts that are none of evidence; else all",
    )  # fmt: skip
    parser.add_argument("--agents", type=int, default=STANDARD.agents)
    parser.add_argument("--days", type=int, default=STANDARD.days, help="of each simulated world")
    parser.add_argument("--turns", type=int, default=STANDARD.turns_each, help="in each library")
    parser.add_argument("--out", type=Path, help="write the page there, not to standard output")
    parser.add_argument("--processes", type=int, default=1, help="worlds simulated at a time")
    asked = parser.parse_args()
    size = Size(asked.agents, asked.days, asked.turns)
    held_out = drawn(commit_of_rules()) if asked.held_out is None else asked.held_out
    seeds = {"Held out": tuple(held_out), "Tuning": tuple(asked.tuning)}
    everything = [seed for of in seeds.values() for seed in of]
    evaluated = everything if asked.prometheus is None else asked.prometheus
    with ProcessPoolExecutor(asked.processes) as pool:
        list(pool.map(partial(_simulate, size=size), everything))
        others = {
            (seed, well): pool.submit(_fired, seed, size, well)
            for seed in evaluated
            for well in (True, False)
        }
        fixed = fixed_thresholds(seeds["Tuning"] or seeds["Held out"], size)
        found = list(pool.map(partial(outcome, size=size, fixed=fixed), everything))
        outcomes = dict(zip(everything, found, strict=True))
        known = {which: fired.result() for which, fired in others.items()}
    groups = [_group(title, of, outcomes, known) for title, of in seeds.items() if of]
    text = page(groups, size)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0 if all(group.kept for group in groups) else 1


def _simulate(seed: int, size: Size) -> None:
    """Simulate the worlds of a seed; the turns of libraries are never garbage meanwhile."""
    gc.disable()
    shelf = Libraries(size.turns_each)
    for well in (True, False):
        kept_world(seed, size, healthy=well, shelf=shelf, say=_saying(seed, well))
    gc.enable()


def _fired(seed: int, size: Size, healthy: bool) -> Fired:
    """What Prometheus fires in a world: the alerts that are none of evidence, and the former."""

    def evaluate() -> Fired:
        world = kept_world(seed, size, healthy=healthy)
        with tempfile.TemporaryDirectory(prefix="drill-") as place:
            return asyncio.run(fire(world, Path(place), _saying(seed, healthy)))

    key = digest([*RECORDING, *ALERTS], world_key(size))
    return kept(KEPT / f"{key}/{seed}-{'healthy' if healthy else 'troubled'}.fired", evaluate)


def _group(
    title: str,
    seeds: Sequence[int],
    outcomes: Mapping[int, Outcome],
    known: Mapping[tuple[int, bool], Fired],
) -> Group:
    found = [outcomes[seed] for seed in seeds]
    figures = found[0].swept
    swept = {
        figure: {
            kind: reduce(Sweep.plus, [one.swept[figure][kind] for one in found])
            for kind in figures[figure]
        }
        for figure in figures
    }
    return Group(
        title,
        tuple(seeds),
        [
            _with(one.healthy, known.get((seed, True)))
            for seed, one in zip(seeds, found, strict=True)
        ],
        [
            _with(one.troubled, known.get((seed, False)))
            for seed, one in zip(seeds, found, strict=True)
        ],
        ([one.windows_healthy for one in found], [one.windows_troubled for one in found]),
        swept,
    )


def _with(drill: Drill, others: Fired | None) -> Drill:
    """A drill with the alerts of Prometheus that it has not got itself."""
    if others is None:
        return drill
    rules, firings = others
    own = {rule.name for rule in drill.rules}
    added = [rule for rule in rules if rule.name not in own and not rule.name.startswith(PREFIX)]
    fired = [one for one in firings if one.rule in added]
    return replace(drill, rules=[*drill.rules, *added], firings=[*drill.firings, *fired])


def _saying(seed: int, healthy: bool) -> Callable[[str], None]:
    began = time.monotonic()
    what = f"seed {seed}, {'healthy' if healthy else 'troubled'}"

    def say(line: str) -> None:
        print(f"{what}, {time.monotonic() - began:.0f} s: {line}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    raise SystemExit(main())
