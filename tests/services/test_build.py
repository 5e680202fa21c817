"""Builds of new state for other settings, on real servers with traffic."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.lab.traffic import TrafficRecord, generate
from stream_metrics.live.kafka.output import VERSION
from stream_metrics.live.layout import Layout
from stream_metrics.live.redis.connect import RedisOptions, connect
from tests.services.live import PARTITIONS, LiveSystem, Worker, produce, stored
from tests.services.test_live import few, new_topics

pytestmark = pytest.mark.service

BUILT_SECONDS = 240  # for a build of little state, and its switch
GOOD_GAIN = "STREAM_METRICS_METRICS__GOOD_GAIN"


@pytest.fixture
def traffic() -> list[TrafficRecord]:
    """Some conversations, with invalid records."""
    return list(generate(replace(few(seed=11), conversations=150)))


async def layout(system: LiveSystem) -> Layout:
    """The generations of the namespace."""
    store = connect(RedisOptions(url=system.redis.url, namespace=system.group))
    try:
        return await store.layout()
    finally:
        await store.close()


async def states(system: LiveSystem) -> list[tuple[int, str, bool]]:
    """Number, fingerprint and state of each generation."""
    return [(g.number, g.state, g.purged) for g in (await layout(system)).generations]


async def rows_sent(system: LiveSystem, topic: str) -> dict[str, bytes | None]:
    """The last value of each key on the output topic."""
    newest: dict[str, tuple[int, bytes | None]] = {}
    for record in await stored(system.kafka, [topic]):
        name, version = record.key.decode(), int(dict(record.headers)[VERSION])
        if name not in newest or version > newest[name][0]:
            newest[name] = (version, record.value)
    return {name: value for name, (_, value) in newest.items()}


async def test_a_build_for_other_settings_replaces_the_live_state(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path, traffic: list[TrafficRecord]
) -> None:
    """While records arrive, the old worker continues and the new one is muted. After the switch
    rows, windows and the output topic equal a replay with the new settings; the old worker has
    exited with the reason, and its state is deleted."""
    group = f"build-{os.getpid()}"
    topics = await new_topics(kafka, group)
    output = f"{group}-rows"
    await kafka.create_topic(output, 3)
    streams, third = {"events": topics[0], "labels": topics[1]}, len(traffic) // 3
    produced = await produce(kafka, streams, traffic[:third])
    system = LiveSystem(kafka, redis_server, tmp_path / group, group, topics, produced)
    system.settings["STREAM_METRICS_KAFKA__OUTPUT_TOPIC"] = output
    await system.start_workers(1)
    old = system.workers.pop()
    system.workers.append(old)
    await system.reach(1.0)

    system.settings[GOOD_GAIN] = "3"
    building = await begun(system)
    system.produced += await produce(kafka, streams, traffic[third : 2 * third])
    await system.reach(1.0)
    assert await old.figure("streammetrics_window_results") > 0
    new = Worker(system.folder, f"{group}-new", system.environment)
    new.launch()
    await wait_until(new.pages, 60, "the new worker serves no pages")
    assert await new.figure("streammetrics_window_results") == 0
    code, said = await asyncio.wait_for(building, BUILT_SECONDS)

    assert code == 0, said
    assert await states(system) == [(1, "retired", True), (2, "live", False)]
    await old.ended(60)
    assert old.exit_code == 2
    assert "generation 1 of the state has been replaced by generation 2" in old.log.read_text()
    assert await new.figure("streammetrics_window_results") > 0
    system.workers[:] = [new]
    system.produced += await produce(kafka, streams, traffic[2 * third :])
    await system.reach(1.0)
    await wait_until(new.ready, 30, "the new worker is not ready")
    live, replayed = await system.compare(system.produced.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
    exported = {
        str(json.loads(line)["conversation_id"]): line
        for line in (live / "conversations.jsonl").read_bytes().splitlines()
    }
    assert await rows_sent(system, output) == exported
    assert await system.dead_letters() == system.produced.broken
    code, said = await system.command("audit")
    assert code == 0, said
    assert await system.stop_workers() == [0]


async def begun(system: LiveSystem, *options: str) -> asyncio.Task[tuple[int, str]]:
    """The running command, once it is building."""
    building = asyncio.create_task(system.command("build", "--yes", *options))

    async def is_building() -> bool:
        assert not building.done(), building.result()
        return (await layout(system)).building is not None

    await wait_until(is_building, 60, "nothing is being built")
    return building


@pytest.mark.long
async def test_a_build_that_is_given_up_leaves_nothing(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path, traffic: list[TrafficRecord]
) -> None:
    """Its worker exits with the reason; the live state is unchanged, and a new build can start."""
    group = f"given-up-{os.getpid()}"
    topics = await new_topics(kafka, group)
    produced = await produce(kafka, {"events": topics[0], "labels": topics[1]}, traffic)
    system = LiveSystem(kafka, redis_server, tmp_path / group, group, topics, produced)
    await system.start_workers(1)
    await system.reach(1.0)
    system.settings[GOOD_GAIN] = "3"
    building = await begun(system)
    code, said = await system.command("build", "--give-up")
    assert code == 0, said
    code, said = await asyncio.wait_for(building, BUILT_SECONDS)

    assert code == 2
    assert "is not being built any more" in said
    assert await states(system) == [(1, "live", False), (2, "abandoned", True)]
    code, said = await system.command("build", "--dry-run")
    assert code == 0, said
    system.settings.pop(GOOD_GAIN)
    live, replayed = await system.compare(produced.last_us)
    assert (live / "windows.json").read_bytes() == (replayed / "windows.json").read_bytes()
    assert len(await layout_partitions(system)) == PARTITIONS
    assert await system.stop_workers() == [0]


async def layout_partitions(system: LiveSystem) -> list[int]:
    """The live state partitions."""
    store = connect(RedisOptions(url=system.redis.url, namespace=system.group))
    try:
        found = (await store.layout()).in_force
        assert found is not None
        return await store.generation(found).partitions()
    finally:
        await store.close()
