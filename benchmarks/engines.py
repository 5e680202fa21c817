"""Live and replay with the reference engine, with the kernel, and with all that is compiled.

The first is what ``pip install .`` gives without compilers, the second adds the kernel, the third
the modules that mypyc compiles, from ``.venv/compiled``. Each round runs the ceilings and then
every engine, in another order. A run counts only if its process says that it ran this engine.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.children import ceiling, child, environment_of, worker
from benchmarks.figures import Figure, figures_table, number, ratios, section
from benchmarks.machine import ROOT
from benchmarks.ran import Engines, inherited
from benchmarks.replay import ceiling_seconds, once, write_recording
from benchmarks.servers import Servers, servers
from benchmarks.workload import traffic
from stream_metrics.core.compiled import COMPILED, KERNEL_ONLY, REFERENCE, VARIABLE

RECORDS: Final = 30_000
REPLAYED: Final = 3  # as many records as live, so that the start of a replay weighs less
SOURCES: Final = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)}
ENGINES: Final[Mapping[str, Mapping[str, str]]] = {
    REFERENCE: {**SOURCES, VARIABLE: "python"},
    KERNEL_ONLY: {**SOURCES, VARIABLE: "auto"},
    COMPILED: {**environment_of(ROOT), VARIABLE: "auto"},
}
"""The variables that choose each engine."""

Costs = dict[str, list[float]]
"""CPU µs an event in each round, by engine, and by ``CEILING``."""
CEILING: Final = "ceiling"


def run(*, quick: bool = False, records: int | None = None, rounds: int | None = None) -> str:
    """Measure, and return the report.

    Raises:
        OtherEngine: A process did not run the engine that it was to run.
    """
    count = records or (6_000 if quick else RECORDS)
    return asyncio.run(_run(count, rounds or (2 if quick else 5)))


async def _run(count: int, rounds: int) -> str:
    live: Costs = {name: [] for name in (CEILING, *ENGINES)}
    replays: Costs = {name: [] for name in (CEILING, *ENGINES)}
    sent, names = traffic(count), list(ENGINES)
    with tempfile.TemporaryDirectory(prefix="engines-") as place:
        source = Path(place, "events.jsonl")
        write_recording(source, REPLAYED * count)
        async with servers(sent) as running:
            await ceiling(running, count)  # the broker's page cache and the JVM warm up
            for at in range(rounds):
                first = at % len(names)
                live[CEILING].append(1e6 * (await ceiling(running, count))["cpu"] / count)
                decoded = ceiling_seconds(source)
                replays[CEILING].append(1e6 * decoded / (REPLAYED * count))
                for name in names[first:] + names[:first]:
                    live[name].append(1e6 * await _live(running, count, name, at) / count)
                    spent = await _replay(source, Path(place, f"{at}-{first}-{name}"), name)
                    replays[name].append(1e6 * spent / (REPLAYED * count))
    return section(
        "engines: the reference, with the kernel, and all that is compiled",
        f"{sent.describe()}; a replay of {number(REPLAYED * count)} records with one process, its "
        f"start included; {rounds} rounds\n",
        "live\n" + figures_table(_figures(live)),
        "replay\n" + figures_table(_figures(replays)),
    )


async def _live(running: Servers, count: int, name: str, at: int) -> float:
    await running.client.flushall()
    group = f"engines-{at}-{list(ENGINES).index(name)}"
    ran = Engines(name)
    return float((await worker(running, count, group, chosen=ENGINES[name], ran=ran))["cpu"])


async def _replay(source: Path, out: Path, name: str) -> float:
    environment = {**inherited(), **ENGINES[name]}
    ran = await child(once(source, out, 1), environment, ran=Engines(name))
    return float(ran["cpu_seconds"])


def _figures(costs: Costs) -> list[Figure]:
    """CPU an event, and the ceiling's share of it, round by round."""
    return [
        *(Figure(f"{name}, CPU an event", spent, "µs") for name, spent in costs.items()),
        *(Figure(f"{name} ÷ ceiling", ratios(costs[CEILING], costs[name]), "") for name in ENGINES),
    ]
