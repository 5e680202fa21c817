"""The audit finds each difference, and only differences, in the memory store and in Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from deploy.local.servers import RedisServer
from stream_metrics.core.engine.codec import decode_sums, encode_sums
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Record
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationKey,
    ConversationWrite,
    StateStore,
    StoredConversation,
    Written,
)
from stream_metrics.live.readers.audit import Audit, AuditOptions, audit
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.options import conversation_key
from stream_metrics.live.worker.ownership.generations import begin
from stream_metrics.live.worker.partition import StatePartition
from tests.property.test_partition import IDENTITY, TOPIC, once, opened
from tests.unit.test_state_partition import DAY_MS, NOON_S, search

OPTIONS = AuditOptions(EngineConfig(), DEFAULT_WINDOWS)
TRAFFIC = TrafficProfile(seed=3, conversations=30, duration_seconds=600, invalid=0.02)
Bucket = tuple[str, int, str]


async def never() -> bool:
    """A writer that never writes while the audit reads."""
    return False


async def filled(store: StateStore) -> StatePartition:
    """Let a partition read the traffic."""
    partition = await opened(store, MemoryDeadLetters(), cache_results=10_000)
    records = [
        Record(record.value, record.key, record.timestamp_ms, TOPIC, 0, offset)
        for offset, record in enumerate(generate(TRAFFIC))
    ]
    await partition.process(records, once)
    return partition


async def change(
    store: StateStore,
    *conversations: ConversationWrite,
    buckets: Mapping[Bucket, bytes | None] | None = None,
) -> None:
    """Write buckets to the store without the worker."""
    batch = BatchWrite(0, b"token", uuid4().bytes, {}, {}, conversations, buckets or {})
    assert await store.write(batch) == Written()


async def a_bucket(store: StateStore) -> tuple[Bucket, dict[str, int]]:
    """The newest bucket of the 24h window."""
    found = await store.buckets(0)
    place = max(place for place in found if place[0] == "24h")
    return place, decode_sums(found[place])


async def a_conversation(store: StateStore) -> tuple[ConversationKey, StoredConversation]:
    """A conversation with a search and a label."""
    listed = [(key, found) async for key, found in store.conversations(0)]
    return max(listed, key=lambda pair: len(pair[1].hot))


@asynccontextmanager
async def real(redis: RedisServer) -> AsyncIterator[StateStore]:
    """A store in its own namespace of a real Redis."""
    space = connect(RedisOptions(url=redis.url, namespace=f"audit-{uuid4()}"))
    try:
        yield space.generation(await begin(space, IDENTITY, 0))
    finally:
        await space.close()


def codes(found: Audit) -> set[str]:
    """Codes of the series that differ."""
    return {difference.code for difference in found.differences}


async def test_a_sound_state_has_no_difference() -> None:
    """Traffic with late labels and disorder leaves nothing to report."""
    store = MemoryStore()
    await filled(store)

    found = await audit(store, OPTIONS, never)

    assert (found.differences, found.unreadable, found.busy) == ([], [], [])
    assert (found.partitions, found.conversations) == (1, TRAFFIC.conversations)
    assert found.sums > 1_000


async def test_a_changed_bucket_is_found() -> None:
    """If one sum of one bucket is off by one, that sum is reported with its bucket."""
    store = MemoryStore()
    await filled(store)
    place, sums = await a_bucket(store)
    await change(store, buckets={place: encode_sums({**sums, "r": sums["r"] + 1})})

    found = (await audit(store, OPTIONS, never)).differences

    assert [(d.partition, d.window, d.agent, d.code) for d in found] == [(0, "24h", place[2], "r")]
    assert (found[0].stored, found[0].computed) == (sums["r"] + 1, sums["r"])
    assert found[0].time_us == place[1] * DEFAULT_WINDOWS[-1].bucket_us


@pytest.mark.slow
async def test_a_lost_bucket_is_found() -> None:
    """Every sum of a missing bucket is reported with 0 stored."""
    store = MemoryStore()
    await filled(store)
    place, sums = await a_bucket(store)
    await change(store, buckets={place: None})

    found = (await audit(store, OPTIONS, never)).differences

    assert {d.code: (d.stored, d.computed) for d in found} == {c: (0, n) for c, n in sums.items()}


async def test_a_lost_conversation_is_found() -> None:
    """A conversation that vanished without expiring leaves unexplained sums."""
    store = MemoryStore()
    await filled(store)
    key, _ = await a_conversation(store)
    await change(store, ConversationWrite(key, delete=True))

    found = (await audit(store, OPTIONS, never)).differences

    assert {"r", "s", "i", "t"} <= {difference.code for difference in found}
    assert all(difference.stored > difference.computed for difference in found)


async def test_a_doubled_conversation_is_found() -> None:
    """A conversation stored under two keys adds more than the buckets hold."""
    store = MemoryStore()
    await filled(store)
    _, held = await a_conversation(store)
    await change(store, ConversationWrite(conversation_key("copy"), dict(held.hot)))

    found = (await audit(store, OPTIONS, never)).differences

    assert {"r", "s", "i", "t"} <= {difference.code for difference in found}
    assert all(difference.stored < difference.computed for difference in found)


async def test_a_changed_label_is_found() -> None:
    """Without the part that holds its labels, a conversation gains less than the buckets hold."""
    store = MemoryStore()
    partition = await opened(store, MemoryDeadLetters(), cache_results=10)
    await partition.process(
        [
            Record(value, key, stamp, TOPIC, 0, offset)
            for offset, (key, value, stamp) in enumerate(
                [search("c", 1, NOON_S, "a", "b"), label("c", "1-0", 4)]
            )
        ],
        once,
    )
    key, held = await a_conversation(store)
    labels = next(name for name, part in held.hot.items() if b"1-0" in part and b"s-1" not in part)
    await change(store, ConversationWrite(key, {labels: None}))

    found = await audit(store, OPTIONS, never)

    assert {"G", "g", "l"} <= codes(found)
    assert not codes(found) & {"r", "u", "s"}


def label(conversation: str, result_id: str, gain: int) -> tuple[bytes, bytes, int]:
    """A label of a result."""
    text = (
        f'{{"type":"relevance_labels","event_id":"l","occurred_at":{NOON_S + 5},'
        f'"conversation_id":"{conversation}","turn":1,'
        f'"labels":[{{"result_id":"{result_id}","gain":{gain}}}]}}'
    )
    return conversation.encode(), text.encode(), (NOON_S + 5) * 1000


async def test_undecodable_bytes_are_reported_by_their_key() -> None:
    """Everything else is compared."""
    store = MemoryStore()
    await filled(store)
    place, _ = await a_bucket(store)
    key, held = await a_conversation(store)
    part = next(name for name in held.hot if name.startswith(b"e"))
    await change(store, ConversationWrite(key, {part: b"\xc1"}), buckets={place: b"\xc1"})

    found = await audit(store, OPTIONS, never)

    assert len(found.unreadable) == 2
    assert key.hex() in found.unreadable[1] + found.unreadable[0]
    assert found.differences


async def test_sums_of_expired_conversations_are_accounted_for() -> None:
    """On an idle partition, expired conversations stay in the windows."""
    store = MemoryStore()
    partition = await filled(store)
    horizon = partition.record_time_ms + DAY_MS + 1
    assert await partition.expire(horizon, once) == TRAFFIC.conversations

    found = await audit(store, OPTIONS, never)

    assert (found.conversations, found.differences) == (0, [])
    assert found.sums > 1_000


@pytest.mark.slow
async def test_a_changed_bucket_is_found_among_expired_conversations() -> None:
    """Sums of expired conversations hide no error."""
    store = MemoryStore()
    partition = await filled(store)
    await partition.expire(partition.record_time_ms + DAY_MS + 1, once)
    place, sums = await a_bucket(store)
    await change(store, buckets={place: encode_sums({**sums, "r": sums["r"] + 1})})

    assert codes(await audit(store, OPTIONS, never)) == {"r"}


async def test_sums_of_expired_conversations_leave_with_the_window() -> None:
    """A day later the store keeps nothing for them."""
    store = MemoryStore()
    partition = await filled(store)
    await partition.expire(partition.record_time_ms + DAY_MS + 1, once)
    later = partition.record_time_ms // 1000 + 2 * 86_400
    offset = partition.positions[TOPIC].offset
    key, value, stamp = search("later", 1, later, "a")

    await partition.process([Record(value, key, stamp, TOPIC, 0, offset)], once)

    assert not [place for place in await store.buckets(0) if place[0].startswith("left:")]
    assert (await audit(store, OPTIONS, never)).differences == []


async def test_agents_beyond_the_limit_are_compared_as_other() -> None:
    """Agents that came too late for their own series count under `other`."""
    store = MemoryStore()
    partition = await opened(store, MemoryDeadLetters(), cache_results=10)
    records = []
    for number in range(60):
        key, value, stamp = search(f"c{number}", 1, NOON_S, "a")
        named = value.replace(b'"turn"', b'"agent":"agent-%d","turn"' % number)
        records.append(Record(named, key, stamp, TOPIC, 0, number))
    await partition.process(records, once)

    assert "other" in {agent for _, _, agent in await store.buckets(0)}
    assert (await audit(store, OPTIONS, never)).differences == []


class BusyStore(MemoryStore):
    """A store that a worker writes to during the first few reads."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    async def buckets(self, partition: int, window: str | None = None) -> dict[Bucket, bytes]:
        """Read the buckets, then write a record."""
        found = await super().buckets(partition)
        if self.times > 0:
            self.times -= 1
            writer = await opened(self, MemoryDeadLetters(), cache_results=10)
            offset = writer.positions[TOPIC].offset
            key, value, stamp = search(f"busy-{self.times}", 1, TRAFFIC.start, "a")
            await writer.process([Record(value, key, stamp, TOPIC, 0, offset)], once)
        return found


