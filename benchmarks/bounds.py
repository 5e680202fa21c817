"""Whether a worker's memory stays constant over many conversations: ``make bounds``.

Each conversation is one search with three results; every tenth record is a label for a random
earlier conversation, which is hardly ever in the cache. The worker is ``stream-metrics worker``;
the records are produced while it reads, and ``/metrics`` is scraped continuously.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

import aiohttp
from redis.asyncio import Redis

from benchmarks.figures import Figure, figures_table, number, section, table
from benchmarks.linux import usage
from benchmarks.processes import SCRAPE, ShippedWorker, total
from benchmarks.servers import JVM, PARTITIONS, redis_bytes, send
from benchmarks.workload import EVENTS, LABELS
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import ServerFailed
from deploy.local.servers import RedisServer

RESULTS = 3
LABEL_EVERY = 10
PARTS = 10  # into which the report divides the run
SAMPLE_SECONDS = 1.0
SETTLE_SECONDS = 3.0  # the worker reports the size of its cache every two seconds
NOTHING_NEW_SECONDS = 120
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of conversations, and the size of the worker's cache in results."""

    conversations: int = 1_000_000
    cache_results: int = 50_000

    @property
    def records(self) -> int:
        """The number of records: a search for each conversation, and the labels."""
        return self.conversations + (self.conversations - 1) // (LABEL_EVERY - 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample at one time.

    The worker reports ``records``, ``cached`` (conversations) and ``cache_results``; Linux reports
    its ``rss_bytes`` and ``cpu_seconds``; ``redis_bytes`` is ``used_memory``.
    """

    seconds: float
    records: int
    cached: int
    cache_results: int
    rss_bytes: int
    cpu_seconds: float
    redis_bytes: int


def run(*, quick: bool = False, conversations: int | None = None) -> str:
    """Measure, and return the report."""
    plan = Plan(conversations or (20_000 if quick else Plan().conversations))
    with tempfile.TemporaryDirectory(prefix="bounds-") as folder:
        samples = asyncio.run(_run(plan, Path(folder)))
    return report(plan, samples)


async def _run(plan: Plan, folder: Path) -> list[Sample]:
    async with (
        Kafka(folder / "kafka", jvm=JVM) as kafka,
        RedisServer(folder / "redis", fsync="everysec") as redis,
    ):
        return [sample async for sample in samples_of(plan, kafka, redis, folder)]


async def samples_of(
    plan: Plan, kafka: Kafka, redis: RedisServer, folder: Path, prefix: str = ""
) -> AsyncIterator[Sample]:
    """Run one worker over the plan's records, with samples until it has read them all.

    The topics' names begin with ``prefix``.
    """
    topics = {name: prefix + name for name in (EVENTS, LABELS)}
    for topic in topics.values():
        for name in (topic, f"{topic}.dlq"):
            await kafka.create_topic(name, PARTITIONS, {"retention.ms": "-1"})
    async with _worker(plan, kafka, redis, folder, tuple(topics.values())) as worker:
        sending = asyncio.create_task(_produce(plan, kafka.bootstrap_servers, topics))
        try:
            async for sample in _watch(plan, worker, redis):
                if sending.done():
                    sending.result()
                yield sample
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


def _worker(
    plan: Plan, kafka: Kafka, redis: RedisServer, folder: Path, topics: tuple[str, ...]
) -> ShippedWorker:
    """A worker process."""
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KAFKA__TOPICS": json.dumps(topics),
        "KAFKA__GROUP_ID": topics[0],
        "REDIS__URL": redis.url,
        "STATE__CACHE_RESULTS": str(plan.cache_results),
    }
    return ShippedWorker(folder / "worker", settings)


async def _watch(plan: Plan, worker: ShippedWorker, redis: RedisServer) -> AsyncIterator[Sample]:
    """A sample per second until all records are read and the worker has reported its cache."""
    began = time.monotonic()
    client = Redis.from_url(redis.url)
    try:
        async with aiohttp.ClientSession(timeout=SCRAPE) as session:
            last, moved = -1, began
            while last < plan.records or time.monotonic() < moved + SETTLE_SECONDS:
                if not worker.running:
                    raise ServerFailed(f"the worker ended:\n{worker.log_tail()}")
                sample = await _sample(worker, session, client, began)
                yield sample
                if sample.records > last:
                    last, moved = sample.records, time.monotonic()
                elif time.monotonic() - moved > NOTHING_NEW_SECONDS:
                    raise ServerFailed(f"nothing is read any more:\n{worker.log_tail()}")
                await asyncio.sleep(SAMPLE_SECONDS)
    finally:
        await client.aclose()


async def _sample(
    worker: ShippedWorker, session: aiohttp.ClientSession, redis: Redis, began: float
) -> Sample:
    text = await worker.scrape(session)
    used = usage(worker.pid)
    return Sample(
        seconds=time.monotonic() - began,
        records=int(total(text, "events_total")),
        cached=int(total(text, "open_conversations")),
        cache_results=int(total(text, "open_results")),
        rss_bytes=used.rss_bytes,
        cpu_seconds=used.cpu_seconds,
        redis_bytes=await redis_bytes(redis),
    )


# -- records ------------------------------------------------------------------------------------


def records(plan: Plan, start_s: float) -> Iterator[tuple[str, bytes, bytes, int]]:
    """(topic, key, value, timestamp in ms) of an hour from ``start_s``, in order."""
    random = Random("bounds")
    begun = 0
    for at in range(plan.records):
        now = start_s + 3600 * at / plan.records
        if at % LABEL_EVERY == LABEL_EVERY - 1:
            key = _name(random.randrange(begun))
            body = f'"type":"relevance_labels","labels":[{{"result_id":"r1","gain":{at % 5}}}]'
            topic = LABELS
        else:
            key, begun = _name(begun), begun + 1
            results = ",".join(_result(n + 1, random) for n in range(RESULTS))
            search = f'{{"search_id":"s1","results":[{results}]}}'
            agent = f"agent-{at % 8}"
            body = (
                f'"type":"search_iteration","agent":"{agent}","iteration":1,"searches":[{search}]'
            )
            topic = EVENTS
        head = f'"event_id":"e{at}","occurred_at":{now:.3f},"conversation_id":"{key}","turn":1'
        yield topic, key.encode(), f"{{{head},{body}}}".encode(), int(1000 * now)


def _name(number: int) -> str:
    return f"conversation-{number:08x}"


def _result(number: int, random: Random) -> str:
    doc = f"{random.getrandbits(48):012x}"
    return (
        f'{{"result_id":"r{number}","doc_id":"doc-{doc}","url":"https://files.example/{doc}",'
        f'"title":"Travel form {doc[:6]} for the year {doc[6:]}",'
        f'"snippet":"Since {doc} the rule is another one: the manager signs first."}}'
    )


async def _produce(plan: Plan, bootstrap: str, topics: dict[str, str]) -> None:
    """Send all records, at most as fast as Kafka accepts them."""
    start = time.time() - 4_000
    await send(
        bootstrap,
        (
            (topics[topic], key, value, timestamp_ms)
            for topic, key, value, timestamp_ms in records(plan, start)
        ),
    )


# -- the report ---------------------------------------------------------------------------------


def report(plan: Plan, samples: list[Sample]) -> str:
    """The figures of a run, and those of each tenth of it."""
    ends = [_first_sample(samples, plan.records * part // PARTS) for part in range(PARTS + 1)]
    parts = [(a, b) for a, b in pairwise(ends) if b.records > a.records]
    half = [sample for sample in samples if sample.records >= plan.records // 2]
    share = plan.conversations / plan.records
    made = [share * (b.records - a.records) for a, b in parts]
    figures = [
        Figure("worker's RSS, second half", [s.rss_bytes / MB for s in half], "MB"),
        Figure("RSS at the end less at half", [growth_bytes(plan, samples) / MB], "MB"),
        Figure("conversations in the cache, second half", [s.cached for s in half], ""),
        Figure(
            "weight of the cache, second half",
            [s.cache_results for s in half],
            "results",
            f"≤ {plan.cache_results:,}",
        ),
        Figure(
            "Redis a conversation",
            [(b.redis_bytes - a.redis_bytes) / n for (a, b), n in zip(parts, made, strict=True)],
            "B",
        ),
        Figure(
            "events/s a core",
            [(b.records - a.records) / (b.cpu_seconds - a.cpu_seconds) for a, b in parts],
            "",
        ),
        Figure(
            "events/s by the clock",
            [(b.records - a.records) / (b.seconds - a.seconds) for a, b in parts],
            "",
        ),
    ]
    rows = [("records", "seconds", "RSS MB", "open conversations", "open results", "Redis MB")]
    rows += [
        (
            number(s.records),
            number(s.seconds),
            number(s.rss_bytes / MB),
            number(s.cached),
            number(s.cache_results),
            number(s.redis_bytes / MB),
        )
        for s in ends
    ]
    head = (
        f"{plan.conversations:,} conversations of {RESULTS} results, {plan.records:,} records; "
        f"`state.cache_results` {plan.cache_results:,}; {len(samples)} samples\n"
    )
    title = "bounds: one worker, Kafka (4 partitions, 2 topics), Redis (AOF everysec)"
    return section(title, head, figures_table(figures), table(rows, right=range(6)))


def growth_bytes(plan: Plan, samples: list[Sample]) -> int:
    """The worker's RSS at the end, less what it was when half of the records were read."""
    return samples[-1].rss_bytes - _first_sample(samples, plan.records // 2).rss_bytes


def _first_sample(samples: list[Sample], records: int) -> Sample:
    """The first sample with at least this number of records."""
    return next(sample for sample in samples if sample.records >= records)
