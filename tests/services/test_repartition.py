"""Repartitioning on real servers gives correct figures for any keys and partitions."""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from msgspec import structs

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.clients.kafka.groups import TRANSIENT_ERRORS
from stream_metrics.core.events import BadRecord, Limits, decode
from stream_metrics.core.events.record import Record
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from tests.forked import COMMAND
from tests.helpers import wait_until
from tests.services.live import LiveSystem, Produced, recorded, stored

pytestmark = pytest.mark.service

COUNTS = {"events": 3, "labels": 2}  # they need not be equal
INTERNAL = 4
CONVERSATIONS = 1_500
SOON = 120

Chosen = tuple[bytes | None, int | None]  # key, and partition or None for the client's choice


def without_key(record: TrafficRecord, count: int) -> Chosen:
    """No key, and any partition."""
    return None, zlib.crc32(record.value) % count


def by_another_hash(record: TrafficRecord, count: int) -> Chosen:
    """The right key, on the partition of another client's partitioner."""
    assert record.key is not None
    return record.key, PARTITIONERS["crc32"](record.key, count)


def by_another_key(record: TrafficRecord, count: int) -> Chosen:
    """A key unrelated to the conversation, such as a trace id."""
    key = b"trace-%d" % zlib.crc32(record.value)
    return key, PARTITIONERS["murmur2"](key, count)


Choice = Callable[[TrafficRecord, int], Chosen]


async def produce(
    kafka: Kafka, topics: dict[str, str], traffic: Iterable[TrafficRecord], choice: Choice
) -> Produced:
    """Send traffic as such a producer; returns the records and which of them are invalid."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, linger_ms=20, max_request_size=9_000_000
    )
    await producer.start()
    try:
        for record in traffic:
            key, partition = choice(record, COUNTS[record.stream])
            await producer.send(
                topics[record.stream],
                record.value,
                key=key,
                partition=partition,
                timestamp_ms=record.timestamp_ms,
                headers=[("trace", b"t-1")],
            )
        await producer.flush()
    finally:
        await producer.stop()
    records = await recorded(kafka, topics.values())
    return Produced(records, frozenset(place(r) for r in records if unfit(r)), 0)


def place(record: Record) -> tuple[str, int, int]:
    """Topic, partition and offset of a record."""
    return record.topic, record.partition, record.offset


def unfit(record: Record) -> bool:
    """Whether the value is not an event, for any key."""
    found = decode(record.value, timestamp_ms=record.timestamp_ms, limits=Limits())
    return isinstance(found, BadRecord)


class Repartitioned(LiveSystem):
    """A system whose workers fill an internal topic and read it."""

    @property
    def internal(self) -> str:
        """The internal topic."""
        return f"{self.group}-internal"

    async def commits(self) -> dict[tuple[str, int], int]:
        """The committed offsets of the copying group."""
        client = AIOKafkaAdminClient(bootstrap_servers=self.kafka.bootstrap_servers)
        await client.start()
        try:
            found = await client.list_consumer_group_offsets(self.internal)
        except TRANSIENT_ERRORS:
            return {}  # the group has no member yet
        finally:
            await client.close()
        return {(p.topic, p.partition): commit.offset for p, commit in found.items()}

    async def copied(self) -> float:
        """The share of the input that has been copied."""
        ends, commits = self.produced.ends, await self.commits()
        return sum(min(commits.get(p, 0), end) for p, end in ends.items()) / sum(ends.values())

    async def everything(self) -> None:
        """Wait until all is copied, and all copies are in the state."""

        async def copied() -> bool:
            return await self.copied() == 1

        def tails() -> str:
            return "\n".join(f"{w.name}:\n{w.log_tail()}" for w in self.workers)

        await wait_until(copied, SOON, lambda: f"not everything is copied:\n{tails()}")
        copies = len(await stored(self.kafka, [self.internal]))

        async def read() -> bool:
            return await self.read() >= copies

        await wait_until(read, SOON, lambda: f"not all of {copies} copies are read:\n{tails()}")

    async def same_as_replay(self) -> None:
        """Rows, windows and dead letters equal a replay's of the producer's records."""
        sent = self.produced
        # Under keys of its own a conversation's records would be turned away: a replay reads none.
        self.produced = replace(
            sent, records=tuple(structs.replace(r, key=None) for r in sent.records)
        )
        live, replayed = await self.compare(sent.last_us)
        self.produced = sent
        for name in ("conversations.jsonl", "windows.json"):
            assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
        rows = (live / "conversations.jsonl").read_bytes().splitlines()
        assert len(rows) > CONVERSATIONS * 0.99
        assert await self.dead_letters() == sent.broken


async def system_of(
    kafka: Kafka, redis: RedisServer, folder: Path, name: str, choice: Choice
) -> Repartitioned:
    """A group with traffic of the last half hour in its input topics, without workers."""
    group = f"{name}-{os.getpid()}"
    topics = {stream: f"{group}-{stream}" for stream in COUNTS}
    for stream, topic in topics.items():
        await kafka.create_topic(topic, COUNTS[stream])
        await kafka.create_topic(f"{topic}.dlq", COUNTS[stream])
    profile = TrafficProfile(
        seed=31,
        conversations=CONVERSATIONS,
        start=int(time.time()) - 1_800,
        duration_seconds=1_200,
        turns=(1, 2),
        iterations=(1, 6),
        results_per_search=4,
        documents=400,
    )
    produced = await produce(kafka, topics, generate(profile), choice)
    assert produced.broken
    system = Repartitioned(kafka, redis, folder / group, group, tuple(topics.values()), produced)
    system.settings["STREAM_METRICS_KAFKA__REPARTITION_TOPIC"] = system.internal
    await kafka.create_topic(system.internal, INTERNAL)
    return system


@pytest.mark.long
@pytest.mark.parametrize(
    "choice",
    [without_key, by_another_hash, by_another_key],
    ids=lambda choice: choice.__name__,
)
async def test_a_killed_worker_has_no_effect_on_figures(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path, choice: Choice
) -> None:
    """Without keys, with another hash, or with unrelated keys, and one of two workers killed
    midway, figures and dead letters equal a replay's of the input."""
    name = f"rep-{choice.__name__.replace('_', '-')}"
    system = await system_of(kafka, redis_server, tmp_path, name, choice)
    system.settings["STREAM_METRICS_KAFKA__MAX_POLL_RECORDS"] = "50"  # so that it takes a while
    code, text = await system.command("check")
    assert code == 0, text
    await system.start_workers(2)
    victim = system.workers[0]

    async def begun() -> bool:
        return await system.copied() > 0.1

    await wait_until(begun, SOON, lambda: f"nothing is copied:\n{victim.log_tail()}")
    victim.kill9()
    assert await system.copied() < 1, "the kill must hit midway"
    await victim.start()
    await system.everything()

    await system.same_as_replay()
    assert await system.stop_workers() == [0, 0]


