"""A rolling upgrade to a release that can write a later schema, and the ways back, on real servers.

There is no earlier release to start: a worker of this one that writes schema 1 stands for it, since
``tests/unit/test_schemas.py`` holds that it writes what the earlier one wrote, byte for byte. That
an earlier one refuses what it cannot read is shown by state of a schema that nobody can read yet.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.services.moving import SOON, Group, traffic

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.adapters.redis.keys import SCHEMA_VERSION

pytestmark = pytest.mark.service

WRITE_SCHEMA = "STREAM_METRICS_STATE__WRITE_SCHEMA"


async def schemas(group: Group) -> set[int]:
    """Those that the state partitions may hold parts of."""
    async with group.store() as store:
        states = [await store.describe(number) for number in await store.partitions()]
    return {state.identity.schema_version for state in states if state.identity is not None}


async def each_owns(group: Group) -> bool:
    """Whether every worker has state partitions of its own; one that still starts has none."""
    group.system.none_ended()
    return min([await one.owned() for one in group.system.workers]) > 0


@pytest.mark.long
async def test_a_rolling_upgrade_and_the_way_back(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Workers that write schema 1, then workers of both kinds at once, then schema 2 alone, then 1
    again, then a migration to 1: rows and windows are a replay's at every stage.

    With both kinds, one partition at least goes over, and each worker owns some while records come.
    How many go over is Kafka's choice: all may, if the first worker is late to join again, and then
    it goes on with partitions of schema 2.
    """
    group = await Group.made(kafka, redis_server, tmp_path, "rolling", 4)
    records = traffic(21)
    fifth = len(records) // 5
    parts = [records[at * fifth : (at + 1) * fifth] for at in range(4)] + [records[4 * fifth :]]
    settings = group.system.settings
    async with group.working():
        await group.produce(parts[0])
    assert await schemas(group) == {1}

    async with group.working():
        settings[WRITE_SCHEMA] = "2"
        await group.system.start_workers(1)  # beside the one that writes schema 1
        half = len(parts[1]) // 2
        await group.produce(parts[1][:half])

        async def went_over() -> bool:
            return 2 in await schemas(group)

        def logs() -> str:
            return "\n".join(f"{w.name}:\n{w.log_tail()}" for w in group.system.workers)

        nowhere = "no partition went over to the worker that writes schema 2"
        await wait_until(went_over, SOON, lambda: f"{nowhere}:\n{logs()}")
        await wait_until(lambda: each_owns(group), SOON, lambda: f"one owns nothing:\n{logs()}")
        await group.produce(parts[1][half:])
    await group.same_as_replay()

    async with group.working(2):
        await group.produce(parts[2])
    assert await schemas(group) == {2}
    await group.same_as_replay()

    settings[WRITE_SCHEMA] = "1"
    async with group.working():
        await group.produce(parts[3])
    assert await schemas(group) == {2}
    await group.same_as_replay()

    code, report = await group.run("migrate", "--yes")
    assert code == 0, report
    assert "schema of the state: 2 before, 1 now" in report
    assert await schemas(group) == {1}
    async with group.working():
        await group.produce(parts[4])
    await group.same_as_replay()


async def test_state_of_an_unknown_schema_is_refused(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A release that is too old ends with exit code 2, and says which one is needed; the owner's
    state stays as it is."""
    group = await Group.made(kafka, redis_server, tmp_path, "unknown", 1)
    async with group.working():
        await group.produce(traffic(22, conversations=20))
    async with group.store() as store:
        [tag] = (await store._layout.tags()).values()
        await store.client.hset(store.keys.partition(tag).meta, SCHEMA_VERSION, b"3")
        before = await store.describe(0)

    await group.system.start_workers(1)
    [worker] = group.system.workers
    await wait_until(lambda: worker.exit_code is not None, SOON, "the worker has not ended")
    group.system.workers.clear()

    assert worker.exit_code == 2
    assert "is stored in schema 3, but this release reads 1 and 2" in worker.log.read_text()
    async with group.store() as store:
        assert await store.describe(0) == before
    code, said = await group.run("audit")
    assert (code, "stored in schema 3" in said) == (2, True), said
