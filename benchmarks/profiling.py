"""CPU time by package without servers: decode, step, encode, memory store."""

from __future__ import annotations

import asyncio
import cProfile
import pstats
from typing import Any

from benchmarks.figures import number, section, table
from benchmarks.inprocess import InProcess
from benchmarks.live import modules_table, packages_table, top_table
from benchmarks.packages import OURS, package_of, short
from benchmarks.sampling import Sampler
from benchmarks.workload import as_records, traffic
from stream_metrics.core.events.record import Record

TOP_SAMPLED = 40
TOP_MODULES = 20
TOP_OF_ROOM = 12


def run(*, quick: bool = False, records: int | None = None) -> str:
    """Profile, and return the report."""
    sent = traffic(records or (6_000 if quick else 30_000))
    taken = as_records(sent.records)
    sampler = Sampler()
    seconds = asyncio.run(_sampled(taken, sampler))
    us_an_event = 1e6 * seconds / len(taken)
    profile = cProfile.Profile()
    asyncio.run(_profiled(taken, profile))
    return section(
        "profile: decode, step, encode and the memory store, in one process",
        f"{sent.describe()}; {number(us_an_event)} µs of CPU an event under the sampler\n",
        packages_table(sampler.shares(), us_an_event),
        modules_table(sampler.modules(TOP_MODULES), us_an_event),
        top_table(sampler.top(TOP_SAMPLED), us_an_event),
        "By function under cProfile, which makes calls dearer than they are: own time only.\n",
        *_by_package(profile, len(taken)),
    )


async def _sampled(records: list[Record], sampler: Sampler) -> float:
    path = await InProcess().open()
    sampler.start()
    seconds = await path.process(records)
    sampler.stop()
    return seconds


async def _profiled(records: list[Record], profile: cProfile.Profile) -> None:
    path = await InProcess().open()
    profile.enable()
    await path.process(records)
    profile.disable()


def _by_package(profile: cProfile.Profile, events: int) -> list[str]:
    """For each package, the functions with the most own time."""
    stats: dict[tuple[str, int, str], Any] = vars(pstats.Stats(profile))["stats"]
    total = sum(entry[2] for entry in stats.values())
    blocks = []
    for package in OURS:
        found = [
            (entry[2], entry[1], f"{short(file)}:{line} {name}")
            for (file, line, name), entry in stats.items()
            if package_of(file) == package
        ]
        rows = [(package, "share", "calls an event")]
        for own, calls, name in sorted(found, reverse=True)[:TOP_OF_ROOM]:
            rows.append((name, f"{own / total:.1%}", number(calls / events)))
        blocks.append(table(rows, right=(1, 2)))
    return blocks
