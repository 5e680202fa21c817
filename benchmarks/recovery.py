"""The time until a worker has caught up after a kill with a backlog, and after a Redis outage.

The worker is ``stream-metrics worker``. It is killed while idle, events arrive while it is down,
and it is started again. The time from the start to lag 0 is compared with fetching and decoding as
many events (the ceiling of ``live``). The group notices the kill by the session timeout
(``kafka.session_timeout_ms``, ten seconds); producing may take less than that. A worker with a
``kafka.group_instance_id`` replaces the killed one immediately. Every round measures both kinds, in
the same group and with the same state.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import aiohttp
from aiokafka import AIOKafkaConsumer, TopicPartition

from benchmarks.ceiling import Offsets
from benchmarks.children import child
from benchmarks.figures import Figure, figures_table, section
from benchmarks.linux import usage
from benchmarks.processes import SCRAPE, ShippedWorker, records_done, total
from benchmarks.servers import JVM, PARTITIONS, create_topics, produce
from benchmarks.workload import TOPICS, Traffic, traffic, unending
from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.lab.traffic import TrafficRecord

BEFORE = 2_000  # records that are read before anything goes wrong
BASE_RECORDS = 30_000  # of traffic, renewed as often as needed
OUTAGE_SECONDS = 5.0
INSTANCE_ID = "KAFKA__GROUP_INSTANCE_ID"
DEADLINE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """One kill: from the start to all partitions and to lag 0, the worker's CPU, the ceiling's."""

    owner_seconds: float
    caught_up_seconds: float
    cpu_seconds: float
    reading_seconds: float
    reading_cpu_seconds: float


@dataclass(slots=True)
class System:
    """The servers, the worker, and an endless stream of distinct records."""

    kafka: Kafka
    redis: RedisServer
    worker: ShippedWorker
    session: aiohttp.ClientSession
    records: Iterator[TrafficRecord]

    async def produce(self, count: int) -> None:
        """Send the next records."""
        batch = Traffic(list(islice(self.records, count)))
        await produce(self.kafka.bootstrap_servers, batch)

    async def ends(self) -> Offsets:
        """The end offsets of the topics."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.kafka.bootstrap_servers)
        await consumer.start()
        try:
            places = [TopicPartition(t, n) for t in TOPICS.values() for n in range(PARTITIONS)]
            found = await consumer.end_offsets(places)
        finally:
            await consumer.stop()
        return {
            topic: [found[TopicPartition(topic, number)] for number in range(PARTITIONS)]
            for topic in TOPICS.values()
        }

    async def metrics(self) -> str:
        """The text of ``/metrics``; empty while the worker does not answer."""
        try:
            return await self.worker.scrape(self.session)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return ""

    async def until_done(self, records: int) -> None:
        """Return when the worker has counted this number of records."""

        async def done() -> bool:
            return records_done(await self.metrics()) >= records

        await wait_until(done, DEADLINE_SECONDS, f"{records} records are not read")

    async def until_owner(self) -> None:
        """Return when the worker has all partitions."""

        async def owner() -> bool:
            return total(await self.metrics(), "assigned_partitions") == PARTITIONS

        await wait_until(owner, DEADLINE_SECONDS, "the worker does not get its partitions")


def run(*, quick: bool = False, records: int | None = None, rounds: int | None = None) -> str:
    """Measure, and return the report; ``records`` is the size of the backlog."""
    behind = records or (10_000 if quick else 100_000)
    return asyncio.run(_run(behind, rounds or (1 if quick else 3)))


