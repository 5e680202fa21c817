"""Workers with an instance id on real servers rejoin immediately, one worker per id."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import generate
from tests.helpers import wait_until
from tests.services.live import PARTITIONS, LiveSystem, Worker, produce
from tests.services.test_live import (
    empty_system,
    few,
    new_topics,
    same_as_replay,
    topics_with_traffic,
)

pytestmark = pytest.mark.service

SESSION_MS = 300_000  # nobody waits for its end
SOON = 60


def named(system: LiveSystem, instance_id: str, name: str = "") -> Worker:
    """A worker of the system with this instance id, not started."""
    settings = {
        **system.environment,
        "STREAM_METRICS_KAFKA__GROUP_INSTANCE_ID": instance_id,
        "STREAM_METRICS_KAFKA__SESSION_TIMEOUT_MS": str(SESSION_MS),
        "STREAM_METRICS_KAFKA__METADATA_MAX_AGE_MS": "1000",
    }
    worker = Worker(system.folder, f"{system.group}-{name or instance_id}", settings)
    system.folder.mkdir(parents=True, exist_ok=True)
    system.workers.append(worker)
    return worker


async def owns(worker: Worker, count: int) -> None:
    """Wait until the worker is ready and has so many partitions."""

    async def there() -> bool:
        return await worker.ready() and await worker.owned() == count

    await wait_until(there, SOON, lambda: f"not {count} partitions:\n{worker.log_tail()}")


@pytest.mark.long
async def test_a_named_worker_has_its_partitions_back_at_once(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Killed midway, and stopped later, it rejoins long before its session would have ended; the
    other worker sees no rebalance, and the figures equal a replay's."""
    group = f"named-{os.getpid()}"
    system = await topics_with_traffic(kafka, redis_server, tmp_path, group, seed=11)
    first, second = named(system, "worker-1"), named(system, "worker-2")
    first.launch()
    await owns(first, PARTITIONS)
    second.launch()
    await owns(second, PARTITIONS // 2)
    await owns(first, PARTITIONS // 2)
    before = await second.figure("streammetrics_rebalances_total")
    first.kill9()
    read = await system.read()
    assert read < system.total, "the kill must hit midway"

    first.launch()
    await owns(first, PARTITIONS // 2)
    await system.reach(1.0)
    assert await first.stop() == 0
    first.launch()
    await owns(first, PARTITIONS // 2)

    assert await second.figure("streammetrics_rebalances_total") == before
    await same_as_replay(system)
    assert await system.stop_workers() == [0, 0]


@pytest.mark.long
async def test_the_older_of_two_with_one_name_stops(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """The older one exits with 2 and the reason, the other continues, and nothing is counted
    twice."""
    group = f"twice-{os.getpid()}"
    system = await topics_with_traffic(kafka, redis_server, tmp_path, group, seed=12)
    older = named(system, "worker", "older")
    older.launch()
    await system.reach(0.1)
    younger = named(system, "worker", "younger")
    younger.launch()

    await says_that_it_is_fenced(older, group)

    system.workers.remove(older)
    assert await system.read() < system.total, "they must have met midway"
    await system.reach(1.0)
    await owns(younger, PARTITIONS)
    await same_as_replay(system)
    assert await younger.stop() == 0


async def says_that_it_is_fenced(worker: Worker, group: str) -> None:
    """Wait for its exit, and check its log."""
    await worker.ended(SOON)
    said = worker.log_tail()
    assert worker.exit_code == 2, said
    assert f"another worker has joined group '{group}' as 'worker'" in said
    assert "kafka.group_instance_id" in said


@pytest.mark.long
async def test_a_worker_that_wakes_up_after_it_was_replaced_stops(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """It is idle, and learns of the other worker from its heartbeat."""
    group = f"asleep-{os.getpid()}"
    topics = await new_topics(kafka, group)
    produced = await produce(
        kafka, {"events": topics[0], "labels": topics[1]}, generate(few(seed=13))
    )
    system = LiveSystem(kafka, redis_server, tmp_path / group, group, topics, produced)
    older = named(system, "worker", "older")
    older.launch()
    await system.reach(1.0)
    os.kill(older.pid, signal.SIGSTOP)
    younger = named(system, "worker", "younger")
    younger.launch()
    await owns(younger, PARTITIONS)

    os.kill(older.pid, signal.SIGCONT)

    await says_that_it_is_fenced(older, group)
    await owns(younger, PARTITIONS)
    assert await younger.stop() == 0


@pytest.mark.long
async def test_a_named_worker_that_came_back_sees_more_partitions(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """The group's leader, killed and back without a rebalance, reads nothing more under the new
    count, and says so, as any other would."""
    group = f"grown-{os.getpid()}"
    topics = await new_topics(kafka, group)
    produced = await produce(
        kafka, {"events": topics[0], "labels": topics[1]}, generate(few(seed=14))
    )
    system = LiveSystem(kafka, redis_server, tmp_path / group, group, topics, produced)
    worker = named(system, "worker")
    worker.launch()
    await system.reach(1.0)
    worker.kill9()
    worker.launch()
    await owns(worker, PARTITIONS)
    for topic in topics:
        await kafka.add_partitions(topic, PARTITIONS + 1)

    async def says_so() -> bool:
        status, body = await worker.readyz()
        return status == 503 and "stream-metrics build" in body["reasons"].get("partitions", "")

    await wait_until(says_so, SOON, worker.log_tail)
    assert await worker.stop() == 0


@pytest.mark.long
async def test_a_name_holds_in_the_group_that_copies_too(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A killed worker that repartitions rejoins both groups immediately, and a second one replaces
    it in both."""
    group = f"copying-{os.getpid()}"
    topics = await new_topics(kafka, group)
    system = await empty_system(kafka, redis_server, tmp_path, group, topics)
    system.settings["STREAM_METRICS_KAFKA__REPARTITION_TOPIC"] = internal = f"{group}-internal"
    await kafka.create_topic(internal, PARTITIONS)
    older = named(system, "worker", "older")
    older.launch()
    await owns(older, PARTITIONS)
    older.kill9()

    older.launch()
    await owns(older, PARTITIONS)
    younger = named(system, "worker", "younger")
    younger.launch()

    await older.ended(SOON)
    assert older.exit_code == 2, older.log_tail()
    assert "as 'worker' (kafka.group_instance_id)" in older.log_tail()
    await owns(younger, PARTITIONS)
    assert await younger.stop() == 0
