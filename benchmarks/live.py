"""Events/s per core of the live worker, against fetching and decoding the same topics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.children import ceiling, worker
from benchmarks.figures import Figure, figures_table, number, ratios, section, table
from benchmarks.memory import memory_figures
from benchmarks.servers import Servers, redis_cpu_seconds, redis_server, servers
from benchmarks.workload import Traffic, traffic

GOAL = "≥ 0.25; then 0.5"  # of the ceiling
IN_SCRIPTS = ("hset", "hdel", "zadd", "zrem", "hget", "hmget", "type", "unlink")


@dataclass(slots=True)
class Round:
    """One run of the ceiling and one of the worker."""

    ceiling: dict[str, Any]
    worker: dict[str, Any]
    commands: Counter[str] = field(default_factory=Counter)
    redis_cpu: float = 0.0


def run(*, quick: bool = False, records: int | None = None, rounds: int | None = None) -> str:
    """Measure, and return the report."""
    sent = traffic(records or (6_000 if quick else 30_000))
    return asyncio.run(_run(sent, rounds or (3 if quick else 5), quick=quick))


async def _run(sent: Traffic, rounds: int, *, quick: bool) -> str:
    total = len(sent.records)
    async with servers(sent) as running:
        await ceiling(running, total)  # the broker's page cache and the JVM warm up
        done = [await _round(running, total, at) for at in range(rounds)]
        sampled = await worker(running, total, "sampled", "--sample")
    async with redis_server() as (redis, client):
        memory = await memory_figures(redis, client, quick=quick)
    head = f"{sent.describe()}; {rounds} rounds, each the ceiling and then the worker\n"
    worker_us = 1e6 * sampled["cpu"] / total
    return section(
        "live: Kafka (4 partitions, 2 topics), one worker, Redis (AOF everysec)",
        head,
        figures_table(_figures(done, total)),
        figures_table(memory),
        _stages(done, total),
        packages_table(sampled["packages"], worker_us),
        top_table(sampled["top"][:15], worker_us),
        _commands(done, total),
    )


async def _round(running: Servers, total: int, at: int) -> Round:
    read = await ceiling(running, total)
    await running.client.flushall()
    await running.client.config_resetstat()
    before = await redis_cpu_seconds(running.client)
    worked = await worker(running, total, f"round-{at}")
    cpu = await redis_cpu_seconds(running.client) - before
    stats = await running.client.info("commandstats")
    commands = {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}
    return Round(read, worked, Counter(commands), cpu)


def _figures(done: list[Round], total: int) -> list[Figure]:
    live = [total / r.worker["cpu"] for r in done]
    ceiling = [total / r.ceiling["cpu"] for r in done]
    return [
        Figure("live", live, "events/s a core"),
        Figure("ceiling", ceiling, "events/s a core"),
        Figure("live ÷ ceiling", ratios(live, ceiling), "", GOAL),
        Figure("live, CPU an event", [1e6 / x for x in live], "µs"),
        Figure("ceiling, CPU an event", [1e6 / x for x in ceiling], "µs"),
        Figure("live, by the clock", [total / r.worker["wall"] for r in done], "events/s"),
        Figure("ceiling, by the clock", [total / r.ceiling["wall"] for r in done], "events/s"),
        Figure("Redis's own CPU an event", [1e6 * r.redis_cpu / total for r in done], "µs"),
        Figure("events a batch", [total / r.worker["batches"] for r in done], ""),
        Figure(
            "Redis round trips", [1000 * r.worker["sends"] / total for r in done], "in 1,000 events"
        ),
    ]


def _stages(done: list[Round], total: int) -> str:
    """Wall time by stage of a batch; the rest is fetching and everything between batches."""
    rows = [("wall time of a batch's stages", "µs an event")]
    names = sorted(
        done[0].worker["stages"],
        key=lambda name: -Figure("", [r.worker["stages"][name] for r in done], "").median,
    )
    for name in names:
        spent = [1e6 * r.worker["stages"].get(name, 0.0) / total for r in done]
        rows.append((name, number(Figure(name, spent, "").median)))
    rest = [1e6 * (r.worker["wall"] - sum(r.worker["stages"].values())) / total for r in done]
    rows.append(("fetch and the rest", number(Figure("", rest, "").median)))
    return table(rows, right=(1,))


def packages_table(shares: dict[str, float], us_an_event: float) -> str:
    """CPU by package."""
    rows = [("CPU by package, sampled", "share", "µs an event")]
    for package, share in shares.items():
        rows.append((package, f"{share:.1%}", number(share * us_an_event)))
    return table(rows, right=(1, 2))


def modules_table(modules: Sequence[tuple[str, float]], us_an_event: float) -> str:
    """CPU by file."""
    rows = [("CPU by file, sampled", "share", "µs an event")]
    for file, share in modules:
        rows.append((file, f"{share:.1%}", number(share * us_an_event)))
    return table(rows, right=(1, 2))


def top_table(top: list[tuple[str, str, float]], us_an_event: float) -> str:
    """The functions with the most own CPU time, including calls into C and the standard library."""
    rows = [("package", "function", "share", "µs an event")]
    for package, name, share in top:
        rows.append((package, name, f"{share:.1%}", number(share * us_an_event)))
    return table(rows, right=(2, 3))


def _commands(done: list[Round], total: int) -> str:
    """The commands that Redis ran; those of scripts count in addition to the script."""
    rows = [("Redis commands", "in 1,000 events", "")]
    calls: Counter[str] = Counter()
    for one in done:
        calls.update(one.commands)
    for name, count in calls.most_common(10):
        inside = "mostly inside the script" if name in IN_SCRIPTS else ""
        rows.append((name, number(1000 * count / total / len(done)), inside))
    return table(rows, right=(1,))
