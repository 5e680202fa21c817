"""``stream-metrics migrate`` and ``stream-metrics rebuild`` on real servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import TopicPartition

from deploy.local.kafka.cluster import Kafka, admin
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from tests.services.moving import SOON, Group, traffic

pytestmark = pytest.mark.service

PLACES = ("after hold 1", "after draft 2", "before switch 1", "after switch 1", "before release 1")


async def refused(group: Group) -> str:
    """Start a worker that does not want to work; what its log says."""
    await group.system.start_workers(1)
    [worker] = group.system.workers
    await wait_until(lambda: worker.exit_code is not None, SOON, "the worker has not ended")
    group.system.workers.clear()
    assert worker.exit_code == 2
    return worker.log.read_text()


async def test_settings_are_changed_by_a_migration(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Workers with other settings refuse and name the command; killed at every step and run again,
    it leaves what a replay with the new settings gives, before and after more records."""
    group = await Group.made(kafka, redis_server, tmp_path, "migrated", 3)
    records = traffic(11)
    half = len(records) // 2
    async with group.working():
        await group.produce(records[:half])
    group.system.settings["STREAM_METRICS_METRICS__GOOD_GAIN"] = "3"
    group.system.settings["STREAM_METRICS_METRICS__WINDOWS"] = '["10m", "24h"]'
    assert "run `stream-metrics migrate`" in await refused(group)

    await group.killed("migrate", "--yes", at=PLACES)
    code, said = await group.run("migrate", "--yes")

    assert code == 0, said
    await group.same_as_replay()
    async with group.working(2):
        await group.produce(records[half:])
    await group.same_as_replay()
    code, said = await group.run("migrate", "--yes")
    assert (code, "nothing to do" in said) == (0, True), said


@pytest.mark.long
async def test_settings_that_need_the_events_are_changed_by_a_rebuild(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Migrate refuses and names rebuild; killed at every step and run again, it lets workers read
    the topics from their start, so that the state is a replay's."""
    group = await Group.made(kafka, redis_server, tmp_path, "rebuilt", 3)
    records = traffic(12)
    half = len(records) // 2
    async with group.working():
        await group.produce(records[:half])
    group.system.settings["STREAM_METRICS_DEDUP__MAX_CANDIDATES"] = "2"
    assert "run `stream-metrics rebuild`" in await refused(group)
    code, said = await group.run("migrate", "--yes")
    assert (code, "stream-metrics rebuild" in said) == (2, True), said

    await group.killed("rebuild", "--yes", at=("after claim 2", *PLACES[2:]))
    code, said = await group.run("rebuild", "--yes")

    assert code == 0, said
    assert "complete from its first record" in said
    async with group.working(2):
        await group.produce(records[half:])
    await group.same_as_replay()


async def test_a_rebuild_reaches_as_far_back_as_kafka(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Records that Kafka has deleted are told before, and missing after; nothing else is."""
    group = await Group.made(kafka, redis_server, tmp_path, "reach", 1)
    async with group.working():
        await group.produce(traffic(13))
    events = TopicPartition(group.system.topics[0], 0)
    cut = group.system.produced.ends[events.topic, 0] // 2
    async with admin(kafka.bootstrap_servers) as client:
        await client.delete_records({events: RecordsToDelete(cut)})

    code, said = await group.run("rebuild", "--yes")

    assert code == 0, said
    assert f"{events.topic}: begins at " in said
    assert f"; {cut:,} earlier records are gone" in said
    assert f"{group.system.topics[1]}: complete from its first record" in said
    group.system.produced = group.kept({(events.topic, 0): cut})
    async with group.working():
        pass
    await group.same_as_replay()


async def test_a_rebuild_refuses_while_workers_are_there(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """It says who is a member, and changes nothing; so does a migration."""
    group = await Group.made(kafka, redis_server, tmp_path, "there", 1)
    async with group.working():
        await group.produce(traffic(14, conversations=20))
        await group.all_read()
        for command in ("rebuild", "migrate"):
            code, said = await group.run(command, "--yes")
            assert (code, "has 1 members" in said) == (2, True), said
    await group.same_as_replay()
