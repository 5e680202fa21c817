"""How each policy handles missing records and lost state, on real servers."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.partitioner import murmur2
from redis.asyncio import Redis

from deploy.local.kafka.cluster import Kafka, admin
from deploy.local.servers import RedisServer
from stream_metrics.core.events.record import Record
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from stream_metrics.live.ports import StoreUnavailable
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.ownership.generations import state_in_force
from tests.helpers import wait_until
from tests.services.live import PARTITIONS, LiveSystem, Produced, Worker, produce

pytestmark = pytest.mark.service

SOON = 60
Places = dict[tuple[str, int], int]


def traffic(seed: int) -> list[TrafficRecord]:
    """A little traffic of the last half hour."""
    profile = TrafficProfile(
        seed=seed,
        conversations=60,
        start=int(time.time()) - 1_800,
        duration_seconds=600,
        turns=(1, 2),
        iterations=(1, 6),
        results_per_search=4,
        documents=200,
    )
    return list(generate(profile))


def outside(partition: int, records: Iterable[TrafficRecord]) -> list[TrafficRecord]:
    """The records whose key belongs to another partition."""
    return [r for r in records if (murmur2(r.key) & 0x7FFFFFFF) % PARTITIONS != partition]


class LiveGroup:
    """A group that has read all of its traffic."""

    def __init__(self, system: LiveSystem) -> None:
        self.system = system
        self.events, self.labels = system.topics

    async def produce(self, records: Iterable[TrafficRecord]) -> None:
        """Send more."""
        topics = {"events": self.events, "labels": self.labels}
        sent = await produce(self.system.kafka, topics, records)
        self.hold([*self.system.produced.records, *sent.records])

    def hold(self, records: list[Record]) -> None:
        """Set the records to compare with."""
        self.system.produced = Produced(tuple(records), frozenset(), 0)

    async def positions(self) -> Places:
        """The stored offsets; none while Redis does not answer."""
        store = connect(RedisOptions(url=self.system.redis.url, namespace=self.system.group))
        try:
            state = await state_in_force(store)
            return {
                (topic, number): position.offset
                for number in await state.partitions()
                for topic, position in (await state.describe(number)).positions.items()
            }
        except StoreUnavailable:
            return {}
        finally:
            await store.close()

    async def at_ends(self, *, without: tuple[int, ...] = ()) -> None:
        """Wait until all records are read, except those of some partition numbers."""
        ends = {p: end for p, end in self.system.produced.ends.items() if p[1] not in without}

        left: dict[tuple[str, int], tuple[int, int | None]] = {}

        async def there() -> bool:
            found = await self.positions()
            left.clear()
            left.update({p: (end, found.get(p)) for p, end in ends.items() if found.get(p) != end})
            return not left

        def message() -> str:
            return f"not all is read: {left}\n{self.system.workers[-1].log_tail()}"

        await wait_until(there, SOON, message)

    async def start(self, policy: str) -> Worker:
        """Start a worker with this policy."""
        self.system.settings["STREAM_METRICS_KAFKA__ON_OFFSET_GAP"] = policy
        self.system.settings["STREAM_METRICS_KAFKA__METADATA_MAX_AGE_MS"] = "1000"
        await self.system.start_workers(1)
        worker = self.system.workers[-1]
        await wait_until(worker.pages, SOON, "the worker serves no pages")
        return worker

    async def stop(self) -> None:
        """Stop all workers."""
        await self.system.stop_workers()
        self.system.workers.clear()

    async def same_as_replay(self) -> None:
        """The exported live state equals one pass over the set records, byte for byte."""
        live, replayed = await self.system.compare(self.system.produced.last_us)
        for name in ("conversations.jsonl", "windows.json"):
            assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
        assert (live / "conversations.jsonl").stat().st_size

    async def empty_redis(self) -> None:
        """Run FLUSHALL."""
        async with Redis.from_url(self.system.redis.url) as client:
            await client.flushall()

    async def make_events_anew(self) -> None:
        """Delete and create the topic of events; its records are gone."""
        await self.system.kafka.delete_topic(self.events)
        await self.system.kafka.create_topic(self.events, PARTITIONS)
        self.hold([r for r in self.system.produced.records if r.topic == self.labels])

    async def delete_events(self, number: int, before: int) -> None:
        """Delete a partition's records below an offset."""
        place = TopicPartition(self.events, number)
        async with admin(self.system.kafka.bootstrap_servers) as client:
            await client.delete_records({place: RecordsToDelete(before_offset=before)})


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A Redis of the test's own."""
    async with RedisServer(tmp_path / "redis") as server:
        yield server


