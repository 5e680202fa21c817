"""Decompression bombs: memory stays bounded, and no record is skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.ownership.generations import state_in_force
from tests.helpers import wait_until
from tests.services.live import LiveSystem, Worker, produce
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

BOMB_BYTES = 200 << 20
USUAL_BYTES = 128 << 20  # beyond what the worker has at its start
RAISED = {"STREAM_METRICS_KAFKA__MAX_BATCH_BYTES": str(2 * BOMB_BYTES)}


async def drop(kafka: Kafka, topic: str, partition: int, codec: str) -> int:
    """Send one compressed record of zeros; returns its offset."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        compression_type=codec,
        max_request_size=2 * BOMB_BYTES,
        max_batch_size=2 * BOMB_BYTES,
        request_timeout_ms=120_000,
    )
    await producer.start()
    try:
        sent = await producer.send_and_wait(
            topic, b"\0" * BOMB_BYTES, key=b"c-bomb", partition=partition
        )
    finally:
        await producer.stop()
    return int(sent.offset)


def peak_bytes(worker: Worker) -> int:
    """The peak memory of the process."""
    lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


async def positions(system: LiveSystem) -> dict[tuple[str, int], int]:
    """The stored offsets, by topic and partition."""
    store = connect(RedisOptions(url=system.redis.url, namespace=system.group))
    try:
        state = await state_in_force(store)
        states = {number: await state.describe(number) for number in await state.partitions()}
    finally:
        await store.close()
    return {
        (topic, number): position.offset
        for number, state in states.items()
        for topic, position in state.positions.items()
    }


@pytest.mark.long
async def test_bombs_halt_only_their_partitions(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Two partitions read a batch above the limit and halt with its offset; the others continue,
    and memory stays bounded. With a higher limit all is read, and the bombs are dead letters."""
    group = f"bombs-{os.getpid()}"
    topics = await new_topics(kafka, group)
    streams = {"events": topics[0], "labels": topics[1]}
    before = await produce(kafka, streams, generate(TrafficProfile(seed=4, conversations=60)))
    bombs = {
        (topics[0], number): await drop(kafka, topics[0], number, codec)
        for number, codec in enumerate(("zstd", "gzip"))
    }
    after = await produce(kafka, streams, generate(TrafficProfile(seed=5, conversations=60)))
    ends = {**before.ends, **after.ends}
    system = LiveSystem(kafka, redis_server, tmp_path / group, group, topics, after)

    async def read(expected: dict[tuple[str, int], int]) -> bool:
        found = await positions(system)
        return all(found.get(place) == offset for place, offset in expected.items())

    async def told() -> bool:
        reasons = (await worker.readyz())[1].get("reasons", {})
        return all(
            f"offset {offset} of {topic} [{number}]" in reasons.get(f"partition-{number}", "")
            and "kafka.max_batch_bytes" in reasons[f"partition-{number}"]
            for (topic, number), offset in bombs.items()
        )

    await system.start_workers(1)
    worker = system.workers[0]
    await wait_until(worker.pages, 60, worker.log_tail)
    at_start = peak_bytes(worker)
    halted = {place: end for place, end in ends.items() if place[1] > 1} | bombs
    await wait_until(lambda: read(halted), 120, worker.log_tail)
    await wait_until(told, 60, worker.log_tail)
    status, why = await worker.readyz()
    peak = peak_bytes(worker)
    await system.stop_workers()

    assert status == 200, "a held partition must not stop a roll-out"
    assert set(why["reasons"]) == {"partition-0", "partition-1"}
    assert peak - at_start < USUAL_BYTES

    system.settings = RAISED
    system.workers.clear()
    await system.start_workers(1)
    await wait_until(lambda: read(ends), 120, system.workers[0].log_tail)
    unbounded = peak_bytes(system.workers[0])
    print(
        f"peak of memory in MiB: {at_start >> 20} at start, {peak >> 20} bounded, "
        f"{unbounded >> 20} not"
    )
    await system.stop_workers()

    assert unbounded - at_start > BOMB_BYTES, "these were bombs"
    letters = await system.dead_letters()
    assert {(topic, number, offset) for (topic, number), offset in bombs.items()} <= letters
