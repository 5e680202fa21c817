"""Seeded random actions of a simulation, performed one after the other."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.simulation.brokers import ScriptedConsumer
from tests.simulation.faults import KINDS
from tests.simulation.system import TTL_MS, Process, System

DAY_MS: Final = 86_400_000
POISON: Final = 8  # results of an event; about one event in ten

Action = tuple[Any, ...]

# The weight of each action. A process number not in use stands for another process, or none.
WEIGHTS: Final = {
    "read": 16,
    "look after": 4,
    "commit": 2,
    "produce": 4,
    "start": 1,
    "kill": 1,
    "rebalance": 2,
    "notice": 2,
    "remember": 2,
    "go back": 2,
    "clock": 1,
    "store's clock": 1,
}


def system_of(seed: int) -> tuple[System, list[Action]]:
    """A system and the actions to perform on it; the same for the same seed."""
    rng = Random(seed)
    system = System(
        seed=rng.randint(1, 3),
        cache_results=rng.choice((0, 60, 1_000)),
        batch_records=rng.choice((1, 8, 100)),
        ttl_ms=rng.choice((TTL_MS, DAY_MS)),
        over_kafka=seed % 3 == 0,
        poison=POISON if seed % 4 == 0 else 0,
    )
    fast = rng.choice(("clock", "store's clock"))  # only one of the two clocks may be ahead
    drawn = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rng.randint(30, 90))
    return system, [(what, *_details(what, rng, ahead=what == fast)) for what in drawn]


def _details(what: str, rng: Random, *, ahead: bool) -> tuple[Any, ...]:
    """The arguments of an action: the process, and how."""
    number = rng.randint(0, 2)
    if what == "read":
        fault = rng.choice((*[None] * 5, *KINDS))
        return number, fault, rng.randint(0, 8), rng.randint(1, 12)
    if what == "look after":
        return number, rng.choice((*[None] * 5, *KINDS)), rng.randint(0, 8)
    if what == "produce":
        return (rng.randint(1, 30),)
    if what == "rebalance":
        return {at for at in range(3) if rng.random() < 0.4}, rng.random() < 0.15
    if what in ("clock", "store's clock"):
        return number, rng.randint(-3 * DAY_MS, 3 * DAY_MS if ahead else 0)
    return (number,)


async def play(system: System, actions: list[Action]) -> None:
    """Start, perform all actions, settle and compare; raises ``AssertionError``."""
    await system.start()
    await system.start()
    system.rebalance()
    system.produce(40)
    for action in actions:
        await _perform(system, action)
    await system.settle()
    await system.check()


async def _perform(system: System, action: Action) -> None:
    """Perform one action; a worker number not in use stands for another worker, or none."""
    what, *rest = action
    processes = system.processes
    if what == "produce":
        system.produce(rest[0])
    elif what == "start" and len(processes) < 3:
        await system.start()
    elif what == "rebalance" and processes:
        unaware = [process for at, process in enumerate(processes) if at in rest[0]]
        system.rebalance(unaware, split=rest[1])
    elif what == "remember":
        system.remember()
    elif what == "go back":
        system.go_back()
    elif what == "store's clock":
        system.store_off_ms = rest[1]
    elif processes and what != "start":
        await _perform_on(system, processes[rest[0] % len(processes)], what, rest)


async def _perform_on(system: System, process: Process, what: str, rest: list[Any]) -> None:
    """Perform an action on one worker."""
    if what == "read":
        process.client.max_records = rest[3]
        if isinstance(process.client, ScriptedConsumer) and rest[2] == 0:
            process.client.fails_after = rest[3] // 2
        await system.act(process, what, *rest[1:3])
    elif what in ("commit", "look after"):
        await system.act(process, what, *rest[1:])
    elif what == "kill":
        await system.replace(process)
    elif what == "notice":
        process.client.notice()
    elif what == "clock":
        process.clock_off_ms = rest[1]