async def always() -> bool:
    """A worker that writes during every read."""
    return True


async def test_a_partition_that_is_written_to_is_read_again() -> None:
    """After two reads with concurrent writes, the third is consistent and counts."""
    store = BusyStore()
    await filled(store)
    store.times = 2

    found = await audit(store, OPTIONS, always)

    assert (found.differences, found.busy, store.times) == ([], [], 0)
    assert found.conversations == TRAFFIC.conversations + 2


async def test_a_partition_that_is_always_written_to_is_reported_as_not_compared() -> None:
    """Without a consistent read the audit claims nothing about it."""
    store = BusyStore()
    await filled(store)
    store.times = 1

    found = await audit(store, OPTIONS, never)

    assert (found.busy, found.partitions, found.differences) == ([0], 0, [])


async def test_expiry_while_it_is_read_counts_as_a_write(redis_server: RedisServer) -> None:
    """Deleting conversations changes no offset, but the audit reads again."""
    async with real(redis_server) as store:
        partition = await filled(store)
        before = await store.describe(0)
        await partition.expire(partition.record_time_ms + DAY_MS + 1, once)
        after = await store.describe(0)

    assert before.positions == after.positions
    assert before.last_batch != after.last_batch


async def test_an_audit_over_redis(redis_server: RedisServer) -> None:
    """State in a real Redis is sound at first and after expiry, and a changed bucket is found."""
    async with real(redis_server) as store:
        partition = await filled(store)
        assert (await audit(store, OPTIONS, never)).differences == []
        half = TRAFFIC.start * 1000 + 300_000
        assert 0 < await partition.expire(half + DAY_MS, once) < TRAFFIC.conversations
        sound = await audit(store, OPTIONS, never)
        place, sums = await a_bucket(store)
        await change(store, buckets={place: encode_sums({**sums, "s": 1_000_000})})
        found = await audit(store, OPTIONS, never)

    assert (sound.differences, sound.unreadable) == ([], [])
    assert codes(found) == {"s"}