async def test_copies_are_the_records(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A copy has its record's value, time, headers and original offset, and the conversation's key;
    copies are in the order of their input partition, and none is missing."""
    system = await system_of(kafka, redis_server, tmp_path, "rep-copies", without_key)
    await system.start_workers(1)
    await system.everything()
    assert await system.stop_workers() == [0]

    originals = {place(record): record for record in system.produced.records}
    copies = await stored(kafka, [system.internal])
    last: dict[tuple[int, str, str], int] = {}
    seen = set()
    for copy in copies:
        headers = dict(copy.headers)
        topic, partition, offset = headers["stream-metrics.repartitioned_from"].decode().split("/")
        original = originals[topic, int(partition), int(offset)]
        seen.add(place(original))
        assert (copy.value, copy.timestamp) == (original.value, original.timestamp_ms)
        assert headers["trace"] == b"t-1"
        assert headers["stream-metrics.repartitioned_key"] is None
        assert copy.partition == PARTITIONERS["murmur2"](copy.key, INTERNAL)
        stream = (copy.partition, topic, partition)
        assert int(offset) > last.get(stream, -1)
        last[stream] = int(offset)
    left_out = {where for where, record in originals.items() if where not in seen}
    assert left_out <= system.produced.broken


async def test_added_input_partitions_are_copied_from_their_first_record(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A group of two workers starts at the ends; a partition that is added and filled while neither
    runs is copied from its first record."""
    system = await system_of(kafka, redis_server, tmp_path, "rep-added", without_key)
    system.settings["STREAM_METRICS_KAFKA__START"] = "latest"
    await system.start_workers(2)
    for worker in system.workers:
        await wait_until(worker.pages, SOON, worker.log_tail)

    async def begun() -> bool:
        return len(await system.commits()) == sum(COUNTS.values())

    await wait_until(begun, SOON, lambda: "\n".join(w.log_tail() for w in system.workers))
    begins = await system.commits()
    assert await system.stop_workers() == [0, 0]
    assert begins == system.produced.ends
    assert await stored(kafka, [system.internal]) == []

    events, added = system.topics[0], COUNTS["events"]
    await kafka.add_partitions(events, added + 1)
    sent = [(b'{"conversation_id": "c"}', n) for n in (0, added, added)]
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for value, number in sent:
            await producer.send_and_wait(events, value, partition=number)
    system.workers.clear()
    await system.start_workers(1)

    async def copied() -> bool:
        return (await system.commits()).get((events, added)) == 2

    await wait_until(copied, SOON, system.workers[0].log_tail)
    copies = await stored(kafka, [system.internal])
    assert len(copies) == len(sent)
    assert await system.stop_workers() == [0]


async def test_check_names_what_is_wrong_with_the_internal_topic(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """`check` fails while the internal topic is missing or would drop copies."""
    group = f"rep-check-{os.getpid()}"
    topics = (f"{group}-events", f"{group}-labels")
    for number, topic in enumerate(topics, 1):
        await kafka.create_topic(topic, number, {"retention.ms": "86400000"})
        await kafka.create_topic(f"{topic}.dlq", 1)
    produced = Produced((), frozenset(), 0)
    system = Repartitioned(kafka, redis_server, tmp_path / group, group, topics, produced)
    system.settings["STREAM_METRICS_KAFKA__REPARTITION_TOPIC"] = system.internal
    system.settings["COLUMNS"] = "300"

    assert "does not exist" in await refused(system)
    bad = {"cleanup.policy": "compact", "retention.ms": "3600000"}
    await kafka.create_topic(system.internal, INTERNAL, bad)
    said = await refused(system)
    assert "cleanup.policy is compact" in said
    assert "retention.ms is 3600000" in said
    assert "equal partition counts" not in said


async def refused(system: LiveSystem) -> str:
    """What `check` prints when it fails."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "check",
        env={**os.environ, **system.environment},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 2, out.decode()
    return out.decode()
