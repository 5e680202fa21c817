"""Builds and faults drawn from a seed, performed one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any, Final

from stream_metrics.live.worker.ownership.generations import begin
from tests.simulation import setbacks
from tests.simulation.building import OLD, BuildSystem
from tests.simulation.faults import KINDS, Kind

# The weight of each action. A process number not in use stands for another process, or none.
WEIGHTS: Final = {
    "read": 20,
    "look after": 3,
    "commit": 1,
    "produce": 5,
    "look": 8,
    "register": 3,
    "decide": 1,
    "finish": 2,
    "give up": 1,
    "kill": 2,
    "rebalance": 1,
    "notice": 1,
    "remember": 2,
    "go back": 1,
    "layout goes back": 1,
    "start in force": 1,
    "read all": 1,
    "sleep": 1,
    "wake": 1,
    "purge": 1,
}


def drawn(
    seed: int, *, internal: int = 0, retained: bool = False
) -> tuple[BuildSystem, list[tuple[Any, ...]]]:
    """Two generations and the actions to perform on them; the same for the same seed."""
    rng = Random(seed)
    builders = BuildSystem(
        seed=rng.randint(1, 3),
        cache_results=rng.choice((0, 60, 1_000)),
        batch_records=rng.choice((1, 8, 100)),
        internal=internal,
        retained=retained,
    )
    whats = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rng.randint(60, 160))
    return builders, [
        (
            what,
            rng.randint(0, 3),
            rng.choice((*[None] * 4, *KINDS)),
            rng.randint(0, 9),
            rng.randint(1, 25),
        )
        for what in whats
    ]


async def play(builders: BuildSystem, actions: list[tuple[Any, ...]]) -> None:
    """Start, perform all actions, settle and compare; raises ``AssertionError``."""
    old = await begin(builders.space, OLD, 0)
    for _ in range(2):
        await builders.start(old)
    builders.rebalance(old)
    if builders.retained:
        await builders.cut()
    builders.produce(40)
    for action in actions:
        await _perform(builders, *action)
    await builders.settle()
    await builders.check()


async def _perform(
    builders: BuildSystem, what: str, number: int, kind: Kind | None, at: int, many: int
) -> None:
    """Perform one action."""
    simple: dict[str, Callable[[], Awaitable[None]]] = {
        "register": builders.register,
        "remember": builders.remember,
        "go back": builders.go_back,
        "layout goes back": partial(setbacks.go_back_alone, builders),
        "start in force": partial(setbacks.start_in_force, builders),
        "read all": partial(setbacks.read_all, builders, number),
        "purge": partial(setbacks.purge, builders),
    }
    if what in simple:
        await simple[what]()
    elif what in ("decide", "finish", "give up"):
        await builders.command(what, kind, at)
    elif what == "produce":
        builders.produce(many)
    elif what == "sleep":
        setbacks.fall_asleep(builders, number, noticed=bool(at % 2))
    elif what == "wake":
        setbacks.wake(builders, number)
    elif builders.processes:
        process = builders.processes[number % len(builders.processes)]
        if what == "kill":
            await builders.replace(process)
        elif what == "rebalance":
            builders.rebalance(process.generation, [process] if at % 2 else ())
        elif what == "notice":
            process.client.notice()
        else:
            process.client.max_records = 1 + many // 2
            await builders.act(process, what, kind, at)
