"""One round: a plan from its first record to the comparison."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from tests.campaign import invariants
from tests.campaign.faults import FAULTS
from tests.campaign.plan import Options, Plan, Strike, make_plan
from tests.campaign.report import Landing, Outcome
from tests.campaign.world import World, now

CALIBRATION_SHARE: Final = 0.10
AHEAD: Final = 0.03  # of a strike's share, so that it lands while records come in
BEFORE_NEXT: Final = 0.02
MORE: Final = 0.01
LONGER: Final = 1.3  # than the fault, what comes in meanwhile is to last
LEAST_SHARE, MOST_SHARE = 0.05, 0.95
RECOVERY_DEADLINE_SECONDS: Final = 150.0

Say = Callable[[str], None]


async def run_round(options: Options, folder: Path, say: Say = print) -> Outcome:
    """Run a seed's plan on servers of its own; everything wrong is in the outcome."""
    plan = make_plan(options)
    for line in plan.lines():
        say(line)
    outcome = Outcome(options.seed, options.events, plan.lines())
    started = time.monotonic()
    try:
        async with World(plan, folder) as world:
            try:
                await _play(plan, world, outcome, say)
            finally:
                outcome.wrong += world.problems + world.watcher.problems
                outcome.most_rss_bytes = world.most_rss_bytes
                outcome.tails = world.tails()
    except Exception as error:  # reported with the seed, like every other difference
        outcome.wrong.append(f"{type(error).__name__}: {error}")
    outcome.seconds = time.monotonic() - started
    return outcome


async def _play(plan: Plan, world: World, outcome: Outcome, say: Say) -> None:
    for _ in range(plan.workers):
        world.start_worker()
    await world.all_ready()
    outcome.reading_per_second = await _calibrate(world)
    for number, strike in enumerate(plan.strikes):
        following = plan.strikes[number + 1].share if number + 1 < len(plan.strikes) else 1.0
        landing = await _strike(world, strike, following, outcome.reading_per_second)
        outcome.landings.append(landing)
        say(
            f"  {landing.fault} landed at {landing.landed:.0%}, outage "
            f"{landing.outage_seconds:.1f} s, {landing.backlog} records read in "
            f"{landing.recovery_seconds:.1f} s" + "".join(f"\n    {w}" for w in landing.wrong)
        )
    await _finish(world)
    for worker in list(world.workers):
        await world.retire(worker)
    log = await invariants.read_back(world)
    outcome.events = log.records
    outcome.wrong += await invariants.figures(world, log)
    outcome.wrong += await invariants.letters(world, log)
    outcome.wrong += invariants.memory(world)
    outcome.wrong += invariants.logs(world)


async def _calibrate(world: World) -> float:
    """Records a second that the workers read when nothing is wrong and a backlog lies there."""
    for worker in world.workers:
        worker.pause()
    try:
        world.load.open(CALIBRATION_SHARE)
        await world.until(lambda: world.load.at_limit, "the producer does not get on")
    finally:
        for worker in world.workers:
            worker.resume()
    began = now()
    goal = world.load.sent
    await world.until(lambda: world.watcher.total >= goal, "the backlog is not read")
    first = world.watcher.first(lambda look: look.total > 0, 0.0) or began
    done = world.watcher.first(lambda look: look.total >= goal, began) or now()
    return goal / max(0.05, done - min(first, began))


async def _strike(
    world: World, strike: Strike, following: float, reading_per_second: float
) -> Landing:
    fault, watcher = FAULTS[strike.fault], world.watcher
    world.load.open(strike.share + AHEAD)
    goal = strike.share * len(world.load.records)
    await world.until(lambda: watcher.total >= goal, f"the state has not got to {strike.share:.0%}")
    landed, back = world.share, watcher.rolled_back
    between = (strike.share + following) / 2
    world.load.open(between, max(1.0, LONGER * strike.hold_seconds))
    watcher.may_go_back = fault.may_go_back
    began = now()
    await fault.strike(world, strike.hold_seconds, Random(strike.seed))
    healed = now()
    ends = await world.ends()
    world.extra = max(world.extra, sum(ends.values()) - world.load.sent)
    at_heal = watcher.total
    world.load.open(max(following - BEFORE_NEXT, world.load.sent / len(world.load.records) + MORE))
    await world.until(
        lambda: watcher.looks[-1].at > healed and not watcher.looks[-1].behind(ends),
        f"the state has not got what came in during {fault.name}",
        RECOVERY_DEADLINE_SECONDS,
    )
    recovered = watcher.first(lambda look: not look.behind(ends), healed) or now()
    backlog = watcher.most_behind(ends, healed)
    await world.until(
        lambda: watcher.total > at_heal or world.share >= MOST_SHARE,
        f"nothing moved after {fault.name}",
    )
    watcher.may_go_back = False
    landing = Landing(
        fault=fault.name,
        landed=landed,
        held_seconds=healed - began,
        outage_seconds=watcher.longest_pause(began, ends),
        backlog=backlog,
        recovery_seconds=recovered - healed,
        bound_seconds=fault.resume_seconds + 2 * backlog / reading_per_second,
        rolled_back=watcher.rolled_back - back,
    )
    if not LEAST_SHARE < landed < MOST_SHARE:
        landing.wrong.append(f"it struck at {landed:.0%} of the log: the round is vacuous")
    if landing.recovery_seconds > landing.bound_seconds:
        landing.wrong.append(
            f"recovery took {landing.recovery_seconds:.1f} s, allowed were "
            f"{landing.bound_seconds:.1f} s"
        )
    if fault.may_go_back and not landing.rolled_back:
        landing.wrong.append("Redis has lost nothing: the round is vacuous")
    return landing


async def _finish(world: World) -> None:
    """Send the rest, and wait until the state stands at the end of every partition."""
    world.load.open(1.0)
    await world.until(
        lambda: world.load.at_limit and world.load.sent == len(world.load.records),
        "the producer has not sent everything",
    )
    ends = {place: end for place, end in (await world.ends()).items() if end}
    await world.until(
        lambda: all(world.watcher.offsets.get(place) == end for place, end in ends.items()),
        "the state does not stand at the ends of the log",
        RECOVERY_DEADLINE_SECONDS,
    )
    await asyncio.sleep(0)
