"""The live path on real servers loses nothing and counts nothing twice, despite failures."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Prometheus, RedisServer
from deploy.local.stack import RETRIEVAL
from stream_metrics.lab.traffic import TrafficProfile, generate
from tests.helpers import wait_until
from tests.services.live import PARTITIONS, LiveSystem, Worker, produce, unanswered_calls

pytestmark = pytest.mark.service

CONVERSATIONS = 5_000
SEARCHES_A_CONVERSATION = 4
AWAY_SECONDS = 20


def profile(seed: int, conversations: int = CONVERSATIONS) -> TrafficProfile:
    """Traffic of the last half hour, with late, repeated and invalid events."""
    return TrafficProfile(
        seed=seed,
        conversations=conversations,
        start=int(time.time()) - 1_800,
        duration_seconds=1_200,
        turns=(1, 2),
        iterations=(1, 6),
        results_per_search=4,
        documents=400,
    )


async def new_topics(kafka: Kafka, group: str, *, dead_letters: bool = True) -> tuple[str, str]:
    """The input topics of a group, by default with their dead-letter topics."""
    topics = (f"{group}-events", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, PARTITIONS)
        if dead_letters:
            await kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    return topics


async def topics_with_traffic(
    kafka: Kafka,
    redis: RedisServer,
    folder: Path,
    group: str,
    seed: int,
    conversations: int = CONVERSATIONS,
) -> LiveSystem:
    """A system whose topics have all the traffic, without workers."""
    topics = await new_topics(kafka, group)
    produced = await produce(
        kafka, {"events": topics[0], "labels": topics[1]}, generate(profile(seed, conversations))
    )
    assert produced.searches >= SEARCHES_A_CONVERSATION * conversations
    return LiveSystem(kafka, redis, folder / group, group, topics, produced)


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A separate Redis, which keeps acknowledged writes."""
    async with RedisServer(tmp_path / "redis") as server:
        yield server


