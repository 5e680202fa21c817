"""``stream-metrics reshard`` on real servers: partitions are added, or topics are new."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.adapters.kafka.reading import KafkaLogs, RecordsGone, reading
from stream_metrics.settings import KafkaSettings
from tests.services.live import produce
from tests.services.live import said as command
from tests.services.moving import SOON, Group, traffic
from tests.services.test_dlq import delete_before
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

PLACES = (
    "after hold 1", "after draft 2", "before switch 1", "after switch 1", "after sweep 1",
    "before release 1",
)  # fmt: skip


@pytest.mark.long
async def test_partitions_become_more_and_then_fewer(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Between thirds of a stream the topics get more partitions, and then are others with fewer:
    after each step the state is a replay's."""
    group = await Group.made(kafka, redis_server, tmp_path, "counts", 4)
    records = traffic(1)
    third = len(records) // 3
    async with group.working():
        await group.produce(records[:third])
    await group.add_partitions(6)

    code, said = await group.run("reshard", "--yes")

    assert code == 0, said
    assert "partitioner: murmur2" in said
    assert await group.partitions() == [0, 1, 2, 3, 4, 5]
    await group.same_as_replay()
    async with group.working(2):
        await group.produce(records[third : 2 * third])

    group.system.topics = tuple(f"{topic}-2" for topic in group.system.topics)
    await group.create(group.system.topics, 3)
    code, said = await group.run("reshard", "--yes")

    assert code == 0, said
    assert await group.partitions() == [0, 1, 2]
    await group.same_as_replay()
    async with group.working(2):
        await group.produce(records[2 * third :])
    await group.same_as_replay()


