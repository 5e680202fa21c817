"""CPU per event of 1, 2 and 4 workers, over 4 to 64 partitions, with Redis alone and in a Cluster.

Runs of other traffic (``SHAPES``) give the constants of the capacity model (``model.py``). Its
predictions are then compared with the measurements of ``CASES``, to which it was not fitted.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from redis.asyncio import Redis

from benchmarks import model
from benchmarks.figures import Figure, figures_table, number, section, table
from benchmarks.fitting import Observed, byte_constants, cpu_constants
from benchmarks.group import JOIN_TOGETHER, Run, run_group, sizes
from benchmarks.machine import commit
from benchmarks.servers import JVM, create_topics, produce
from benchmarks.workload import TOPICS, Traffic, partition_for, traffic
from deploy.local.kafka.cluster import Kafka
from deploy.local.redis_cluster import RedisCluster
from deploy.local.servers import RedisServer

BASE_PARTITIONS = 8
LARGE_CACHE = 1_000_000  # results; holds all of a run
FEW, SOME = 20, 100  # records per batch, for runs that show the cost of a batch

ONE_SEARCH = {
    "per_conversation": 1,
    "turns": (1, 1),
    "iterations": (1, 1),
    "searches_per_iteration": (1, 1),
}
TRAFFIC: dict[str, dict[str, Any]] = {
    "default": {},
    "thin": {"results_per_search": 4},
    "thick": {"results_per_search": 15},
    "unlabelled-thin": {"results_per_search": 4, "labels": False},
    "unlabelled-thick": {"results_per_search": 15, "labels": False},
    # all conversations at one time, of the usual length, or of one search and its labels
    "burst": {"results_per_search": 4, "duration_seconds": 60},
    "short": {"results_per_search": 4, "duration_seconds": 60, **ONE_SEARCH},
    "unlabelled-burst": {"results_per_search": 4, "duration_seconds": 60, "labels": False},
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A run that the constants are fitted on; none is among the cases."""

    name: str
    traffic: str
    batch_records: int = model.BATCH_RECORDS
    cache_results: int = LARGE_CACHE