async def same_as_replay(system: LiveSystem, conversations: int = CONVERSATIONS) -> None:
    """The exported live state equals a replay of the same records, byte for byte."""
    live, replayed = await system.compare(system.produced.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
    assert len((live / "conversations.jsonl").read_bytes().splitlines()) > conversations * 0.99
    assert await system.dead_letters() == system.produced.broken


async def scraped_sums(
    prometheus: Prometheus, window: str
) -> dict[tuple[tuple[str, str], ...], int]:
    """Every window gauge of one window, summed over the workers, without zeros."""
    gauges = f'{{__name__=~"streammetrics_window_.+",window="{window}"}}'
    named = f'label_replace({gauges}, "name", "$1", "__name__", "streammetrics_window_(.+)")'
    found = await prometheus.query(f"sum without (instance, job) ({named})")
    return {
        tuple(sorted(series["metric"].items())): int(float(series["value"][1]))
        for series in found
        if float(series["value"][1])
    }


def exported_sums(directory: Path, window: str) -> dict[tuple[tuple[str, str], ...], int]:
    """The same from ``windows.json``."""
    document = json.loads((directory / "windows.json").read_text())
    return {
        tuple(sorted((k, v) for k, v in entry.items() if k != "value")): entry["value"]
        for entry in document["sums"]
        if entry["window"] == window
    }


async def test_a_killed_worker_has_no_effect_on_figures(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """With one of two workers killed midway, state, gauges and dead letters equal a replay's, with
    ranked metrics, too."""
    some = CONVERSATIONS // 4
    system = await topics_with_traffic(kafka, redis, tmp_path, f"kill-{os.getpid()}", 1, some)
    system.settings["STREAM_METRICS_METRICS__RETRIEVAL"] = RETRIEVAL
    await system.start_workers(2)
    await system.reach(0.15)
    victim = system.workers[0]
    victim.kill9()
    read = await system.read()
    assert 0 < read < system.total, "the kill must hit midway"
    await victim.start()
    await system.reach(1.0)

    await same_as_replay(system, some)

    jobs = {"stream-metrics": [worker.address for worker in system.workers]}
    async with Prometheus(tmp_path / "prometheus", jobs) as prometheus:
        expected = exported_sums(tmp_path / system.group / f"{system.group}-live", "24h")
        await wait_until(
            lambda: both_scraped(prometheus), 30, "Prometheus has not scraped both workers"
        )
        assert await scraped_sums(prometheus, "24h") == expected
    assert {"ndcg@10", "mrr"} <= {dict(labels).get("metric") for labels in expected}
    assert await system.stop_workers() == [0, 0]


async def both_scraped(prometheus: Prometheus) -> bool:
    """Whether the gauges of both workers were scraped."""
    found = await prometheus.query("count(streammetrics_assigned_partitions)")
    return bool(found) and found[0]["value"][1] == "2"


@pytest.mark.long
async def test_a_restarted_redis_has_no_effect_on_figures(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """With Redis restarted midway, state and dead letters equal a replay's."""
    system = await topics_with_traffic(kafka, redis, tmp_path, f"restart-{os.getpid()}", seed=2)
    await system.start_workers(2)
    assert await system.reach(0.3) < system.total, "the restart must hit midway"
    await redis.restart()
    await system.reach(1.0)

    await same_as_replay(system)
    assert await system.stop_workers() == [0, 0]


@pytest.mark.long
async def test_workers_wait_for_an_unavailable_redis(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """While Redis is unavailable `/readyz` reports it; afterwards the state equals a replay's."""
    system = await topics_with_traffic(kafka, redis, tmp_path, f"away-{os.getpid()}", seed=3)
    await system.start_workers(2)
    assert await system.reach(0.3) < system.total, "Redis must go away midway"
    left = time.monotonic()
    await redis.stop()

    async def say_why() -> bool:
        answers = [await worker.readyz() for worker in system.workers]
        return all(s == 503 and "redis" in body.get("reasons", {}) for s, body in answers)

    await wait_until(say_why, AWAY_SECONDS, "the workers do not say that Redis is away")
    await wait_until(
        lambda: time.monotonic() - left >= AWAY_SECONDS, AWAY_SECONDS + 1, "time stands still"
    )
    assert await say_why()
    await redis.start()
    await system.reach(1.0)

    async def ready() -> bool:
        return all([(await worker.readyz())[0] == 200 for worker in system.workers])

    await wait_until(ready, 30, "the workers are not ready again")
    await same_as_replay(system)
    assert await system.stop_workers() == [0, 0]


async def test_topics_with_unequal_partitions_are_refused(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """With another partition count of the label topic the worker exits and says how to fix it."""
    group = f"unequal-{os.getpid()}"
    topics = (f"{group}-events", f"{group}-labels")
    await kafka.create_topic(topics[0], PARTITIONS)
    await kafka.create_topic(topics[1], PARTITIONS - 1)
    system = await empty_system(kafka, redis, tmp_path, group, topics)
    await system.start_workers(1)

    await system.workers[0].ended(30)

    assert system.workers[0].exit_code == 2
    said = system.workers[0].log_tail()
    assert "different partition counts" in said
    assert f"{PARTITIONS} partitions" in said


async def empty_system(
    kafka: Kafka, redis: RedisServer, folder: Path, group: str, topics: tuple[str, ...]
) -> LiveSystem:
    """A system without traffic."""
    produced = await produce(kafka, {}, ())
    return LiveSystem(kafka, redis, folder / group, group, topics, produced)


class FaustWorker(Worker):
    """The worker, started by Faust's command."""

    def command(self) -> list[str]:
        """The command in the README."""
        return [sys.executable, "-m", "faust", "-A", "stream_metrics.app", "worker"]


async def test_the_faust_command_starts_the_worker(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """`faust -A stream_metrics.app worker` becomes ready, and exits with 0 on SIGTERM."""
    group = f"faust-{os.getpid()}"
    topics = await new_topics(kafka, group, dead_letters=False)
    system = await empty_system(kafka, redis, tmp_path, group, topics)
    worker = FaustWorker(tmp_path, "faust-worker", system.environment)

    await worker.start()

    assert await worker.stop() == 0


def few(seed: int) -> TrafficProfile:
    """Little traffic, with some invalid records."""
    return replace(profile(seed), conversations=60, invalid=0.05)


async def test_workers_wait_for_missing_dead_letter_topics(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """`/readyz` soon reports missing dead-letter topics; once they exist, nothing is lost."""
    group = f"letters-{os.getpid()}"
    topics = await new_topics(kafka, group, dead_letters=False)
    produced = await produce(
        kafka, {"events": topics[0], "labels": topics[1]}, generate(few(seed=4))
    )
    system = LiveSystem(kafka, redis, tmp_path / group, group, topics, produced)
    await system.start_workers(1)
    worker = system.workers[0]

    async def says_why() -> bool:
        status, body = await worker.readyz()
        return status == 503 and "dead_letters" in body.get("reasons", {})

    await wait_until(says_why, 20, "the worker does not say that it cannot write dead letters")
    for topic in topics:
        await kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    await system.reach(1.0)

    await wait_until(worker.ready, 20, "the worker is not ready again")
    live, replayed = await system.compare(produced.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes()
    assert await system.dead_letters() == produced.broken
    assert await system.stop_workers() == [0]


async def test_a_record_with_a_huge_key_does_not_stop_the_partition(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """A record whose key exceeds the topic's limit uncompressed becomes a dead letter, too."""
    group = f"key-{os.getpid()}"
    topics = await new_topics(kafka, group)
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        compression_type="gzip",
        max_request_size=9_000_000,
    )
    await producer.start()
    try:
        place = await producer.send_and_wait(topics[0], b"{}", key=b"k" * 3_000_000)
    finally:
        await producer.stop()
    system = await empty_system(kafka, redis, tmp_path, group, topics)
    await system.start_workers(1)

    async def a_letter() -> bool:
        return bool(await system.dead_letters())

    await wait_until(system.workers[0].ready, 30, "the worker is not ready")
    await wait_until(a_letter, 60, "there is no dead letter")
    assert await system.dead_letters() == {(place.topic, place.partition, place.offset)}
    assert await system.stop_workers() == [0]


@pytest.mark.long
async def test_a_second_signal_ends_the_process(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """SIGTERM during a call to a hanging Redis waits; a second one ends the process immediately."""
    system = await topics_with_traffic(kafka, redis, tmp_path, f"signal-{os.getpid()}", seed=6)
    system.settings["STREAM_METRICS_REDIS__SOCKET_TIMEOUT_SECONDS"] = "60"  # no call ends meanwhile
    await system.start_workers(1)
    await system.reach(0.1)
    worker = system.workers[0]
    redis.pause()
    try:
        # An idle worker also reads the layout, which an end in order waits for, and the memory of
        # Redis, which it does not wait for. So one call in flight is not enough.
        await wait_until(lambda: unanswered_calls(redis.port) > 1, 30, "no two calls in flight")
        os.kill(worker.pid, signal.SIGTERM)
        await wait_until(
            lambda: "worker stops" in worker.log.read_text(), 10, "the signal was not noticed"
        )
        os.kill(worker.pid, signal.SIGTERM)
        await worker.ended(30)  # the exit code tells it from an end in order
    finally:
        redis.resume()
    assert worker.exit_code == 128 + signal.SIGTERM


async def test_other_settings_on_old_state_are_refused(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """A worker with other thresholds exits with 2 and an error; the owner continues."""
    group = f"other-{os.getpid()}"
    topics = await new_topics(kafka, group)
    produced = await produce(
        kafka, {"events": topics[0], "labels": topics[1]}, generate(few(seed=7))
    )
    system = LiveSystem(kafka, redis, tmp_path / group, group, topics, produced)
    await system.start_workers(1)
    await system.reach(1.0)
    settings = {**system.environment, "STREAM_METRICS_METRICS__GOOD_GAIN": "3"}
    stranger = Worker(system.folder, "stranger", settings)
    stranger.launch()
    await stranger.ended(60)

    assert stranger.exit_code == 2
    assert "other settings" in stranger.log_tail()
    await wait_until(system.workers[0].ready, 30, "the owner is not ready again")
    assert await system.stop_workers() == [0]
    live, replayed = await system.compare(produced.last_us)
    rows = "conversations.jsonl"
    assert (live / rows).read_bytes() == (replayed / rows).read_bytes()
