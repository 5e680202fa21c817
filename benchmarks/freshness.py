"""The time until ``/metrics`` includes an event that was produced, by the load of the worker.

The worker is ``stream-metrics worker``. Its maximal rate is found first, under the same conditions:
with a producer, scrapes, and a backlog. Then records are produced at an even rate, a share of the
maximal one. A scrape that counts n records is taken to show the n-th produced record: its latency
begins when that record was due (``pacing``) and ends when the answer to the scrape has arrived.
Partitions are read concurrently, so that the n-th record produced need not be the n-th read: the
quantiles are those of the counter's age, not of single records.
"""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median

import aiohttp
import numpy as np
from aiokafka import AIOKafkaProducer

from benchmarks.figures import Figure, figures_table, number, section, table
from benchmarks.linux import usage
from benchmarks.model import Batches, keeping_up
from benchmarks.pacing import Sent, send_evenly
from benchmarks.processes import SCRAPE, ShippedWorker, records_done, total
from benchmarks.scaling import mix_of
from benchmarks.servers import JVM, PARTITIONS, create_topics, produce
from benchmarks.workload import TOPICS, Traffic, traffic, unending
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import ServerFailed
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import TrafficRecord

SHARES = (0.1, 0.5, 0.9)  # of the maximal rate
INTERVAL_SECONDS = 0.1  # between two scrapes; each takes the worker some milliseconds
IDLE_SECONDS = 3.0
PAUSE_MS = 60_000
STUCK_SECONDS = 60.0
GOAL_MS = {50: "≤ 250", 99: "≤ 1,000"}  # at half of the maximal rate


@dataclass(slots=True)
class Scraper:
    """Scrapes ``/metrics`` continuously: the time and the number of records of each answer."""

    answers: list[tuple[float, int]] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    batches: int = 0

    @property
    def records(self) -> int:
        """The number of records in the last scrape."""
        return self.answers[-1][1] if self.answers else 0

    async def scrape(self, worker: ShippedWorker, session: aiohttp.ClientSession) -> None:
        """Scrape once."""
        began = time.perf_counter()
        text = await worker.scrape(session)
        now = time.perf_counter()
        self.durations.append(now - began)
        self.answers.append((now, records_done(text)))
        self.batches = int(total(text, "batch_records_count"))

    async def run(self, worker: ShippedWorker, session: aiohttp.ClientSession) -> None:
        """Scrape until cancelled; a paused worker does not answer."""
        while True:
            began = time.perf_counter()
            with suppress(TimeoutError):
                await self.scrape(worker, session)
            rest = INTERVAL_SECONDS - (time.perf_counter() - began)
            await asyncio.sleep(max(0.0, rest))

    async def until(self, records: int) -> None:
        """Return when a scrape has this number of records."""
        last, moved = -1, time.perf_counter()
        while self.records < records:
            if self.records > last:
                last, moved = self.records, time.perf_counter()
            elif time.perf_counter() - moved > STUCK_SECONDS:
                raise ServerFailed(f"the worker counts {last} of {records} records")
            await asyncio.sleep(INTERVAL_SECONDS)


@dataclass(frozen=True, slots=True)
class Level:
    """The measurement at one rate: the rates asked for and achieved, and latencies in seconds."""

    share: float
    rate: float
    latencies: Sequence[float]
    worker_cores: float
    scrape_seconds: float
    batch: float
    behind_seconds: float

    def quantile_ms(self, percent: int) -> float:
        """A quantile of the latency."""
        return 1000 * float(np.percentile(self.latencies, percent))


@dataclass(frozen=True, slots=True)
class System:
    """The running system and the records to produce; ``records`` is endless and never repeats."""

    kafka: Kafka
    worker: ShippedWorker
    scraper: Scraper
    producer: AIOKafkaProducer
    sent: Traffic
    records: Iterator[TrafficRecord]

    async def produce_evenly(self, rate: float, stop: Callable[[int], bool]) -> Sent:
        """Send records at an even rate until ``stop(sent)``."""
        sent = await send_evenly(self.records, self._send, rate, stop)
        await self.producer.flush()
        return sent

    async def _send(self, record: TrafficRecord) -> None:
        # without its timestamp, which lies in the past
        await self.producer.send(TOPICS[record.stream], record.value, key=record.key)


