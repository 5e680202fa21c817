"""Under floods of events a real worker keeps memory, state and series bounded, figures exact."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis

from benchmarks.bounds import MB, Plan, growth_bytes, samples_of
from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.core.engine.config import MAX_AGENTS, OTHER
from stream_metrics.core.events.limits import Limits
from stream_metrics.lab.traffic import TrafficRecord
from stream_metrics.lab.traffic.profile import Stream
from tests.services.live import LiveSystem, produce
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

CACHE_RESULTS = 3_000
Body = dict[str, Any]


@pytest.mark.long
async def test_memory_does_not_grow_with_the_conversations(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A worker keeps hundreds of 20,000 conversations in memory, and its memory stays flat.

    Without the cache's bound the second half would take some 90 MB.
    """
    plan = Plan(conversations=20_000, cache_results=CACHE_RESULTS)
    prefix = f"bounds-{os.getpid()}-"
    samples = [s async for s in samples_of(plan, kafka, redis_server, tmp_path, prefix)]

    assert max(sample.cache_results for sample in samples) <= CACHE_RESULTS
    assert 100 < samples[-1].cached < 1_000
    assert samples[-1].records == plan.records
    assert growth_bytes(plan, samples) < 20 * MB


class Sent:
    """Events of the last half hour, one per millisecond."""

    def __init__(self) -> None:
        self._number = 0
        self._start = time.time() - 1_800

    def record(self, kind: str, conversation: str, **body: Any) -> TrafficRecord:
        """The next event; labels go to their own topic."""
        self._number += 1
        at = self._start + self._number / 1000
        event = {
            "type": kind,
            "event_id": f"e{self._number}",
            "occurred_at": at,
            "conversation_id": conversation,
            "turn": 1,
            **body,
        }
        stream: Stream = "labels" if kind == "relevance_labels" else "events"
        value = json.dumps(event, separators=(",", ":")).encode()
        return TrafficRecord(stream, conversation.encode(), value, int(1000 * at), True)

    def search(self, conversation: str, iteration: int, *docs: str, **body: Any) -> TrafficRecord:
        """A search iteration; results are named by iteration and rank."""
        results = [
            {"result_id": f"r{iteration}.{rank}", "doc_id": doc} for rank, doc in enumerate(docs)
        ]
        searches = [{"search_id": f"s{iteration}", "results": results}]
        return self.record(
            "search_iteration", conversation, iteration=iteration, searches=searches, **body
        )

    def labels(self, conversation: str, names: Iterable[str], gain: int) -> TrafficRecord:
        """The same label for each of these results."""
        labels = [{"result_id": name, "gain": gain} for name in names]
        return self.record("relevance_labels", conversation, labels=labels)


async def read_by_a_worker(
    kafka: Kafka,
    redis: RedisServer,
    folder: Path,
    name: str,
    sent: Iterable[TrafficRecord],
) -> LiveSystem:
    """A system whose only worker, with a small cache, has read all of these records."""
    group = f"{name}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    produced = await produce(kafka, {"events": topics[0], "labels": topics[1]}, sent)
    cache = {"STREAM_METRICS_STATE__CACHE_RESULTS": str(CACHE_RESULTS)}
    system = LiveSystem(kafka, redis, folder / group, group, topics, produced, settings=cache)
    await system.start_workers(1)
    await system.reach(1.0)
    return system


async def rows_of_replay(system: LiveSystem) -> tuple[list[Body], Body, Body]:
    """The rows, equal in live state and replay, and the windows of both; the audit passes."""
    live, replayed = await system.compare(system.produced.last_us)
    rows = (live / "conversations.jsonl").read_bytes()
    assert rows == (replayed / "conversations.jsonl").read_bytes()
    assert await system.dead_letters() == set()
    code, said = await system.command("audit")
    assert code == 0, said
    windows = [json.loads((place / "windows.json").read_text()) for place in (live, replayed)]
    return [json.loads(line) for line in rows.splitlines()], *windows


async def widest_hash(redis: RedisServer, group: str) -> int:
    """The largest number of fields in a hash of the group."""
    async with Redis.from_url(redis.url) as client:
        return max(
            [
                await client.hlen(key)
                async for key in client.scan_iter(f"sm:{group}:*", count=1_000)
                if await client.type(key) == b"hash"
            ]
        )


