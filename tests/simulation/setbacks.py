"""What happens to a namespace around a store that goes back, besides the store itself.

The entry of the layout may go back alone, since it has a slot of its own. Somebody starts a worker
of the generation that is in force by then, workers are suspended for any time, and an operator
purges the namespace, after which workers begin anew.
"""

from __future__ import annotations

from stream_metrics.live.memory import MemorySnapshot
from stream_metrics.live.worker.ownership.generations import begin
from stream_metrics.live.worker.ownership.switch import delete_all
from tests.simulation.building import OLD, BuildSystem

ALL = 1_000  # more records than there are on a partition


async def go_back_alone(system: BuildSystem) -> None:
    """Let only the layout go back, to one that does not need what was deleted since.

    The marks of a purged generation are deleted when the next one is registered. A worker that
    knows better has to be running, since what all have forgotten is lost.
    """
    layout = await system.space.layout()
    if system.past is None or not any(p.watcher.newest == layout for p in system.processes):
        return
    now, then = system.space.snapshot().copy(), system.past.copy()
    before = await system.layout_of(system.past)
    if [g.mark for g in before.generations] == [g.mark for g in layout.generations]:
        now.layout = then.layout
        system.space.restore(MemorySnapshot(now))
        system.seen["layout went back"] += 1


async def start_in_force(system: BuildSystem) -> None:
    """Start another worker of the generation that the store says is in force."""
    live = (await system.space.layout()).in_force
    if live is not None and system.workers_of(live) < 2:
        await system.start(live)
        system.rebalance(live)


async def read_all(system: BuildSystem, number: int) -> None:
    """Let a worker read everything that there is."""
    if system.processes:
        process = system.processes[number % len(system.processes)]
        process.client.max_records = ALL
        await system.act(process, "read", None, 0)


def fall_asleep(system: BuildSystem, number: int, *, noticed: bool) -> None:
    """Suspend a worker; the others of its group notice that or do not."""
    if system.processes:
        process = system.processes.pop(number % len(system.processes))
        system.sleepers.append(process)
        if noticed:
            system.rebalance(process.generation)


def wake(system: BuildSystem, number: int) -> None:
    """Let a suspended worker go on."""
    if system.sleepers:
        system.processes.append(system.sleepers.pop(number % len(system.sleepers)))
        system.seen["woke"] += 1


async def purge(system: BuildSystem) -> None:
    """Purge the namespace, and begin anew; no later worker of the state before brings it back.

    Not where the log lacks what the state has.
    """
    if system.retained or not system.seen["store went back"] or system.seen["purged"]:
        return
    system.seen["purged"] += 1
    await delete_all(system.space)
    anew = await begin(system.space, OLD, system.layout_ms())
    system.origin = anew.mark
    await system.start(anew)
    system.rebalance(anew)