def run(*, quick: bool = False, records: int | None = None, rounds: int | None = None) -> str:
    """Measure, and return the report."""
    sent = traffic(records or (6_000 if quick else 30_000))
    seconds = 5.0 if quick else 20.0
    return asyncio.run(_run(sent, seconds, rounds or (1 if quick else 3)))


async def _run(sent: Traffic, seconds: float, rounds: int) -> str:
    async with _system(sent) as system:
        idle = await _idle_cores(system)
        alone, maximal = await _maximal(system)
        levels = [
            await _level(system, share, maximal, seconds) for _ in range(rounds) for share in SHARES
        ]
    return _report(sent, alone, maximal, levels, idle, seconds)


@asynccontextmanager
async def _system(sent: Traffic) -> AsyncIterator[System]:
    """Servers, topics, the worker, and a scraper at work."""
    with tempfile.TemporaryDirectory(prefix="freshness-") as name:
        folder = Path(name)
        async with (
            Kafka(folder / "kafka", jvm=JVM) as kafka,
            RedisServer(folder / "redis", fsync="everysec") as redis,
            aiohttp.ClientSession(timeout=SCRAPE) as session,
        ):
            topics = await create_topics(kafka)
            settings = {
                "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
                "KAFKA__TOPICS": json.dumps(topics),
                "REDIS__URL": redis.url,
                "KAFKA__SESSION_TIMEOUT_MS": str(PAUSE_MS),  # paused workers stay in the group
            }
            producer = AIOKafkaProducer(
                bootstrap_servers=kafka.bootstrap_servers, linger_ms=5, max_batch_size=512 * 1024
            )
            async with ShippedWorker(folder / "worker", settings) as worker, producer:
                scraper = Scraper()
                await scraper.scrape(worker, session)
                scraping = asyncio.create_task(scraper.run(worker, session))
                try:
                    yield System(kafka, worker, scraper, producer, sent, unending(sent))
                finally:
                    scraping.cancel()
                    await asyncio.gather(scraping, return_exceptions=True)


async def _idle_cores(system: System) -> float:
    """The cost of scrapes alone: CPU seconds of an idle worker per second."""
    before, began = usage(system.worker.pid).cpu_seconds, time.perf_counter()
    await asyncio.sleep(IDLE_SECONDS)
    spent = usage(system.worker.pid).cpu_seconds - before
    return spent / (time.perf_counter() - began)


async def _maximal(system: System) -> tuple[float, float]:
    """Records per second without a producer, and with one that produces at that rate."""
    alone = await _rate_of_backlog(system, 0.0)
    return alone, await _rate_of_backlog(system, alone)


async def _rate_of_backlog(system: System, producing: float) -> float:
    """Records per second of a backlog while ``producing`` records per second are produced."""
    first = system.scraper.records
    size = len(system.sent.records)
    backlog = Traffic(list(islice(system.records, size)))
    system.worker.pause()
    await produce(system.kafka.bootstrap_servers, backlog)
    system.worker.resume()
    began, goal = time.perf_counter(), first + size

    def enough(_: int) -> bool:
        return system.scraper.records >= goal

    if producing:
        more = len(await system.produce_evenly(producing, enough))
    else:
        more = 0
        await system.scraper.until(goal)
    reached = next(at for at in system.scraper.answers if at[1] >= goal)
    await system.scraper.until(goal + more)
    return (reached[1] - first) / (reached[0] - began)