@pytest.mark.long
async def test_partitions_are_added_while_producers_send(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Workers stop and name the command; what was sent by the old count and by the new is taken
    along, and the dead letters are each there."""
    group = await Group.made(kafka, redis_server, tmp_path, "live", 2)
    records = traffic(3)
    async with group.working():
        await group.produce(records[: len(records) // 3])
    await group.produce(records[len(records) // 3 : len(records) // 2])
    await group.add_partitions(6)
    await group.produce(records[len(records) // 2 : len(records) * 2 // 3])

    await group.system.start_workers(1)
    [worker] = group.system.workers
    await wait_until(lambda: worker.exit_code is not None, SOON, "the worker has not ended")
    assert worker.exit_code == 2
    assert "run `stream-metrics reshard`" in worker.log.read_text()
    group.system.workers.clear()
    code, text = await command(group.system, "check")
    assert (code, "run `stream-metrics reshard`" in text) == (2, True), text
    code, said = await group.run("reshard", "--yes")
    assert (code, "records are unread" in said) == (2, True), said
    await group.killed("reshard", "--yes", "--catch-up", at=["before switch 1"])
    code, text = await command(group.system, "check")
    assert (code, "replaced by `stream-metrics reshard`" in text) == (2, True), text
    code, said = await group.run("reshard", "--yes", "--catch-up")

    assert code == 0, said
    code, text = await command(group.system, "check")
    assert code == 0, text
    async with group.working():
        await group.produce(records[len(records) * 2 // 3 :])
    await group.same_as_replay()
    assert await group.system.dead_letters() == group.system.produced.broken


@pytest.mark.long
async def test_partitions_are_added_under_running_workers(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Workers that do not see the new count yet read what producers send by it, so that
    conversations come to lie in pieces; the command merges them."""
    group = await Group.made(kafka, redis_server, tmp_path, "under", 4)
    group.system.settings["STREAM_METRICS_KAFKA__METADATA_MAX_AGE_MS"] = "600000"
    records = traffic(6)
    third = len(records) // 3
    await group.system.start_workers(1)
    await group.produce(records[:third])
    await group.all_read()
    await group.add_partitions(5)
    await group.produce(records[third : 2 * third])
    await group.all_read(below=4)
    await group.system.stop_workers()
    group.system.workers.clear()

    code, said = await group.run("reshard", "--yes", "--catch-up")

    assert code == 0, said
    assert "partitioner: murmur2" in said
    assert "merging each with its parts on other partitions" in " ".join(said.split())
    async with group.working():
        await group.produce(records[2 * third :])
    await group.same_as_replay()


@pytest.mark.long
async def test_producers_are_switched_to_new_topics(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Producers go over one by one and never stand still; the command is killed at every step and
    run again: the state is a replay's of old and new topics."""
    group = await Group.made(kafka, redis_server, tmp_path, "new", 4)
    records = traffic(4, conversations=600)
    half = len(records) // 2
    old = group.system.topics
    new = tuple(f"{topic}-2" for topic in old)
    await group.create(new, 3)
    async with group.working(2):
        await group.produce(records[:half:2])
    await group.produce(records[1:half:2], new)
    group.system.topics = new

    await group.killed("reshard", "--yes", at=PLACES)
    await group.system.start_workers(1)
    [worker] = group.system.workers
    await wait_until(lambda: worker.exit_code is not None, SOON, "the worker has not ended")
    assert (worker.exit_code, "being replaced" in worker.log.read_text()) == (2, True)
    group.system.workers.clear()
    code, said = await group.run("reshard", "--yes")
    assert code == 0, said

    assert await group.partitions() == [0, 1, 2]
    async with group.working(2):
        await group.produce(records[half:])
    await group.same_as_replay()


async def test_it_refuses_while_workers_are_there(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """It says who is a member, and changes nothing."""
    group = await Group.made(kafka, redis_server, tmp_path, "members", 2)
    group.system.settings["STREAM_METRICS_KAFKA__CLIENT_ID"] = "somebody"
    async with group.working():
        await group.produce(traffic(5, conversations=20))
        await group.all_read()
        code, said = await group.run("reshard", "--yes")

    assert code == 2
    assert "has 1 members" in said
    assert "somebody at 127.0.0.1" in said


@pytest.mark.long
async def test_a_run_that_broke_off_is_taken_back(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """After --abort the group goes on with the topics that it had."""
    group = await Group.made(kafka, redis_server, tmp_path, "abort", 2)
    async with group.working():
        await group.produce(traffic(6))
    old = group.system.topics
    group.system.topics = tuple(f"{topic}-2" for topic in old)
    await group.create(group.system.topics, 4)
    await group.killed("reshard", "--yes", at=["before switch 1"])

    code, said = await group.run("reshard", "--abort")

    assert code == 0, said
    assert f"{old[0]}: 2 partitions" in said
    group.system.topics = old
    async with group.working():
        await group.produce(traffic(7))
    await group.same_as_replay()


@pytest.mark.long
async def test_nothing_to_do_is_no_error(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """With the counts that the state has, it says so and ends with 0."""
    group = await Group.made(kafka, redis_server, tmp_path, "same", 2)
    async with group.working():
        await group.produce(traffic(8, conversations=20))

    code, said = await group.run("reshard", "--yes")

    assert (code, "nothing to do" in said) == (0, True), said
    code, said = await group.run("reshard", "--abort")
    assert (code, "no command was interrupted" in said) == (0, True), said


async def test_records_that_are_deleted_meanwhile_are_not_passed_over(kafka: Kafka) -> None:
    """Where the log no longer holds what is to be taken along, reading ends with an error that
    names the place."""
    topics = await new_topics(kafka, f"gone-{os.getpid()}")
    await produce(kafka, {"events": topics[0], "labels": topics[1]}, traffic(9))
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    place = (topics[0], 0)
    async with reading(settings) as consumer:
        logs = KafkaLogs(consumer, settings)
        end = (await logs.extents([place]))[place].end
        await delete_before(kafka, {place: end})

        with pytest.raises(RecordsGone, match=f"{topics[0]}/0 from 0"):
            [record async for record in logs.records({place: 0}, {place: end})]