SHAPES = (
    Shape("4 results a search", "thin"),
    Shape("15 results a search", "thick"),
    Shape("4 results a search, no labels", "unlabelled-thin"),
    Shape("15 results a search, no labels", "unlabelled-thick"),
    Shape("4 results a search, small batches", "thin", FEW),
    Shape("4 results a search, middling batches", "thin", SOME),
    Shape("conversations all at once, small batches", "burst", FEW),
    Shape("the same, no cache", "burst", FEW, cache_results=0),
    Shape("the same, no cache, no labels", "unlabelled-burst", FEW, cache_results=0),
    Shape("the same, no cache, large batches", "burst", cache_results=0),
    Shape("short ones all at once, no cache", "short", FEW, cache_results=0),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration in which the default traffic is read."""

    name: str
    workers: int = 1
    partitions: int = BASE_PARTITIONS
    cluster: bool = False


CASES = (
    Case("1 worker, 8 partitions"),
    Case("2 workers, 8 partitions", workers=2),
    Case("4 workers, 8 partitions", workers=4),
    Case("1 worker, 4 partitions", partitions=4),
    Case("1 worker, 16 partitions", partitions=16),
    Case("1 worker, 64 partitions", partitions=64),
    Case("1 worker, Redis Cluster of 3", cluster=True),
)
BASE = CASES[0]
DEFAULT = Shape("default traffic", "default")


@dataclass(frozen=True, slots=True)
class Bench:
    """The servers, and the produced records."""

    kafka: Kafka
    redis: RedisServer
    cluster: RedisCluster
    sent: dict[str, Traffic]

    async def run(self, case: Case, at: int, shape: Shape = DEFAULT) -> Run:
        """One run, into an empty Redis."""
        prefix = f"{shape.traffic}-{case.partitions}-"
        topics = [prefix + topic for topic in TOPICS.values()]
        servers = self.cluster.servers if case.cluster else [self.redis]
        for server in servers:
            async with Redis.from_url(server.url) as client:
                await client.flushall()
        settings = {
            "KAFKA__TOPICS": json.dumps(topics),
            "KAFKA__GROUP_ID": f"{case.name}, {shape.name}, {at}",
            "REDIS__URL": self.cluster.url if case.cluster else self.redis.url,
            "REDIS__CLUSTER": json.dumps(case.cluster),
            "REDIS__NAMESPACE": "scaling",
            "STATE__BATCH_RECORDS": str(shape.batch_records),
            "STATE__CACHE_RESULTS": str(shape.cache_results),
        }
        left = await sizes(self.kafka.bootstrap_servers, topics)
        return await run_group(self.kafka, servers, settings, left, case.workers)


def run(*, quick: bool = False, records: int | None = None, rounds: int | None = None) -> str:
    """Measure, and return the report; a whole run also stores the model's constants."""
    report, fitted = asyncio.run(
        _run(records or (6_000 if quick else 30_000), rounds or (1 if quick else 3))
    )
    if not (quick or records or rounds):
        model.store_constants(fitted)
    return report


async def _run(records: int, rounds: int) -> tuple[str, model.Constants]:
    shapes: dict[Shape, list[Run]] = defaultdict(list)
    cases: dict[Case, list[Run]] = defaultdict(list)
    async with _bench(records) as bench:
        await bench.run(BASE, -1)  # the broker's page cache and the JVM warm up
        for at in range(rounds):
            for shape in SHAPES:
                shapes[shape].append(await bench.run(BASE, at, shape))
            for case in CASES:
                cases[case].append(await bench.run(case, at))
        async with Redis.from_url(bench.redis.url) as client:
            held = await byte_constants(bench.redis, client, min(1_000, records // 20))
    fitted = _fitted(bench.sent, shapes, cases, held)
    return _report(bench.sent, rounds, shapes, cases, fitted), fitted


@asynccontextmanager
async def _bench(records: int) -> AsyncIterator[Bench]:
    """All servers, and all topics filled."""
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        async with (
            Kafka(folder / "kafka", jvm=JVM, properties=JOIN_TOGETHER) as kafka,
            RedisServer(folder / "redis", fsync="everysec") as redis,
            RedisCluster(folder / "cluster", fsync="everysec") as cluster,
        ):
            bench = Bench(kafka, redis, cluster, {})
            for kind, changes in TRAFFIC.items():
                sent = bench.sent[kind] = traffic(records, **changes)
                counts = (
                    {case.partitions for case in CASES} if kind == "default" else {BASE.partitions}
                )
                for count in sorted(counts):
                    await create_topics(kafka, count, f"{kind}-{count}-")
                    await produce(kafka.bootstrap_servers, sent, f"{kind}-{count}-")
            yield bench


def mix_of(sent: Traffic) -> model.Mix:
    """The average content of a record."""
    searching = results = labels = 0
    for record in sent.records:
        try:
            event = msgspec.json.decode(record.value)
            searching += "searches" in event
            results += sum(len(search.get("results", ())) for search in event.get("searches", ()))
            labels += len(event.get("labels", ()))
        except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, TypeError):
            continue  # a record that is meant to be rejected
    total = len(sent.records)
    return model.Mix(searching / total, results / total, labels / total, sent.bytes / total)


def batches_of(sent: Traffic, partitions: int) -> model.Batches:
    """How the records come together when they are caught up with, by the model."""
    logs: dict[int, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for record in sent.records:
        key = record.key or b""
        logs[partition_for(key, partitions)][record.stream].append(key)
    events = model.batch_catching_up([[*map(len, topics.values())] for topics in logs.values()])
    size = round(events)
    touched = sum(
        len(set(log[first : first + size]))
        for topics in logs.values()
        for log in topics.values()
        for first in range(0, len(log), size)
    )
    known = len({key for topics in logs.values() for log in topics.values() for key in log})
    return model.Batches(events, touched / len(sent.records), known / len(sent.records))


def mean_loaded_results(sent: Traffic, shape: Shape) -> float:
    """The average number of results of a loaded conversation.

    Without a cache a batch loads all conversations that it touches, otherwise only new ones, which
    have no results. Labels are not counted: reading ten of them costs less than reading a result.
    """
    if shape.cache_results:
        return 0.0
    held: Counter[bytes] = Counter()
    found: list[int] = []
    batches: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for record in sent.records:
        key = record.key or b""
        batch = batches[record.stream, partition_for(key, BASE.partitions)]
        if key not in batch:
            found.append(held[key])
        batch.append(key)
        if len(batch) == shape.batch_records:
            batch.clear()
        held[key] += record.value.count(b'"result_id"') if record.stream == "events" else 0
    return sum(found) / len(found)


def _median(runs: Sequence[Run], what: str) -> float:
    return float(median(getattr(run, what) for run in runs))


def _fitted(
    sent: Mapping[str, Traffic],
    shapes: Mapping[Shape, Sequence[Run]],
    cases: Mapping[Case, Sequence[Run]],
    held: Mapping[str, float],
) -> model.Constants:
    """The model's constants by this invocation; of the cases only broker and starts are in it."""
    rows = [
        Observed(
            mix_of(sent[shape.traffic]),
            model.Batches(
                _median(runs, "batch"),
                _median(runs, "touched"),
                _median(runs, "loaded"),
                mean_loaded_results(sent[shape.traffic], shape),
            ),
            _median(runs, "us"),
            _median(runs, "redis_us"),
        )
        for shape, runs in shapes.items()
    ]
    few, many = (next(c for c in cases if c.partitions == n) for n in (8, 64))
    more = _median(cases[many], "start_cpu") - _median(cases[few], "start_cpu")
    return model.Constants(
        run=f"scaling at commit {commit()}",
        **cpu_constants(rows),
        broker_us=_median(cases[BASE], "broker_us"),
        take_over_ms=max(0.0, 1000 * more / (many.partitions - few.partitions)),
        **held,
    )


# -- the report ---------------------------------------------------------------------------------


def _report(
    sent: Mapping[str, Traffic],
    rounds: int,
    shapes: Mapping[Shape, Sequence[Run]],
    cases: Mapping[Case, Sequence[Run]],
    fitted: model.Constants,
) -> str:
    default = sent["default"]
    mix = mix_of(default)
    head = (
        f"{len(default.records):,} records of {mix.results:.2f} results, {mix.labels:.2f} labels "
        f"and {mix.bytes:,.0f} B each; {rounds} interleaved rounds; the first tenth of the records "
        "is the workers' start, and not in their CPU an event\n"
    )
    fits = [Figure(f"fit: {s.name}", [run.us for run in runs], "µs") for s, runs in shapes.items()]
    fits += [
        Figure(f"fit, Redis: {s.name}", [run.redis_us for run in runs], "µs")
        for s, runs in shapes.items()
    ]
    return section(
        "scaling: a group of workers over full topics, to lag 0",
        head,
        figures_table(_figures(cases)),
        _explanations(cases),
        figures_table(fits),
        _constants(fitted),
        _predictions(default, cases, fitted),
    )


def _figures(cases: Mapping[Case, Sequence[Run]]) -> list[Figure]:
    figures = []
    for case, runs in cases.items():
        figures.append(Figure(f"CPU an event, {case.name}", [run.us for run in runs], "µs"))
    base = cases[BASE]
    for case, runs in cases.items():
        ratio = [run.us / first.us for run, first in zip(runs, base, strict=True)]
        goal = "0.9 to 1.1" if case.workers == 2 else ""
        if case is not BASE:
            figures.append(Figure(f"the same ÷ that of {BASE.name}, {case.name}", ratio, "", goal))
    return figures


def _explanations(cases: Mapping[Case, Sequence[Run]]) -> str:
    """Medians of further measurements."""
    rows: list[tuple[str, ...]] = [
        (
            "medians",
            "events/s by the clock",
            "events a batch",
            "start, CPU s a worker",
            "Redis µs an event",
            "broker µs an event",
            "peak RSS MB",
        )
    ]
    for case, runs in cases.items():
        seen = [
            _median(runs, "by_clock"),
            _median(runs, "batch"),
            _median(runs, "start_cpu") / case.workers,
            _median(runs, "redis_us"),
            _median(runs, "broker_us"),
            _median(runs, "rss_bytes") / 1e6,
        ]
        rows.append((case.name, *map(number, seen)))
    return table(rows, right=range(1, 7))


def _constants(fitted: model.Constants) -> str:
    rows = [("constants of the model", "this invocation", "kept before", "")]
    for name, what in model.NAMES.items():
        ours, kept = getattr(fitted, name), getattr(model.MEASURED, name)
        rows.append((name, number(ours), number(kept), what))
    return table(rows, right=(1, 2))


def _predictions(
    sent: Traffic, cases: Mapping[Case, Sequence[Run]], fitted: model.Constants
) -> str:
    """From the constants of this invocation; how batches come together is predicted, too."""
    rows = [("predicted against measured", "predicted", "measured", "error")]
    mix = mix_of(sent)
    for case, runs in cases.items():
        batches = batches_of(sent, case.partitions)
        pairs = [
            ("CPU µs an event", model.worker_us(mix, batches, fitted), _median(runs, "us")),
            ("Redis µs an event", model.redis_us(mix, batches, fitted), _median(runs, "redis_us")),
            ("events a batch", batches.events, _median(runs, "batch")),
            ("conversations a batch, by event", batches.touched, _median(runs, "touched")),
        ]
        for what, said, found in pairs:
            error = f"{said / found - 1:+.0%}"
            rows.append((f"{case.name}: {what}", number(said), number(found), error))
    return table(rows, right=(1, 2, 3))
