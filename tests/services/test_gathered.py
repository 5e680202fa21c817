"""Evidence of two workers: told once for the group, and by the other after kill -9."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import TrafficRecord
from tests.exposition import families_of
from tests.gathered import Event, of_the_log, searches, values
from tests.helpers import wait_until
from tests.services.live import LiveSystem, Worker, produce
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

MINUTES = 220  # usual after three hours

Told = tuple[int, dict[tuple[str, str], Any]]  # a minute; by agent and figure, what is exported


async def told(worker: Worker) -> Told | None:
    """What a worker exports of evidence; None if it does not."""
    if not await worker.pages():
        return None
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
        session.get(f"http://{worker.address}/metrics") as answer,
    ):
        families = {family.name: family for family in families_of(await answer.text())}
    of_evidence, ratios, until = (
        families[f"streammetrics_{name}"].samples
        for name in ("evidence", "arrived_ratio", "evidence_timestamp_seconds")
    )
    if not until:
        assert not of_evidence
        assert not ratios
        return None
    by_shift: dict[tuple[str, str], dict[str, float]] = {}
    for sample in of_evidence:
        key = sample.labels["agent"], sample.labels["figure"]
        by_shift.setdefault(key, {})[sample.labels["shift"]] = sample.value
    found = {
        key: ((by_shift[key]["small"], by_shift[key]["large"]), sample.value)
        for sample in ratios
        for key in [(sample.labels["agent"], sample.labels["figure"])]
    }
    assert len(found) == len(by_shift)
    return round(until[0].value / 60) - 1, found


async def only_teller(workers: list[Worker], events: list[Event], until_minute: int) -> Worker:
    """The worker that tells of the whole log; fails if two tell, or it is not what is in it.

    What was told while the log was still being read holds until the minute after it.
    """
    found: list[tuple[Worker, Told]] = []

    async def tells() -> bool:
        all_told = [(worker, await told(worker)) for worker in workers]
        found[:] = [(worker, one) for worker, one in all_told if one is not None]
        return any(
            minute >= until_minute and exported == values(of_the_log(events, minute))
            for _, (minute, exported) in found
        )

    await wait_until(tells, 180, lambda: f"told: {found}\n{workers[0].log_tail()}")
    [(worker, (_, exported))] = found
    assert exported["first", "srr"][0][1] > 1 > exported["second", "srr"][0][0]
    return worker


async def test_evidence_is_told_once_in_a_group_and_survives_its_worker(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Both times it is that of all records, to the last digit; nothing is in a worker alone."""
    group = f"gathered-{os.getpid()}"
    topics = await new_topics(kafka, group)
    last = int(time.time()) // 60 - 1
    events = list(searches(last - MINUTES + 1, MINUTES))
    records = (
        TrafficRecord(
            "events",
            event["conversation_id"].encode(),
            json.dumps(event).encode(),
            1_000 * event["occurred_at"],
            True,
        )
        for event in events
    )
    produced = await produce(kafka, {"events": topics[0], "labels": topics[1]}, records)
    system = LiveSystem(kafka, redis_server, tmp_path, group, topics, produced)
    await system.start_workers(2)
    workers = system.workers

    async def halves() -> bool:
        return [await worker.owned() for worker in workers] == [2, 2]

    await wait_until(halves, 180, lambda: f"not two partitions each:\n{workers[0].log_tail()}")
    await system.reach(1.0)
    teller = await only_teller(workers, events, last)

    teller.kill9()
    [other] = [worker for worker in workers if worker is not teller]

    assert await only_teller([other], events, last) is other
    assert await other.stop() == 0
