"""Events/s per core of the live worker, and of programs that compute its figures with other tools.

The programs are in ``benchmarks/peers`` and run with the interpreter of ``.venv/peers``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.children import ceiling, child, worker
from benchmarks.counted import differences, totals_of
from benchmarks.figures import Figure, figures_table, number, ratios, section, table
from benchmarks.peers.turns import FIGURES, Figures
from benchmarks.rivals import PEERS, peer_versions
from benchmarks.servers import Servers, servers
from benchmarks.workload import TOPICS, Traffic, traffic
from stream_metrics.cli.settings import Settings
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.ownership.generations import state_in_force

LIBRARIES: Final = {
    "bytewax_flow": ("bytewax",),
    "pathway_udf": ("pathway",),
    "pathway_native": ("pathway",),
    "quix": ("quixstreams",),
    "faust_table": ("faust-streaming",),
    "redis_loop": ("aiokafka", "redis"),
}
NAMES: Final = {
    "bytewax_flow": "Bytewax",
    "pathway_udf": "Pathway, Python functions",
    "pathway_native": "Pathway, its own expressions",
    "quix": "Quix Streams",
    "faust_table": "Faust, a table",
    "redis_loop": "aiokafka, a Redis call a result",
}


@dataclass(slots=True)
class Round:
    """One run of the ceiling, one of the worker, and one of each peer."""

    ceiling: dict[str, Any]
    worker: dict[str, Any]
    peers: dict[str, dict[str, Any]]
    load: float


class OtherFigures(Exception):
    """A run has figures that differ from the others, so that it cannot be compared."""


def run(*, quick: bool = False, records: int | None = None, rounds: int | None = None) -> str:
    """Measure, and return the report."""
    versions = peer_versions(_all_libraries())
    sent = traffic(records or (3_000 if quick else 10_000))
    return asyncio.run(_run(sent, rounds or (2 if quick else 5), versions))


async def _run(sent: Traffic, rounds: int, versions: str) -> str:
    total = len(sent.records)
    async with servers(sent) as running:
        await ceiling(running, total)  # the broker's page cache and the JVM warm up
        expected = await _expected(running, total)
        done = [await _round(running, total, at, expected) for at in range(rounds)]
    head = (
        f"{sent.describe()}; {rounds} rounds, each the ceiling, the worker, and the peers in "
        f"another order\npeers with {versions}\n"
        f"load {min(r.load for r in done):.1f} to {max(r.load for r in done):.1f}\n"
    )
    return section(
        "peers: the same SRR and SRE from the same topics",
        head,
        figures_table(_figures(done, total)),
        _counted(expected),
    )


async def _expected(running: Servers, total: int) -> dict[str, Figures]:
    """The figures of one more run of the live worker."""
    await worker(running, total, "expected")
    return await _left(running, "expected")


async def _left(running: Servers, group: str) -> dict[str, Figures]:
    """The figures of a run of the live worker, from Redis."""
    store = connect(RedisOptions(url=running.redis.url, namespace=group))
    try:
        config = Settings.model_validate({}).engine_config()
        return await totals_of(await state_in_force(store), config)
    finally:
        await store.close()


async def _round(running: Servers, total: int, at: int, expected: dict[str, Figures]) -> Round:
    read = await ceiling(running, total)
    await running.client.flushall()
    worked = await worker(running, total, f"round-{at}")
    check_figures("the worker", expected, await _left(running, f"round-{at}"))
    names = list(NAMES)
    first = at % len(names)
    peers = {}
    for name in names[first:] + names[:first]:
        await running.client.flushall()
        peers[name] = await _peer(running, total, name, at, expected)
    return Round(read, worked, peers, _load())


async def _peer(
    running: Servers, total: int, name: str, at: int, expected: dict[str, Figures]
) -> dict[str, Any]:
    """Run a peer once, and verify that its figures equal ours."""
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:
        servers_and_topics = [running.kafka.bootstrap_servers, running.redis.url, *TOPICS.values()]
        arguments = [*servers_and_topics, str(total), folder, f"{name}-{at}"]
        found = await child([f"benchmarks.peers.{name}", *arguments], python=PEERS)
    if found["records"] != total:
        raise OtherFigures(f"{NAMES[name]} took {found['records']} of {total} records")
    check_figures(NAMES[name], expected, found["totals"])
    return found


def check_figures(who: str, expected: dict[str, Figures], counted: dict[str, Figures]) -> None:
    """Verify that a run has the expected figures.

    Raises:
        OtherFigures: It has not.
    """
    wrong = differences(expected, counted)
    if wrong:
        raise OtherFigures(f"{who} counted\n" + "\n".join(wrong))


def _load() -> float:
    return os.getloadavg()[0]


def _all_libraries() -> list[str]:
    return [library for libraries in LIBRARIES.values() for library in libraries]


def _figures(done: list[Round], total: int) -> list[Figure]:
    live = [total / r.worker["cpu"] for r in done]
    peers = {name: [total / r.peers[name]["cpu"] for r in done] for name in NAMES}
    fastest = [max(rates) for rates in zip(*peers.values(), strict=True)]
    rates = {"live": live} | {NAMES[name]: rate for name, rate in peers.items()}
    return [
        Figure("ceiling", [total / r.ceiling["cpu"] for r in done], "events/s a core"),
        *(Figure(name, rate, "events/s a core") for name, rate in rates.items()),
        *(Figure(f"{n}, CPU an event", [1e6 / x for x in rate], "µs") for n, rate in rates.items()),
        Figure("live, by the clock", [total / r.worker["wall"] for r in done], "events/s"),
        *(
            Figure(f"{shown}, by the clock", [total / r.peers[n]["wall"] for r in done], "events/s")
            for n, shown in NAMES.items()
        ),
        Figure("live ÷ the fastest peer", ratios(live, fastest), "", "≥ 5"),
        *(Figure(f"live ÷ {NAMES[name]}", ratios(live, rate), "") for name, rate in peers.items()),
    ]


def _counted(totals: dict[str, Figures]) -> str:
    """The figures of each agent, which are equal in all runs of all programs."""
    rows: list[tuple[str, ...]] = [("the same in every run of all", *FIGURES, "SRR", "SRE")]
    for agent, figures in sorted(totals.items()):
        found = dict(zip(FIGURES, figures, strict=True))
        shares = [found[name] / found["results"] for name in ("duplicates", "good")]
        rows.append((agent, *(f"{value:,}" for value in figures), *map(number, shares)))
    return table(rows, right=range(1, len(FIGURES) + 3))