@pytest.mark.long
async def test_a_conversation_with_two_thousand_results(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A turn stores results up to its limit, marks that there were more, and equals a replay's."""
    sent = Sent()
    limit = Limits().results_per_turn

    def records() -> Iterator[TrafficRecord]:
        for iteration in range(1, limit // 10 + 2):
            docs = [f"d{(7 * iteration + n) % 1_500}" for n in range(10)]
            yield sent.search("large", iteration, *docs)
            yield sent.labels("large", [f"r{iteration}.{n}" for n in range(10)], iteration % 4)

    system = await read_by_a_worker(kafka, redis_server, tmp_path, "large", records())

    (row,), live, replayed = await rows_of_replay(system)
    assert (row["results"], row["over_limit"]) == (limit, True)
    assert row["duplicates"] > 0
    assert live == replayed
    assert await system.workers[0].figure("streammetrics_open_results") <= CACHE_RESULTS
    assert await system.stop_workers() == [0]


@pytest.mark.long
async def test_a_flood_of_label_revisions(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """When a hundred results are labeled a thousand times, only the winning labels are stored."""
    sent = Sent()
    names = [f"r{iteration}.{n}" for iteration in range(1, 11) for n in range(10)]

    def records() -> Iterator[TrafficRecord]:
        for iteration in range(1, 11):
            yield sent.search("flood", iteration, *(f"d{iteration}.{n}" for n in range(10)))
        for revision in range(1_000):
            yield sent.labels("flood", names, revision % 5)

    system = await read_by_a_worker(kafka, redis_server, tmp_path, "revisions", records())

    (row,), live, replayed = await rows_of_replay(system)
    assert row["labelled"] == len(names)
    assert live == replayed
    revised = await system.workers[0].figure("streammetrics_labels_revised_total")
    assert revised == 999 * len(names)
    assert await widest_hash(redis_server, system.group) < 500
    assert await system.stop_workers() == [0]


@pytest.mark.long
async def test_a_flood_of_labels_without_searches(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Labels of conversations without searches make no row, and few per conversation are kept."""
    sent = Sent()
    waiting = Limits().waiting_labels

    def records() -> Iterator[TrafficRecord]:
        for number in range(5_000):
            yield sent.labels(f"nobody-{number}", ["r"], 3)
        for part in range(2 * waiting // 1_000):
            yield sent.labels("crowd", [f"r{part}.{n}" for n in range(1_000)], 3)
        yield sent.search("someone", 1, "d")

    system = await read_by_a_worker(kafka, redis_server, tmp_path, "nobody", records())

    (row,), live, replayed = await rows_of_replay(system)
    assert row["conversation_id"] == "someone"
    assert live == replayed
    worker = system.workers[0]
    assert await worker.figure("streammetrics_open_results") <= CACHE_RESULTS
    assert await worker.figure("streammetrics_labels_waiting_total") >= 5_000 + waiting
    assert await worker.figure("streammetrics_over_limit_total") == waiting
    assert await system.stop_workers() == [0]


@pytest.mark.long
async def test_a_flood_of_agents(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> None:
    """Ten thousand agents have series for fifty and ``other``, and every event is counted."""
    sent = Sent()
    count = 10_000
    records = (sent.search(f"c{n}", 1, "d", "d", agent=f"agent-{n}") for n in range(count))

    system = await read_by_a_worker(kafka, redis_server, tmp_path, "agents", records)

    rows, live, replayed = await rows_of_replay(system)
    assert len(rows) == count
    assert over_all_agents(live) == over_all_agents(replayed)
    worker = system.workers[0]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{worker.address}/metrics") as answer,
    ):
        lines = [line for line in (await answer.text()).splitlines() if line[:1] != "#"]
    named = [line for line in lines if line.startswith("streammetrics_window_results{")]
    agents = {line.partition('agent="')[2].partition('"')[0] for line in named}
    assert len(agents) == MAX_AGENTS + 1
    assert OTHER in agents
    assert len(lines) < 25_000
    assert await system.stop_workers() == [0]


def over_all_agents(document: Body) -> Counter[tuple[tuple[str, Any], ...]]:
    """The sums of ``windows.json`` over all agents."""
    totals: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for entry in document["sums"]:
        rest = {k: v for k, v in entry.items() if k not in ("agent", "value")}
        totals[tuple(sorted(rest.items()))] += entry["value"]
    return totals