async def _run(behind: int, rounds: int) -> str:
    sent = traffic(min(behind, BASE_RECORDS))
    with tempfile.TemporaryDirectory(prefix="recovery-") as name:
        folder = Path(name)
        async with (
            Kafka(folder / "kafka", jvm=JVM) as kafka,
            RedisServer(folder / "redis", fsync="everysec") as redis,
            aiohttp.ClientSession(timeout=SCRAPE) as session,
        ):
            settings = {
                "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
                "KAFKA__TOPICS": json.dumps(await create_topics(kafka)),
                "REDIS__URL": redis.url,
            }
            nameless = ShippedWorker(folder / "worker", settings)
            named = ShippedWorker(folder / "named", {**settings, INSTANCE_ID: "worker"})
            system = System(kafka, redis, nameless, session, unending(sent))
            plain, static = [], []
            for _ in range(rounds):
                plain.append(await _killed(system, nameless, behind))
                static.append(await _killed(system, named, behind))
            async with nameless as system.worker:
                outages = [await _without_redis(system, behind // 10) for _ in range(rounds)]
    return _report(behind, plain, static, outages)


async def _killed(system: System, worker: ShippedWorker, behind: int) -> Recovery:
    """Start the worker and kill it, let records come, start it again."""
    async with worker as system.worker:
        await system.produce(BEFORE)
        await system.until_done(BEFORE)
        return await _recovered(system, behind)


async def _recovered(system: System, behind: int) -> Recovery:
    read = await system.ends()
    system.worker.kill9()
    await system.produce(behind)
    began = time.perf_counter()
    system.worker.launch()
    await system.until_owner()
    owner_seconds = time.perf_counter() - began
    await system.until_done(behind)
    caught_up_seconds = time.perf_counter() - began
    cpu_seconds = usage(system.worker.pid).cpu_seconds
    arguments = [system.kafka.bootstrap_servers, str(behind), json.dumps(read)]
    reading = await child(["benchmarks.ceiling", *arguments])
    return Recovery(owner_seconds, caught_up_seconds, cpu_seconds, reading["wall"], reading["cpu"])


async def _without_redis(system: System, behind: int) -> float:
    """Seconds from when Redis answers again to lag 0; records come while it is away."""
    before = records_done(await system.metrics())
    system.redis.kill9()
    away = time.perf_counter()
    await system.produce(behind)
    await asyncio.sleep(max(0.0, OUTAGE_SECONDS - (time.perf_counter() - away)))
    await system.redis.start()
    began = time.perf_counter()
    await system.until_done(before + behind)
    return time.perf_counter() - began


def _report(
    behind: int,
    plain: Sequence[Recovery],
    static: Sequence[Recovery],
    outages: Sequence[float],
) -> str:
    done = [*plain, *static]
    rates = [behind / (one.caught_up_seconds - one.owner_seconds) for one in done]
    in_cpu = [one.cpu_seconds / one.reading_cpu_seconds for one in done]
    figures = [
        *_times("", plain),
        *_times(", with an instance id", static),
        Figure("from its partitions on", rates, "events/s"),
        Figure("worker, with its start", [one.cpu_seconds for one in done], "CPU s"),
        Figure("reading as many", [one.reading_seconds for one in done], "s"),
        Figure("reading as many", [one.reading_cpu_seconds for one in done], "CPU s"),
        Figure("CPU of the worker ÷ of reading", in_cpu, ""),
        Figure("Redis answers again to lag 0", outages, "s"),
    ]
    head = (
        f"kill -9, {behind:,} events while the worker is away, start; Redis killed for at least "
        f"{OUTAGE_SECONDS:.0f} s with {behind // 10:,} events meanwhile; {PARTITIONS} partitions\n"
    )
    return section("recovery: one worker, to lag 0", head, figures_table(figures))


def _times(kind: str, done: Sequence[Recovery]) -> list[Figure]:
    """The figures of one kind of worker."""
    ratios = [one.caught_up_seconds / one.reading_seconds for one in done]
    return [
        Figure(f"start to partitions{kind}", [one.owner_seconds for one in done], "s"),
        Figure(f"start to lag 0{kind}", [one.caught_up_seconds for one in done], "s"),
        Figure(f"start to lag 0 ÷ reading{kind}", ratios, "", "≤ 2"),
    ]
