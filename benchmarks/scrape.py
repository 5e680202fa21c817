"""The duration of a scrape of ``/metrics`` at the limit of series, and how long it blocks the loop.

State partitions in this process receive events before each scrape, so that sums have changed, and
the worker's own pages serve them with aiohttp. Another process (``python -m benchmarks.scrape
ADDRESS``) scrapes once for each line of its standard input.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import count, islice
from typing import Any
from zlib import crc32

import uvloop
from msgspec import structs
from prometheus_client import CollectorRegistry

from benchmarks.figures import Figure, figures_table, section
from benchmarks.inprocess import InProcess
from benchmarks.machine import ROOT
from benchmarks.processes import total
from benchmarks.workload import EVENTS, LABELS, as_records, traffic
from stream_metrics.core.engine.config import MAX_AGENTS, MAX_ROUTES
from stream_metrics.core.engine.series import MAX_SERIES
from stream_metrics.core.events.record import Record
from stream_metrics.live.health import Health
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector
from stream_metrics.live.web import Pages, WebOptions, make_app, serve

PARTITIONS = 4
CUTS = (1, 2, 3, 5, 10, 20, 50, 100)
METRICS = {"retrieval": [f"{name}@{k}" for name in ("ndcg", "recall", "p") for k in CUTS]}
SCRAPE_RECORDS = 400  # records between two scrapes
TICK_SECONDS = 0.001
IDLE_SECONDS = 0.1

_AGENT = re.compile(rb'"agent":"[^"]*"')
_ROUTE = re.compile(rb'"selected":"[^"]*"')


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape: wall and CPU seconds, longest block of the event loop, size of the answer."""

    seconds: float
    cpu_seconds: float
    blocked_seconds: float
    idle_blocked_seconds: float
    series: int
    bytes: int


def run(*, quick: bool = False, rounds: int | None = None) -> str:
    """Measure, and return the report."""
    wanted = rounds or (5 if quick else 30)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        scrapes = runner.run(_run(wanted, 4_000 if quick else 30_000))
    return _report(scrapes)


async def _run(scrapes: int, filling: int) -> list[Scrape]:
    sent = traffic(filling + scrapes * SCRAPE_RECORDS)
    records = map(spread, as_records(sent.records, PARTITIONS))
    paths = [await InProcess(metrics=METRICS).open() for _ in range(PARTITIONS)]
    await _feed(paths, list(islice(records, filling)))
    async with _served(paths) as address, _scraper(address) as child:
        found = [await _scrape(child)]  # the first scrape reads all buckets
        for _ in range(scrapes):
            await _feed(paths, list(islice(records, SCRAPE_RECORDS)))
            found.append(await _scrape(child))
    return found


def spread(record: Record) -> Record:
    """The record under one of many agents and routes with similar traffic."""
    chosen = crc32(record.key or b"")
    value = _AGENT.sub(b'"agent":"agent-%02d"' % (chosen % MAX_AGENTS), record.value or b"")
    at = count(chosen // MAX_AGENTS)
    value = _ROUTE.sub(lambda _: b'"selected":"route-%02d"' % (next(at) % MAX_ROUTES), value)
    return structs.replace(record, value=value)


async def _feed(paths: Sequence[InProcess], records: Sequence[Record]) -> None:
    for number, path in enumerate(paths):
        await path.process([record for record in records if record.partition == number])


@asynccontextmanager
async def _served(paths: Sequence[InProcess]) -> AsyncIterator[str]:
    """The worker's web pages for all of the partitions, and their address."""
    registry = CollectorRegistry()
    Operations(registry, (EVENTS, LABELS))
    windows = WindowCollector(
        lambda: [path.partition.windows for path in paths],
        lambda: time.time_ns() // 1000,
        retrieval=paths[0].settings.engine_config().retrieval,
    )
    runner = await serve(WebOptions(port=0), make_app(Pages(registry, Health(60.0), windows)))
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _scraper(address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process that scrapes."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.scrape", address,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await _line(child)  # it has started
        yield child
    finally:
        child.kill()
        await child.wait()


async def _line(child: asyncio.subprocess.Process) -> dict[str, float]:
    assert child.stdout is not None
    found: dict[str, float] = json.loads(await child.stdout.readline())
    return found


async def _scrape(child: asyncio.subprocess.Process) -> Scrape:
    """Scrape once and watch the event loop, after an equally long time without a scrape."""
    assert child.stdin is not None
    idle = await _longest_block(asyncio.create_task(asyncio.sleep(IDLE_SECONDS)))
    before = time.process_time()
    child.stdin.write(b"\n")
    reading = asyncio.create_task(_line(child))
    stood = await _longest_block(reading)
    spent = time.process_time() - before
    found = reading.result()
    return Scrape(found["seconds"], spent, stood, idle, int(found["series"]), int(found["bytes"]))


async def _longest_block(until: asyncio.Task[Any]) -> float:
    """The largest delay of a sleep until the task is done."""
    longest = 0.0
    while not until.done():
        began = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        longest = max(longest, time.perf_counter() - began - TICK_SECONDS)
    return longest


def _report(scrapes: Sequence[Scrape]) -> str:
    first, later = scrapes[0], scrapes[1:]
    ms = 1e3
    figures = [
        Figure("window series", [one.series for one in later], "", f"≤ {MAX_SERIES:,}"),
        Figure("bytes", [one.bytes for one in later], "B"),
        Figure("a scrape", [ms * one.seconds for one in later], "ms", "≤ 250"),
        Figure("the first after a start", [ms * first.seconds], "ms"),
        Figure("CPU of the worker a scrape", [ms * one.cpu_seconds for one in later], "ms"),
        Figure("event loop blocked", [ms * one.blocked_seconds for one in later], "ms", "≤ 20"),
        Figure("event loop blocked, first scrape", [ms * first.blocked_seconds], "ms"),
        Figure(
            "event loop blocked, no scrape", [ms * one.idle_blocked_seconds for one in later], "ms"
        ),
    ]
    head = (
        f"{MAX_AGENTS} agents, {MAX_ROUTES} routes, {PARTITIONS} state partitions; "
        f"{SCRAPE_RECORDS} records between two scrapes; the loop has nothing else to do meanwhile\n"
    )
    return section("scrape: /metrics at the limit of series", head, figures_table(figures))


def main() -> None:
    """Scrape once for each line read."""
    print("{}", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        connection = HTTPConnection(sys.argv[1])
        connection.request("GET", "/metrics")
        body = connection.getresponse().read()
        seconds = time.perf_counter() - began
        connection.close()
        series = total(body.decode(), "window_series")
        print(json.dumps({"seconds": seconds, "series": series, "bytes": len(body)}), flush=True)


if __name__ == "__main__":
    main()