async def live_group(
    kafka: Kafka, redis: RedisServer, folder: Path, name: str, records: Iterable[TrafficRecord]
) -> LiveGroup:
    """A group with these records in its topics and no worker."""
    group = f"{name}-{os.getpid()}"
    topics = (f"{group}-events", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, PARTITIONS)
        await kafka.create_topic(f"{topic}.dlq", PARTITIONS)
    made = LiveGroup(
        LiveSystem(kafka, redis, folder / group, group, topics, Produced((), frozenset(), 0))
    )
    await made.produce(records)
    return made


async def reasons(worker: Worker) -> dict[str, str]:
    """The reasons on ``/readyz``."""
    found: dict[str, str] = (await worker.readyz())[1].get("reasons", {})
    return found


async def until_held(worker: Worker, numbers: Iterable[int], words: str) -> None:
    """Wait until exactly these partition numbers are held, for a reason that contains ``words``."""
    expected = {f"partition-{number}" for number in numbers}

    async def held() -> bool:
        said = await reasons(worker)
        return said.keys() == expected and all(words in why for why in said.values())

    await wait_until(held, SOON, lambda: f"they are not held:\n{worker.log_tail()}")


async def test_a_recreated_topic_halts_partitions_that_were_read(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """Under `halt` partitions that had records stop and report why; the other one continues."""
    group = await live_group(kafka, redis, tmp_path, "anew-halt", outside(3, traffic(1)))
    worker = await group.start("halt")
    await group.at_ends()
    before = await group.positions()

    await group.make_events_anew()
    await until_held(worker, (0, 1, 2), "recreated")
    await group.produce(traffic(2))
    await group.at_ends(without=(0, 1, 2))

    after = await group.positions()
    assert {p: o for p, o in after.items() if p[1] != 3} == {
        p: o for p, o in before.items() if p[1] != 3
    }
    assert await worker.figure("streammetrics_offset_gaps_total") >= 3
    assert (await worker.healthz())[0] == 200
    await group.stop()


@pytest.mark.long
async def test_a_recreated_topic_is_rebuilt(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """Under `rebuild` the figures become those of the new topic and of the other topic."""
    group = await live_group(kafka, redis, tmp_path, "anew-rebuild", traffic(1))
    worker = await group.start("rebuild")
    await group.at_ends()

    await group.make_events_anew()
    await group.produce(traffic(2))
    await group.at_ends()

    await wait_until(worker.ready, SOON, "the worker is not ready again")
    await group.same_as_replay()
    assert await worker.figure("streammetrics_offset_gaps_total") >= 1
    await group.stop()


@pytest.mark.parametrize("policy", ["halt", "rebuild"])
async def test_a_longer_recreated_topic_is_recognized(
    kafka: Kafka, redis: RedisServer, tmp_path: Path, policy: str
) -> None:
    """If the new topic has more records than were read, the digest of the last one differs."""
    group = await live_group(kafka, redis, tmp_path, f"longer-{policy}", traffic(1))
    await group.start("halt")
    await group.at_ends()
    await group.stop()
    before = group.system.produced.ends
    await group.make_events_anew()
    await group.produce(traffic(2) + traffic(3) + traffic(4))
    after = group.system.produced.ends
    assert all(after[group.events, n] > before[group.events, n] for n in range(PARTITIONS))

    worker = await group.start(policy)

    if policy == "halt":
        await until_held(worker, range(PARTITIONS), "is not the one that was read there")
        found = await group.positions()
        assert all(found[group.events, n] == before[group.events, n] for n in range(PARTITIONS))
    else:
        await group.at_ends()
        await group.same_as_replay()
    await group.stop()


async def behind_the_start(
    kafka: Kafka, redis: RedisServer, folder: Path, policy: str
) -> tuple[LiveGroup, Worker, int, int]:
    """A worker whose stored offset of partition 1 is before the start of the log.

    Returns that offset and the new start of the log.
    """
    group = await live_group(kafka, redis, folder, f"deleted-{policy}", traffic(1))
    await group.start("halt")
    await group.at_ends()
    await group.stop()
    stored = group.system.produced.ends[group.events, 1]
    await group.produce(traffic(2))
    first = stored + 10
    assert first < group.system.produced.ends[group.events, 1]
    await group.delete_events(1, first)
    return group, await group.start(policy), stored, first


@pytest.mark.long
async def test_deleted_records_halt_their_partition(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """Under `halt` that partition stops and reports why, and the others continue."""
    group, worker, stored, _ = await behind_the_start(kafka, redis, tmp_path, "halt")

    await until_held(worker, [1], "deleted before they were read")
    await group.at_ends(without=(1,))

    assert (await group.positions())[group.events, 1] == stored
    await group.stop()


async def test_deleted_records_are_left_out_of_a_rebuild(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """Under `rebuild` the figures are those of the records in the topics."""
    group, worker, _, first = await behind_the_start(kafka, redis, tmp_path, "rebuild")
    group.hold(
        [
            record
            for record in group.system.produced.records
            if (record.topic, record.partition) != (group.events, 1) or record.offset >= first
        ]
    )

    await group.at_ends()

    await wait_until(worker.ready, SOON, "the worker is not ready")
    await group.same_as_replay()
    await group.stop()


async def test_deleted_records_are_skipped(
    kafka: Kafka, redis: RedisServer, tmp_path: Path
) -> None:
    """Under `continue` the figures are those of the records read before and the remaining ones."""
    group, worker, stored, first = await behind_the_start(kafka, redis, tmp_path, "continue")
    group.hold(
        [
            record
            for record in group.system.produced.records
            if (record.topic, record.partition) != (group.events, 1)
            or not stored <= record.offset < first
        ]
    )

    await group.at_ends()

    await wait_until(worker.ready, SOON, "the worker is not ready")
    await group.same_as_replay()
    assert await worker.figure("streammetrics_offset_gaps_total") == 1
    assert "offset gap" in worker.log.read_text()
    await group.stop()


@pytest.mark.parametrize("live", [True, False], ids=["live", "stopped"])
async def test_an_emptied_redis_halts(
    kafka: Kafka, redis: RedisServer, tmp_path: Path, live: bool
) -> None:
    """Under `halt` every partition stops and reports that the state is lost."""
    group = await live_group(kafka, redis, tmp_path, f"flush-halt-{live}", traffic(1))
    worker = await group.start("halt")
    await group.at_ends()
    if live:
        await until_committed(group)
        await group.empty_redis()
    else:
        await group.stop()
        await group.empty_redis()
        worker = await group.start("halt")

    await until_held(worker, range(PARTITIONS), "the state is lost")

    assert await group.positions() == {}
    await group.stop()


@pytest.mark.long
@pytest.mark.parametrize("live", [True, False], ids=["live", "stopped"])
async def test_an_emptied_redis_is_rebuilt(
    kafka: Kafka, redis: RedisServer, tmp_path: Path, live: bool
) -> None:
    """Under `rebuild` the state equals one pass over the topics."""
    group = await live_group(kafka, redis, tmp_path, f"flush-rebuild-{live}", traffic(1))
    worker = await group.start("rebuild")
    await group.at_ends()
    if live:
        await until_committed(group)
        await group.empty_redis()
    else:
        await group.stop()
        await group.empty_redis()
        worker = await group.start("rebuild")
    await group.produce(traffic(2))

    await group.at_ends()

    await wait_until(worker.ready, SOON, "the worker is not ready")
    await group.same_as_replay()
    assert await worker.figure("streammetrics_offset_gaps_total") >= 1
    await group.stop()


async def until_committed(group: LiveGroup) -> None:
    """Wait until the stored offsets are committed to Kafka."""
    ends = group.system.produced.ends

    async def committed() -> bool:
        async with admin(group.system.kafka.bootstrap_servers) as client:
            found = await client.list_consumer_group_offsets(group.system.group)
        known = {(p.topic, p.partition): o.offset for p, o in found.items()}
        return ends.items() <= known.items()

    await wait_until(committed, SOON, "the offsets are not committed")
