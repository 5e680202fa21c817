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
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Final

from tests.drill.bursts import place_bursts
from tests.drill.curves import Sweep
from tests.drill.evaluation import ALERTS, RECORDING, SOURCES, Firing, Rule
from tests.drill.gather import ALERT_OF
from tests.drill.kept import KEPT, digest, kept
from tests.drill.outcome import Outcome, Which, fixed_thresholds, outcome
from tests.drill.pictures import picture
from tests.drill.plan import incidents, loops
from tests.drill.report import Group, page
from tests.drill.run import Drill, fire
from tests.drill.seeds import TUNING, commit_of_rules, drawn
from tests.drill.simulation import Size, kept_world, world_key
from tests.drill.world import Libraries, place

STANDARD: Final = Size()
BURSTS: Final = "Bursts of one kind of question"
LOOPS: Final = "Loops"
Fired = tuple[list[Rule], list[Firing]]


def main() -> int:
    """Simulate and write the page; returns 1 if a goal was not reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("--tuning", type=int, nargs="*", default=list(TUNING), metavar="SEED")
    parser.add_argument(
        "--held-out", type=int, nargs="*", metavar="SEED",
        help="drawn from the hash of a commit, if not given",
    )  # fmt: skip
    parser.add_argument(
        "--rules", metavar="COMMIT", help="the hash; else of the last that changed evidence"
    )
    parser.add_argument(
        "--prometheus", type=int, nargs="*", metavar="SEED",
        help="seeds in which Prometheus evaluates the alerts that are none of evidence; else all",
    )  # fmt: skip
    parser.add_argument(
        "--bursts", type=int, nargs="*", default=list(TUNING), metavar="SEED",
        help="of worlds in which turns depend on each other",
    )  # fmt: skip
    parser.add_argument(
        "--loops", type=int, nargs="*", metavar="SEED",
        help="of worlds with loops and empty routes; those that are held out, if not given",
    )  # fmt: skip
    parser.add_argument("--agents", type=int, default=STANDARD.agents)
    parser.add_argument("--days", type=int, default=STANDARD.days, help="of each simulated world")
    parser.add_argument("--turns", type=int, default=STANDARD.turns_each, help="in each library")
    parser.add_argument("--out", type=Path, help="write the page there, not to standard output")
    parser.add_argument("--pictures", type=Path, help="draw the curves of the first seeds there")
    parser.add_argument("--processes", type=int, default=1, help="worlds simulated at a time")
    asked = parser.parse_args()
    size = Size(asked.agents, asked.days, asked.turns)
    commit = asked.rules or (commit_of_rules() if asked.held_out is None else None)
    seeds = () if commit is None else drawn(commit)
    held_out = seeds if asked.held_out is None else asked.held_out
    if commit is not None and not set(held_out) <= set(seeds):
        parser.error(f"the seeds of {commit} are {seeds}")
    worlds = {
        "Held out": [Which(seed) for seed in held_out],
        "Tuning": [Which(seed) for seed in asked.tuning],
        LOOPS: [
            Which(seed, planning=loops)
            for seed in (held_out if asked.loops is None else asked.loops)
        ],
        BURSTS: [Which(seed, place_bursts) for seed in asked.bursts],
    }
    every = [which for of in worlds.values() for which in of]
    evaluated = [
        one
        for one in every
        if (one.placing, one.planning) == (place, incidents)
        and (asked.prometheus is None or one.seed in asked.prometheus)
    ]
    with ProcessPoolExecutor(asked.processes) as pool:
        list(pool.map(partial(_simulate, every=every, size=size), {one.seed for one in every}))
        others = {
            (which, well): pool.submit(_fired, which, size, well)
            for which in evaluated
            for well in (True, False)
        }
        fixed = fixed_thresholds(worlds["Tuning"] or worlds["Held out"] or worlds[LOOPS], size)
        found = list(pool.map(partial(outcome, size=size, fixed=fixed), every))
        outcomes = dict(zip(every, found, strict=True))
        known = {which: fired.result() for which, fired in others.items()}
    groups = [_group(title, of, outcomes, known) for title, of in worlds.items() if of]
    if asked.pictures:
        for figure in groups[0].swept:
            shown = next((one for one in groups if _has_incidents(one, figure)), groups[0])
            file = asked.pictures / f"alert-curve-{figure.replace('_', '-')}.svg"
            drawing = picture(figure, shown.swept[figure], shown.former(figure))
            file.write_text(drawing, encoding="utf-8")
    text = page(groups, size, _drawn(commit, set(seeds) - set(held_out)))
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0 if all(group.kept for group in groups if group.title not in (BURSTS, LOOPS)) else 1


def _has_incidents(group: Group, figure: str) -> bool:
    """Whether the group has incidents that the figure's alert is meant for."""
    return any(one.kind.alert == ALERT_OF[figure] for one in group.caught)


def _drawn(commit: str | None, missing: Collection[int]) -> str:
    """Where held-out seeds come from."""
    if commit is None:
        return ""
    said = f"The seeds that are held out were drawn from the hash of commit `{commit}`."
    return f"{said} Of {len(missing)} more there are no results yet." if missing else said


def _simulate(seed: int, every: Sequence[Which], size: Size) -> None:
    """Simulate the worlds of a seed; the turns of libraries are never garbage meanwhile."""
    gc.disable()
    shelf = Libraries(size.turns_each)
    for which in every:
        for well in (True, False) if which.seed == seed else ():
            kept_world(
                seed, size, healthy=well, shelf=shelf, placing=which.placing,
                planning=which.planning, say=_saying(which, well),
            )  # fmt: skip
    gc.enable()


def _fired(which: Which, size: Size, healthy: bool) -> Fired:
    """What Prometheus fires in a world: the alerts that numpy does not judge."""

    def evaluate() -> Fired:
        world = kept_world(which.seed, size, healthy=healthy, placing=which.placing)
        with tempfile.TemporaryDirectory(prefix="drill-") as folder:
            return asyncio.run(fire(world, Path(folder), _saying(which, healthy)))

    key = digest([*RECORDING, *ALERTS, *SOURCES], world_key(size, which.placing))
    name = f"{key}/{which.seed}-{'healthy' if healthy else 'troubled'}.fired"
    return kept(KEPT / name, evaluate)


def _group(
    title: str,
    worlds: Sequence[Which],
    outcomes: Mapping[Which, Outcome],
    known: Mapping[tuple[Which, bool], Fired],
) -> Group:
    found = [outcomes[which] for which in worlds]
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
        tuple(which.seed for which in worlds),
        [_with(outcomes[which].healthy, known.get((which, True))) for which in worlds],
        [_with(outcomes[which].troubled, known.get((which, False))) for which in worlds],
        ([one.windows_healthy for one in found], [one.windows_troubled for one in found]),
        swept,
    )


def _with(drill: Drill, others: Fired | None) -> Drill:
    """A drill with the alerts of Prometheus too."""
    if others is None:
        return drill
    rules, firings = others
    return replace(drill, rules=[*drill.rules, *rules], firings=[*drill.firings, *firings])


def _saying(which: Which, healthy: bool) -> Callable[[str], None]:
    began = time.monotonic()
    what = f"seed {which.seed}, {'healthy' if healthy else 'troubled'}"

    def say(line: str) -> None:
        print(f"{what}, {time.monotonic() - began:.0f} s: {line}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    raise SystemExit(main())
