"""Forgetting on real servers, by the command, during traffic, and with a Redis rollback."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from tests.helpers import wait_until
from tests.services.live import PARTITIONS, LiveSystem, produce, recorded
from tests.services.test_gaps import live_group
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service


def traffic() -> list[TrafficRecord]:
    """Traffic of the last half hour, with disorder and some invalid records."""
    profile = TrafficProfile(
        seed=11,
        conversations=200,
        start=int(time.time()) - 1_800,
        duration_seconds=1_200,
        turns=(1, 2),
        invalid=0.03,
    )
    return list(generate(profile))


async def dump(redis: RedisServer) -> bytes:
    """Every key, field, member and value."""
    found: list[Any] = []
    async with Redis.from_url(redis.url) as client:
        async for key in client.scan_iter("*"):
            found.append(key)
            if await client.type(key) == b"hash":
                for name, value in (await client.hgetall(key)).items():
                    found += (name, value)
            else:
                found += await client.zrange(key, 0, -1)
    return b"\0".join(found)


def identifiers(sent: list[TrafficRecord], conversations: set[str]) -> set[bytes]:
    """The identifiers in the events of these conversations."""
    names: set[str] = set()
    for record in sent:
        if not record.valid:
            continue
        event = json.loads(record.value)
        if event["conversation_id"] in conversations:
            names |= {event["conversation_id"], event["event_id"]}
            for search in event.get("searches", ()):
                names |= {r["title"] for r in search.get("results", ()) if r.get("title")}
    return {name.encode() for name in names}


@pytest.mark.long
async def test_conversations_stay_forgotten_after_a_rollback(
    kafka: Kafka, redis_factory: Callable[[], Awaitable[RedisServer]], tmp_path: Path
) -> None:
    """Half of the conversations are forgotten between two halves of the traffic, then Redis is
    rolled back. The state equals a replay's, and only digests are left of the forgotten ones."""
    redis = await redis_factory()
    group = f"forget-{os.getpid()}"
    topics = await new_topics(kafka, group)
    streams = {"events": topics[0], "labels": topics[1]}
    sent = traffic()
    early = await produce(kafka, streams, sent[: len(sent) // 2])
    system = LiveSystem(kafka, redis, tmp_path / group, group, topics, early)
    await system.start_workers(2)
    await system.reach(1.0)
    await redis.stop()
    past = shutil.copytree(redis.folder / "appendonlydir", tmp_path / "past")
    await redis.start()

    known = sorted({json.loads(r.value)["conversation_id"] for r in sent if r.valid})
    forgotten = set(known[::2])
    listed = tmp_path / "forgotten.txt"
    listed.write_text("".join(f"{name}\n" for name in sorted(forgotten)))
    code, said = await system.command("forget", "--file", str(listed))
    assert (code, "use --yes to erase them" in said) == (2, True), said
    assert len(await recorded(kafka, topics)) == len(early.records)
    code, said = await system.command("forget", "--file", str(listed), "never-seen", "--yes")
    assert code == 0, said
    presence = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    assert presence["never-seen"] == "not in the state"
    there = [name for name in forgotten if presence[name].startswith("in the state, on 1 part")]
    assert there
    forgotten.add("never-seen")
    assert f"conversations: {len(forgotten)}; a forget of each is written to {PARTITIONS}" in said
    late = await produce(kafka, streams, sent[len(sent) // 2 :])
    records = await recorded(kafka, topics)
    assert len(records) == len(sent) + len(forgotten) * PARTITIONS * len(topics)
    system.produced = replace(early, records=records, broken=early.broken | late.broken)
    await system.reach(1.0)
    before = await dump(redis)

    await redis.stop()
    shutil.rmtree(redis.folder / "appendonlydir")
    shutil.copytree(past, redis.folder / "appendonlydir")
    await redis.start()
    await system.reach(1.0)

    live, replayed = await system.compare(system.produced.last_us)
    for name in ("conversations.jsonl", "windows.json"):
        assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
    lines = (live / "conversations.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["conversation_id"] for row in rows} == set(known) - forgotten
    counts = json.loads((replayed / "report.json").read_text())["counts"]
    assert (counts["events"], counts["conversations"]) == (len(records), len(known))
    code, said = await system.command("audit")
    assert code == 0, said

    others = identifiers(sent, set(known) - forgotten)
    canaries = identifiers(sent, forgotten) - others
    assert len(canaries) > len(forgotten) * 2
    for content in (before, await dump(redis)):
        assert [name for name in canaries if name in content] == []
        assert any(name in content for name in others)

    await letters_are_left(system, sent, forgotten)
    assert await system.stop_workers() == [0, 0]


async def letters_are_left(
    system: LiveSystem, sent: list[TrafficRecord], forgotten: set[str]
) -> None:
    """Dead letters with the key of a forgotten conversation are marked, and not re-submitted."""
    places = {
        (record.topic, record.partition, record.offset)
        for record in system.produced.records
        if record.key is not None
        and record.key.decode() in forgotten
        and (record.topic, record.partition, record.offset) in system.produced.broken
    }
    assert places
    code, text = await system.command("dlq", "list", "--format", "json")
    assert code == 0, text
    letters = [json.loads(line) for line in text.splitlines()]
    marked = {(x["topic"], x["partition"], x["offset"]) for x in letters if x["forgotten"]}
    assert places <= marked
    code, text = await system.command("dlq", "resubmit", "--all", "--dry-run")
    assert code == 0, text
    assert f"skipped, of forgotten conversations: {len(marked)}" in text


@pytest.mark.long
async def test_conversations_stay_forgotten_when_topics_are_reread(
    kafka: Kafka, redis_factory: Callable[[], Awaitable[RedisServer]], tmp_path: Path
) -> None:
    """After all state is rebuilt from the topics, and a producer sends everything again, forgotten
    conversations are still absent."""
    sent = [record for record in traffic() if record.valid]
    group = await live_group(kafka, await redis_factory(), tmp_path, "forget-rebuild", sent)
    system = group.system
    worker = await group.start("rebuild")
    await group.at_ends()
    known = sorted({json.loads(r.value)["conversation_id"] for r in sent})
    forgotten = known[::3]
    code, said = await system.command("forget", *forgotten, "--yes")
    assert code == 0, said
    group.hold(list(await recorded(kafka, system.topics)))
    await group.at_ends()
    await remembered(system, set(known) - set(forgotten))

    await group.empty_redis()
    await wait_until(
        lambda: '"action": "rebuild"' in worker.log.read_text(), 60, "there is no rebuild"
    )
    await group.at_ends()
    await group.same_as_replay()
    await remembered(system, set(known) - set(forgotten))

    await group.produce(sent)
    await group.at_ends()
    await group.same_as_replay()
    await remembered(system, set(known) - set(forgotten))
    await group.stop()


async def remembered(system: LiveSystem, expected: set[str]) -> None:
    """Only these conversations have rows."""
    out = system.folder / "remembered"
    code, text = await system.command("export", "--out", str(out))
    assert code == 0, text
    lines = (out / "conversations.jsonl").read_text().splitlines()
    assert {json.loads(line)["conversation_id"] for line in lines} == expected
