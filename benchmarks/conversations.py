"""Cost by the number of open conversations, waiting labels and agents.

State is filled with conversations of one search each. Then a worker reads a fixed number of
searches for random conversations, with a cache so small that nearly every one is loaded from Redis,
and again with the default cache.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from redis.asyncio import Redis

from benchmarks import model
from benchmarks.figures import Figure, figures_table, number, section, table
from benchmarks.group import Run, run_group, sizes
from benchmarks.servers import JVM, PARTITIONS, send, settled_redis_bytes
from benchmarks.workload import Plain
from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.core.events.record import Record

RESULTS = 3
AGENTS = 10
SMALL_CACHE, DEFAULT_CACHE = 1_000, 250_000
MIDDLE = 10_000  # conversations if another quantity is varied
LARGEST = 1_000_000  # with only one round, because filling takes minutes


@dataclass(frozen=True, slots=True)
class Case:
    """The state before the measured searches."""

    conversations: int
    waiting: int = 0
    agents: int = AGENTS

    @property
    def name(self) -> str:
        """The name in reports."""
        parts = [f"{self.conversations:,} conversations"]
        if self.waiting:
            parts.append(f"{self.waiting:,} labels waiting")
        if self.agents != AGENTS:
            parts.append(f"{self.agents} agent{'s' if self.agents > 1 else ''}")
        return ", ".join(parts)


@dataclass(slots=True)
class CaseRuns:
    """The measurements of a case: runs by the worker's cache, and bytes of Redis."""

    runs: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    redis_bytes: list[float] = field(default_factory=list)


def run(*, quick: bool = False, conversations: int | None = None, rounds: int | None = None) -> str:
    """Measure, and return the report; ``conversations`` is the largest number of open ones."""
    largest = conversations or (MIDDLE if quick else LARGEST)
    events = 6_000 if quick else 10_000  # more than a fetch: the first is warm-up
    return asyncio.run(_run(cases(largest), events, rounds or (1 if quick else 3)))


def cases(largest: int) -> list[Case]:
    """Powers of ten up to ``largest``, and at a middle size other labels and agents."""
    counts = [n for n in (1_000, 10_000, 100_000, 1_000_000) if n < largest]
    middle = min(MIDDLE, largest)
    return [
        *(Case(n) for n in (*counts, largest)),
        Case(middle, waiting=1_000),
        Case(middle, waiting=100_000),
        Case(middle, agents=1),
        Case(middle, agents=50),
    ]


async def _run(todo: Sequence[Case], events: int, rounds: int) -> str:
    found = {case: CaseRuns() for case in todo}
    with tempfile.TemporaryDirectory(prefix="conversations-") as name:
        folder = Path(name)
        async with (
            Kafka(folder / "kafka", jvm=JVM) as kafka,
            RedisServer(folder / "redis", fsync="everysec") as redis,
        ):
            for at in range(rounds):
                for case in todo:
                    if at > 0 and case.conversations >= LARGEST:
                        continue
                    await _measure(kafka, redis, case, events, at, found[case])
    return _report(found, events, rounds)


async def _measure(
    kafka: Kafka, redis: RedisServer, case: Case, events: int, at: int, seen: CaseRuns
) -> None:
    """Fill an empty Redis, then run once with each cache; the topic is deleted afterwards."""
    topic = f"{case.conversations}-{case.waiting}-{case.agents}-{at}"
    for name in (topic, f"{topic}.dlq"):
        await kafka.create_topic(name, PARTITIONS, {"retention.ms": "-1"})
    settings = {
        "KAFKA__TOPICS": json.dumps([topic]),
        "KAFKA__GROUP_ID": topic,
        "REDIS__URL": redis.url,
    }
    records = CaseRecords(case, at)
    async with Redis.from_url(redis.url) as client:
        await client.flushall()
        before = await settled_redis_bytes(client)
        await _read(kafka, redis, topic, settings, DEFAULT_CACHE, records.filling())
        seen.redis_bytes.append((await settled_redis_bytes(client) - before) / case.conversations)
    for cache in (SMALL_CACHE, DEFAULT_CACHE):
        done = await _read(kafka, redis, topic, settings, cache, records.drawn(events))
        seen.runs[cache].append(done)
    for name in (topic, f"{topic}.dlq"):
        await kafka.delete_topic(name)


async def _read(
    kafka: Kafka,
    redis: RedisServer,
    topic: str,
    settings: dict[str, str],
    cache: int,
    records: Iterator[Record],
) -> Run:
    """Send records, and let a worker with an empty cache read them."""
    read = await sizes(kafka.bootstrap_servers, [topic])
    await send(
        kafka.bootstrap_servers,
        ((topic, r.key or b"", r.value or b"", r.timestamp_ms or 0) for r in records),
    )
    left = await sizes(kafka.bootstrap_servers, [topic])
    left.subtract(read)
    return await run_group(kafka, [redis], {**settings, "STATE__CACHE_RESULTS": str(cache)}, left)


