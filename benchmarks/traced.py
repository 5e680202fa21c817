"""The latency from the end of an agent's turn (its outermost span) to ``/metrics``.

All components are real: the agent of ``examples/langgraph`` with OpenInference, the OpenTelemetry
SDK with the variables of the guide, the Collector with ``deploy/otel/collector.yaml``, Kafka, the
bridge with default settings, a worker, and a scraper. The input topic has one partition, so that a
scrape that counts n records shows the first n turns, which gives the latency of each turn. Spans
and scrapes use the same clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from benchmarks.figures import number, section, table
from benchmarks.processes import SCRAPE, ShippedWorker, records_done
from benchmarks.ran import RAN, engine_of
from benchmarks.servers import DIGEST_KEY, JVM
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import ServerFailed, free_port
from deploy.local.servers import Collector, RedisServer
from deploy.local.stack import Command
from deploy.local.traces import (
    COLLECTOR_CONFIG,
    EVERY_TURN,
    TRACES_TOPIC,
    TRACES_TOPIC_CONFIG,
    agent_command,
    agent_environment,
)
from deploy.local.waiting import wait_until
from stream_metrics.core.telemetry.otlp.payloads import spans_of

INPUT = "search-iterations"
LABELS = "relevance-labels"
PARTITIONS = 4  # of the topic of traces
PAUSE_SECONDS = 0.15  # between two turns
INTERVAL_SECONDS = 0.1  # between two scrapes
STUCK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Turn:
    """When a turn ended, when its last span was in Kafka, and when a scrape showed it; seconds."""

    ended: float
    in_kafka: float
    visible: float


def run(*, quick: bool = False, records: int | None = None) -> str:
    """Measure ``records`` turns, and return the report."""
    return asyncio.run(_run(records or (60 if quick else 1_000)))


async def _run(turns: int) -> str:
    with tempfile.TemporaryDirectory(prefix="traced-") as name:
        folder = Path(name)
        async with (
            Kafka(folder / "kafka", jvm=JVM) as kafka,
            RedisServer(folder / "redis", fsync="everysec") as redis,
            aiohttp.ClientSession(timeout=SCRAPE) as session,
        ):
            for topic in (INPUT, LABELS, f"{INPUT}.dlq", f"{LABELS}.dlq"):
                await kafka.create_topic(topic)
            for topic in (TRACES_TOPIC, f"{TRACES_TOPIC}.dlq"):
                await kafka.create_topic(topic, PARTITIONS, TRACES_TOPIC_CONFIG)
            async with _pipeline(folder, kafka, redis) as (worker, collector):
                seen: list[tuple[float, int]] = []
                scraping = asyncio.create_task(_scrape(worker, session, seen))
                began = time.time()
                await _hold_turns(folder, collector, turns)
                spent = time.time() - began
                await _settled(kafka, seen, turns)
                scraping.cancel()
                await asyncio.gather(scraping, return_exceptions=True)
            traces = await _records(kafka, TRACES_TOPIC, PARTITIONS)
            found = _turns(traces, await _records(kafka, INPUT), seen)
    return _report(found, turns, spent)


@asynccontextmanager
async def _pipeline(
    folder: Path, kafka: Kafka, redis: RedisServer
) -> AsyncIterator[tuple[ShippedWorker, Collector]]:
    """The components between the agent and the scraper."""
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KAFKA__TOPICS": json.dumps([INPUT, LABELS]),
        "REDIS__URL": redis.url,
        **{name.removeprefix("STREAM_METRICS_"): value for name, value in EVERY_TURN.items()},
    }
    port = free_port()
    collector = Collector(
        folder / "collector", COLLECTOR_CONFIG, kafka.bootstrap_servers, topic=TRACES_TOPIC
    )
    async with (
        ShippedWorker(folder / "worker", settings) as worker,
        _bridge(folder / "bridge", settings, port),
        collector,
        aiohttp.ClientSession(timeout=SCRAPE) as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        RAN.note(engine_of(await answer.text()))
        yield worker, collector


def _bridge(folder: Path, settings: Mapping[str, str], port: int) -> Command:
    ours = {**settings, "STATE__DIGEST_KEY": DIGEST_KEY, "BRIDGE__PORT": str(port)}
    return Command(
        folder,
        [sys.executable, "-m", "stream_metrics", "bridge"],
        {f"STREAM_METRICS_{name}": value for name, value in ours.items()},
        f"http://127.0.0.1:{port}/readyz",
    )


async def _hold_turns(folder: Path, collector: Collector, turns: int) -> None:
    """Run the agent to its end, when it has sent all its spans."""
    command = [*agent_command(), "--pause", str(PAUSE_SECONDS), "--turns", str(turns)]
    async with Command(folder / "agent", command, agent_environment(collector.url)) as agent:
        await agent.ended(600 + turns)
        if agent.exit_code:
            raise ServerFailed(f"the agent ended:\n{agent.log_tail()}")


async def _scrape(
    worker: ShippedWorker, session: aiohttp.ClientSession, seen: list[tuple[float, int]]
) -> None:
    """Scrape until cancelled; append the time and the number of records of each answer."""
    while True:
        began = time.perf_counter()
        text = await worker.scrape(session)
        seen.append((time.time(), records_done(text)))
        await asyncio.sleep(max(0.0, INTERVAL_SECONDS - (time.perf_counter() - began)))


async def _settled(kafka: Kafka, seen: Sequence[tuple[float, int]], turns: int) -> None:
    """Return when every turn was interpreted and a scrape has counted all records."""

    async def interpreted() -> int:
        return len({json.loads(one.value)["turn"] for one in await _records(kafka, INPUT)})

    async def all_interpreted() -> bool:
        await asyncio.sleep(1.0)
        return await interpreted() >= turns

    await wait_until(
        all_interpreted, STUCK_SECONDS, f"the bridge has not sent all of {turns} turns"
    )
    produced = len(await _records(kafka, INPUT))
    await wait_until(
        lambda: seen[-1][1] >= produced, STUCK_SECONDS, "the worker has not counted all records"
    )


async def _records(kafka: Kafka, topic: str, partitions: int = 1) -> list[Any]:
    """All records of a topic, each partition's in its order."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        found: list[Any] = []
        while any([await consumer.position(place) < ends[place] for place in places]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += records
    return found


def _turns(
    traces: Sequence[Any], events: Sequence[Any], seen: Sequence[tuple[float, int]]
) -> list[Turn]:
    """The turns, by their number, which is the start of the outermost span in microseconds."""
    ended: dict[int, float] = {}
    in_kafka: dict[str, float] = {}
    number_of: dict[str, int] = {}
    for record in traces:
        for span in spans_of(record.value):
            last = in_kafka.get(span.trace_id, 0.0)
            in_kafka[span.trace_id] = max(last, record.timestamp / 1000)
            if not span.parent_id:
                number_of[span.trace_id] = span.start_ns // 1000
                ended[span.start_ns // 1000] = span.end_ns / 1e9
    arrived = {number_of[trace]: at for trace, at in in_kafka.items()}
    last_record = {json.loads(one.value)["turn"]: at for at, one in enumerate(events, 1)}
    found, scrapes = [], iter(seen)
    at, counted = next(scrapes)
    for turn, place in sorted(last_record.items(), key=lambda item: item[1]):
        while counted < place:
            at, counted = next(scrapes)
        found.append(Turn(ended[turn], arrived[turn], at))
    return found


def _report(found: Sequence[Turn], turns: int, spent: float) -> str:
    measured = (
        ("in Kafka", [one.in_kafka - one.ended for one in found], ""),
        ("visible on /metrics", [one.visible - one.ended for one in found], "p99 ≤ 15"),
    )
    rows = [
        (what, *(number(float(np.percentile(values, p))) for p in (50, 99, 100)), "s", goal)
        for what, values, goal in measured
    ]
    head = (
        f"n = {len(found)} of {turns} turns of one agent, {turns / spent:.1f} a second; "
        "OTEL_BSP_SCHEDULE_DELAY 1 s, bridge.settle 10 s, a scrape every "
        f"{1000 * INTERVAL_SECONDS:.0f} ms\n"
    )
    title = "traced: from the end of a turn's outermost span to /metrics"
    return section(title, head, table([("", "p50", "p99", "max", "", "goal"), *rows], (1, 2, 3)))