async def _level(system: System, share: float, maximal: float, seconds: float) -> Level:
    """Measure at a share of the maximal rate, for a number of seconds."""
    scraper, rate = system.scraper, share * maximal
    first, scrapes, batches = scraper.records, len(scraper.answers), scraper.batches
    before, began = usage(system.worker.pid).cpu_seconds, time.perf_counter()
    count = int(rate * seconds)
    sent = await system.produce_evenly(rate, lambda so_far: so_far >= count)
    await scraper.until(first + len(sent))
    spent = usage(system.worker.pid).cpu_seconds - before
    return Level(
        share,
        sent.rate,
        latencies(sent.due, first, scraper.answers[scrapes:]),
        spent / (time.perf_counter() - began),
        float(np.median(scraper.durations[scrapes:])),
        len(sent) / (scraper.batches - batches),
        sent.behind_seconds,
    )


def latencies(times: Sequence[float], first: int, seen: Sequence[tuple[float, int]]) -> list[float]:
    """For each record, the time from when it was due until a scrape counted as many records.

    ``first`` were counted before.

    >>> latencies([1.0, 2.0, 3.0], 10, [(2.5, 11), (4.0, 13)])
    [1.5, 2.0, 1.0]
    """
    found: list[float] = []
    for at, count in seen:
        while len(found) < min(count - first, len(times)):
            found.append(at - times[len(found)])
    return found


# -- the report ---------------------------------------------------------------------------------


def _report(
    sent: Traffic,
    alone: float,
    maximal: float,
    levels: Sequence[Level],
    idle: float,
    seconds: float,
) -> str:
    figures = [
        Figure("maximal rate, nothing produced", [alone], "events/s"),
        Figure("maximal rate, as many produced", [maximal], "events/s"),
        Figure("scrapes alone, of the worker's core", [idle], "cores"),
        Figure("a scrape at full rates", [1000 * one.scrape_seconds for one in levels], "ms"),
    ]
    rows: list[Figure] = []
    for share in SHARES:
        of_share = [one for one in levels if one.share == share]
        name = f"at {share:.0%}"
        rows.append(Figure(f"{name}: produced", [one.rate for one in of_share], "events/s"))
        behind = [1000 * one.behind_seconds for one in of_share]
        rows.append(Figure(f"{name}: producer late, at most", behind, "ms"))
        for percent in (50, 99):
            values = [one.quantile_ms(percent) for one in of_share]
            goal = GOAL_MS[percent] if share == 0.5 else ""
            rows.append(Figure(f"{name}: visible, p{percent}", values, "ms", goal))
        rows.append(Figure(f"{name}: worker", [one.worker_cores for one in of_share], "cores"))
        rows.append(Figure(f"{name}: events a batch", [one.batch for one in of_share], ""))
    head = (
        f"{sent.describe()}; each rate for {seconds:.0f} s, n is rounds; a scrape every "
        f"{1000 * INTERVAL_SECONDS:.0f} ms, which the latency includes; it begins when a record "
        "is due\n"
    )
    title = f"freshness: from produced to visible on /metrics, one worker, {PARTITIONS} partitions"
    return section(
        title, head, figures_table(figures), figures_table(rows), predictions(sent, levels)
    )


def predictions(sent: Traffic, levels: Sequence[Level]) -> str:
    """Predictions of the capacity model for a worker that keeps up, and the measured medians."""
    mix = mix_of(sent)
    known = len({record.key for record in sent.records})
    read = Batches(math.inf, 1.0, known / len(sent.records))
    rows = [("by the model's constants", "predicted", "measured", "error")]
    for share in SHARES:
        of_share = [one for one in levels if one.share == share]
        rate = median(one.rate for one in of_share)
        batch, cores = keeping_up(rate, PARTITIONS, mix, read)
        for what, said, found in (
            ("events a batch", batch, median(one.batch for one in of_share)),
            ("worker's cores, at most", cores, median(one.worker_cores for one in of_share)),
        ):
            error = f"{said / found - 1:+.0%}"
            rows.append((f"at {share:.0%}: {what}", number(said), number(found), error))
    return table(rows, right=(1, 2, 3))