class CaseRecords:
    """The records of a case: each conversation's searches are iterations of one turn."""

    def __init__(self, case: Case, seed: int) -> None:
        self._case = case
        self._plain = Plain(seed)
        self._chance = Random(f"conversations/{seed}")
        self._iterations: Counter[int] = Counter()

    def filling(self) -> Iterator[Record]:
        """A search for each conversation, and waiting labels spread evenly among them."""
        case = self._case
        each = max(1, case.waiting // case.conversations)
        for serial in range(case.conversations):
            yield self._search(serial)
            if serial < case.waiting // each:
                yield self._plain.labels(_name(serial), range(900, 900 + each))

    def drawn(self, events: int) -> Iterator[Record]:
        """Searches for conversations drawn at random."""
        for _ in range(events):
            yield self._search(self._chance.randrange(self._case.conversations))

    def _search(self, serial: int) -> Record:
        self._iterations[serial] += 1
        iteration = self._iterations[serial]
        first = 1_000 + iteration * RESULTS
        results = [self._plain.result(first + n) for n in range(RESULTS)]
        agent = f"agent-{serial % self._case.agents}"
        return self._plain.search(_name(serial), iteration, results, agent=agent)


def _name(serial: int) -> str:
    return f"conversation-{serial:08x}"


# -- the report ---------------------------------------------------------------------------------


def _report(found: dict[Case, CaseRuns], events: int, rounds: int) -> str:
    head = (
        f"{events:,} searches of {RESULTS} results each, for conversations drawn at random from "
        f"those open, one worker, {PARTITIONS} partitions; a cache of {SMALL_CACHE:,} results, "
        f"which holds next to none of them, or of {DEFAULT_CACHE:,}; {rounds} rounds\n"
    )
    return section(
        "conversations: cost by how much is open",
        head,
        figures_table(_figures(found)),
        _explanations(found),
        _predictions(found),
    )


def _figures(found: dict[Case, CaseRuns]) -> list[Figure]:
    """Ratios to the case with the fewest conversations, or to the same case without variation."""
    figures = []
    smallest = next(iter(found))
    for cache in (SMALL_CACHE, DEFAULT_CACHE):
        for case, seen in found.items():
            runs = seen.runs[cache]
            what = f"{case.name}, cache of {cache:,}"
            figures.append(Figure(what, [1e6 / run.us for run in runs], "events/s a core"))
            plain = Case(case.conversations)
            base = smallest if case == plain else plain
            if case != base:
                pairs = zip(runs, found[base].runs[cache], strict=False)  # the largest: one round
                ratio = [first.us / run.us for run, first in pairs]
                figures.append(Figure(f"  ÷ {base.name}", ratio, "", "0.8 to 1.2"))
    return figures


def _explanations(found: dict[Case, CaseRuns]) -> str:
    """Medians of the quantities that explain the cost."""
    heads = ("events a batch", "conversations by event", "loaded by event", "Redis µs an event")
    rows: list[tuple[str, ...]] = [("medians", *heads)]
    for case, seen in found.items():
        for cache, runs in seen.runs.items():
            means = [(r.batch, r.touched, r.loaded, r.redis_us) for r in runs]
            cells = [number(median(column)) for column in zip(*means, strict=True)]
            rows.append((f"{case.name}, cache of {cache:,}", *cells))
    return table(rows, right=range(1, 5))


def _predictions(found: dict[Case, CaseRuns]) -> str:
    """Predictions with the constants of ``scaling``, which are not fitted to these runs."""
    rows = [("by the model's constants", "predicted", "measured", "error")]
    for case, seen in found.items():
        for cache, runs in seen.runs.items():
            batches = _batches(case, cache, runs[0].total)
            mix = model.Mix(1, RESULTS, 0, 0)
            of_cache = f"{case.name}, cache of {cache:,}"
            for what, said, measured in (
                ("CPU", model.worker_us(mix, batches), median(run.us for run in runs)),
                ("Redis", model.redis_us(mix, batches), median(run.redis_us for run in runs)),
            ):
                error = f"{said / measured - 1:+.0%}"
                name = f"{what} µs an event: {of_cache}"
                rows.append((name, number(said), number(measured), error))
        said = model.conversation_bytes(1, RESULTS, case.waiting / case.conversations)
        measured = median(seen.redis_bytes)
        name = f"Redis bytes a conversation: {case.name}"
        rows.append((name, number(said), number(measured), f"{said / measured - 1:+.0%}"))
    return table(rows, right=(1, 2, 3))


def _batches(case: Case, cache: int, events: int) -> model.Batches:
    """The batches of the searches, by the expected number of different conversations.

    The run with the default cache is the second one, and begins with an empty cache.
    """
    size = model.batch_catching_up([[events // PARTITIONS]] * PARTITIONS)
    touched = model.distinct(size, case.conversations / PARTITIONS) / size
    drawn = events / case.conversations  # in each run, of each conversation
    if cache == SMALL_CACHE:
        return model.Batches(size, touched, touched, RESULTS * (1 + drawn / 2))
    loaded = model.distinct(events, case.conversations) / events
    return model.Batches(size, touched, loaded, RESULTS * (1 + drawn))
