"""A round, from its first server to the comparison; rounds overlap where nothing is timed."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Final

from tests.campaign import invariants
from tests.campaign.faults import FAULTS
from tests.campaign.plan import Options, Strike, make_plan
from tests.campaign.report import Calibration, Landing, Outcome
from tests.campaign.watch import now
from tests.campaign.world import World

CALIBRATION_SHARE: Final = 0.10
AHEAD: Final = 0.03  # of a strike's share, so that it lands while records come in
BEFORE_NEXT: Final = 0.02
MORE: Final = 0.01
LONGER: Final = 1.3  # than the fault, what comes in meanwhile is to last
LEAST_SHARE, MOST_SHARE = 0.05, 0.95
RECOVERY_DEADLINE_SECONDS: Final = 150.0
PHASE_DEADLINE_SECONDS: Final = 1_200.0  # whatever hangs, the seeds that follow have their turn

Say = Callable[[str], None]
Keep = Callable[[Outcome, Path], None]


class Round:
    """Runs a round by ``prepare``, ``play``, ``judge`` and ``close``; problems are in ``outcome``.

    ``prepare`` and ``play`` measure times. ``judge`` may run beside the next round, and then takes
    only what the processors have left over.
    """

    def __init__(self, options: Options, folder: Path, say: Say) -> None:
        self.folder = folder
        self.plan = make_plan(options)
        struck = [strike.fault for strike in self.plan.strikes]
        self.outcome = Outcome(options.seed, self.plan.lines(), struck)
        self._say = say
        self._world = World(self.plan, folder)
        self._running = AsyncExitStack()
        self._broken = False

    async def prepare(self) -> None:
        """Start servers and workers."""
        await self._phase("start", self._prepare)

    async def play(self) -> None:
        """Calibrate, inject all faults, and stop the workers."""
        for line in self.plan.lines():
            self._say(line)
        await self._phase("faults", self._play)

    async def judge(self, *, beside: bool = False) -> None:
        """Compare the state with a replay of the log; ``beside`` another round that is played."""
        if beside:
            self._world.give_way()
        await self._phase("comparison", self._judge)

    async def close(self) -> None:
        """Stop all processes."""
        world, outcome = self._world, self.outcome
        outcome.wrong += world.problems + world.watcher.problems
        outcome.most_rss_bytes = world.most_rss_bytes
        outcome.tails = world.tails()
        self._broken = False
        await self._phase("end", self._running.aclose)

    async def _phase(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        if self._broken:
            return
        started = time.monotonic()
        try:
            async with asyncio.timeout(PHASE_DEADLINE_SECONDS):
                await work()
        except Exception as error:  # reported with the seed, like every other difference
            self._broken = True
            self.outcome.wrong += [f"{name}: {text}" for text in _said(error)]
        self.outcome.seconds[name] = time.monotonic() - started

    async def _prepare(self) -> None:
        world = await self._running.enter_async_context(self._world)
        started = now()
        for _ in range(self.plan.workers):
            world.start_worker()
        await world.all_ready()
        self.outcome.calibration.start_seconds = now() - started

    async def _play(self) -> None:
        world, outcome, strikes = self._world, self.outcome, self.plan.strikes
        outcome.calibration.reading_per_second = await _calibrate(world)
        for number, strike in enumerate(strikes):
            following = strikes[number + 1].share if number + 1 < len(strikes) else 1.0
            landing = await _strike(world, strike, following, outcome.calibration)
            outcome.landings.append(landing)
            self._say(
                f"  {landing.fault} landed at {landing.landed:.0%}, outage "
                f"{landing.outage_seconds:.1f} s, {landing.backlog} records read in "
                f"{landing.recovery_seconds:.1f} s" + "".join(f"\n    {w}" for w in landing.wrong)
            )
        await _finish(world)
        for worker in list(world.workers):
            await world.retire(worker)

    async def _judge(self) -> None:
        world, outcome = self._world, self.outcome
        log = await world.record_log()
        outcome.events, outcome.conversations = world.load.sent, log.sent
        outcome.compared_events, outcome.compared_conversations = log.records, log.conversations
        for wrong in await asyncio.gather(
            invariants.figures(world, log),
            invariants.letters(world, log),
            invariants.audit(world),
            invariants.compaction(world),
        ):
            outcome.wrong += wrong
        outcome.wrong += await invariants.output(world)
        outcome.wrong += invariants.size(world, log)
        outcome.wrong += invariants.memory(world)
        outcome.wrong += invariants.logs(world)
        outcome.wrong += invariants.gaps(world)


def _said(error: BaseException) -> list[str]:
    """The message of an error, or of each error in a group."""
    if isinstance(error, BaseExceptionGroup):
        return [text for one in error.exceptions for text in _said(one)]
    return [f"{type(error).__name__}: {error}"]


async def run_round(options: Options, folder: Path, say: Say = print) -> Outcome:
    """Run one seed's plan."""
    alone = Round(options, folder, say)
    try:
        await alone.prepare()
        await alone.play()
        await alone.judge()
    finally:
        await alone.close()
    return alone.outcome


async def run_rounds(many: Sequence[Options], say: Say, keep: Keep) -> list[Outcome]:
    """Run all rounds in order; each is judged while the next one is played.

    ``keep`` is called with each outcome and the round's folder, before that is deleted.
    """
    done: list[Outcome] = []

    async def play(one: Round) -> None:
        try:
            await one.prepare()
            await one.play()
        except BaseException:
            await one.close()
            raise

    async def finish(one: Round, *, beside: bool) -> None:
        try:
            await one.judge(beside=beside)
        finally:
            await one.close()
        keep(one.outcome, one.folder)
        done.append(one.outcome)
        shutil.rmtree(one.folder, ignore_errors=True)

    with tempfile.TemporaryDirectory(prefix="campaign-") as place:
        last: Round | None = None
        for options in many:
            following = Round(options, Path(place) / str(options.seed), say)
            async with asyncio.TaskGroup() as group:
                group.create_task(play(following))
                if last is not None:
                    group.create_task(finish(last, beside=True))
            last = following
        if last is not None:
            await finish(last, beside=False)
    return done


async def _calibrate(world: World) -> float:
    """Records per second that the workers read from a backlog without faults."""
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
    world: World, strike: Strike, following: float, calibration: Calibration
) -> Landing:
    fault, watcher = FAULTS[strike.fault], world.watcher
    world.load.open(strike.share + AHEAD)
    await world.until(
        lambda: world.share >= strike.share, f"the state has not got to {strike.share:.0%}"
    )
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
        bound_seconds=calibration.bound_seconds(fault.wait_seconds, fault.work_seconds, backlog),
        rolled_back=watcher.rolled_back - back,
    )
    if not LEAST_SHARE < landed < MOST_SHARE:
        landing.wrong.append(f"it struck at {landed:.0%} of the log: the round is vacuous")
    if world.plan.options.timed and landing.recovery_seconds > landing.bound_seconds:
        landing.wrong.append(
            f"recovery took {landing.recovery_seconds:.1f} s, allowed were "
            f"{landing.bound_seconds:.1f} s"
        )
    if fault.may_go_back and not landing.rolled_back:
        landing.wrong.append("Redis has lost nothing: the round is vacuous")
    return landing


async def _finish(world: World) -> None:
    """Send the rest, and wait until the state has reached the end of every partition.

    Also wait until all workers are ready: one that never gets over a fault is not noticed as long
    as another has its partitions.
    """
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
    await world.all_ready(RECOVERY_DEADLINE_SECONDS)
    await asyncio.sleep(0)
