"""Other partition counts in the middle of a stream change no row and no window sum."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.adapters.memory import (
    MemoryDeadLetters,
    MemoryOutputs,
    MemoryStore,
    MemoryTopic,
)
from stream_metrics.engine.config import EngineConfig
from stream_metrics.engine.row import canonical
from stream_metrics.engine.windows import DEFAULT_WINDOWS
from stream_metrics.ports import Identity, Position, Record, StateStore
from stream_metrics.worker.astray import Partitioner, Place
from stream_metrics.worker.audit import Audit, AuditOptions, audit
from stream_metrics.worker.cache import ConversationCache
from stream_metrics.worker.export import Export, export_state
from stream_metrics.worker.move import holding
from stream_metrics.worker.names import SharedNames
from stream_metrics.worker.options import PartitionOptions
from stream_metrics.worker.partition import StatePartition
from stream_metrics.worker.reshard import Reshard
from stream_metrics.worker.source import Extent
from stream_metrics.worker.takeover import Policy
from stream_metrics.worker.telemetry import Silent
from tests import oracle
from tests.property.test_forget import is_forget
from tests.property.test_partition import IDENTITY, once, options
from tests.strategies import KeyedRecord, arrivals, streams
from tests.unit.test_audit import never

TTL_MS = 86_400_000
COUNTS = st.integers(1, 4)
RAISED = [(3, 4), (4, 5), (5, 8)]  # both put conversations of the streams on the first partitions


def partition_of(key: bytes, count: int) -> int:
    """Where producers put a key; any function of it will do."""
    return zlib.crc32(key) % count


PRODUCERS: Mapping[str, Partitioner] = {"crc32": partition_of}


@dataclass
class Group:
    """Topics, the producers and workers of a group over them, and its store."""

    counts: dict[str, int]
    store: StateStore = field(default_factory=MemoryStore)
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    logs: dict[Place, list[Record]] = field(default_factory=dict)
    partitions: dict[int, StatePartition] = field(default_factory=dict)
    topic: MemoryTopic | None = None  # for output
    firsts: dict[Place, int] = field(default_factory=dict)  # Kafka has deleted what was before

    @property
    def outputs(self) -> MemoryOutputs | None:
        """Those of another process each time."""
        return MemoryOutputs(self.topic) if self.topic is not None else None

    @property
    def identity(self) -> Identity:
        """Of the state that workers build now."""
        return replace(IDENTITY, partition_counts=dict(self.counts))

    @property
    def options(self) -> PartitionOptions:
        """What workers are started with now."""
        return replace(options(), identity=self.identity)

    @property
    def count(self) -> int:
        """Partitions of each input topic."""
        return max(self.counts.values())

    def send(self, records: Iterable[KeyedRecord], counts: dict[str, int] | None = None) -> None:
        """Producers that see these counts send; a forget goes to every partition."""
        counts = counts or self.counts
        topics = list(counts)
        for key, value, timestamp_ms in records:
            topic = topics[zlib.crc32(value) % len(topics)]
            places = [(topic, partition_of(key, counts[topic]))]
            if is_forget(value):
                places = [(topic, number) for topic in topics for number in range(counts[topic])]
            for place in places:
                log = self.logs.setdefault(place, [])
                log.append(Record(value, key, timestamp_ms, *place, len(log)))

    async def read(self, share: float = 1.0) -> None:
        """Workers read so much of what is unread of each partition number."""
        for number in range(self.count):
            partition = await self._partition(number)
            for topic in self.counts:
                log = self.logs.get((topic, number), [])
                new = log[partition.positions[topic].offset :]
                await partition.process(new[: round(len(new) * share)], once)

    async def expire(self, beyond_ms: int) -> None:
        """Conversations expire whose last record is so much older than the newest, and the ttl."""
        for number in range(self.count):
            partition = await self._partition(number)
            await partition.expire(partition.record_time_ms + TTL_MS - beyond_ms, once)

    async def _partition(self, number: int) -> StatePartition:
        partition = self.partitions.get(number)
        if partition is None:
            shared, outputs = self.options, self.outputs
            partition = self.partitions[number] = StatePartition(
                number,
                shared,
                self.store,
                self.letters,
                ConversationCache(1_000),
                SharedNames(self.store, shared),
                Silent(),
                b"token",
                outputs.of(number) if outputs is not None else None,
            )
            start = {topic: Position(0) for topic in self.counts}
            partition.adopt(await self.store.claim(number, b"token", self.identity, start))
        return partition

    async def reshard(
        self,
        counts: dict[str, int],
        *,
        catch_up: bool = True,
        partitioners: Mapping[str, Partitioner] = PRODUCERS,
        policy: Policy = "halt",
    ) -> list[str]:
        """What the command does; returns what it says."""
        self.partitions = {}
        shared = replace(self.options, identity=replace(self.identity, partition_counts=counts))
        said: list[str] = []
        logs = ScriptedLogs(self, counts)
        work = Reshard(
            self.store,
            logs,
            shared,
            self.letters,
            said.append,
            lambda _: None,
            self.outputs,
            policy,
        )
        async with holding(self.store, "reshard") as mark:
            await work.run(mark, partitioners, catch_up=catch_up)
        self.counts = counts
        return said

    async def export(self) -> Export:
        """What the store holds."""
        return await export_state(self.store, EngineConfig(), DEFAULT_WINDOWS, "all")

    async def shown(self, now_us: int | None = None) -> tuple[list[str], str]:
        """Rows and windows as an export has them."""
        export = await self.export()
        windows = canonical(export.windows_document(now_us)) + "\n"
        return [canonical(row) for row in export.rows], windows

    async def audit(self) -> Audit:
        """Windows against conversations."""
        return await audit(
            self.store, AuditOptions(self.identity, EngineConfig(), DEFAULT_WINDOWS), never
        )


@dataclass
class ScriptedLogs:
    """The topics of a group as they are found by a command."""

    group: Group
    new: dict[str, int]
    gone: bool = False  # the old topics

    async def counts(self, topics: Collection[str]) -> dict[str, int]:
        """See ``Logs``."""
        return {topic: count for topic, count in self._all.items() if topic in topics}

    async def extents(self, places: Collection[Place]) -> dict[Place, Extent]:
        """See ``Logs``."""
        firsts, logs = self.group.firsts, self.group.logs
        return {p: Extent(firsts.get(p, 0), len(logs.get(p, []))) for p in places}

    async def records(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> AsyncIterator[Record]:
        """See ``Logs``."""
        for place, start in starts.items():
            for record in self.group.logs.get(place, [])[start : ends[place]]:
                yield record

    @property
    def _all(self) -> dict[str, int]:
        return {**({} if self.gone else self.group.counts), **self.new}


@st.composite
def changes(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, int]]:
    """The counts before and after: partitions are added, or topics are new."""
    names = draw(st.sampled_from([("events",), ("events", "labels")]))
    before, after = draw(COUNTS), draw(COUNTS)
    old = dict.fromkeys(names, before)
    if draw(st.booleans()):
        return old, dict.fromkeys(names, max(before, after))
    return old, dict.fromkeys([name + "-2" for name in names], after)


def counts_between(before: Mapping[str, int], after: Mapping[str, int]) -> st.SearchStrategy[int]:
    """What topics may have had on their way: new ones any count up to the last."""
    return st.integers(max(before.get(topic, 1) for topic in after), max(after.values()))


def sound(found: Audit) -> bool:
    """Whether every sum is as it must be."""
    return (found.differences, found.unreadable, found.busy) == ([], [], [])


async def whole(group: Group) -> bool:
    """Whether both kinds of readers of the topic end with the rows of the store."""
    assert group.topic is not None
    rows: dict[str, list[object]] = {}
    for row in (await group.export()).rows:
        rows.setdefault(str(row["conversation_id"]), []).append(row)
    every = group.options.turn_scope == "all"
    wanted = {c: canonical(held if every else held[-1]).encode() for c, held in rows.items()}
    return all(
        {c: m.value for c, m in kept.items() if m.value is not None} == wanted
        for kept in (group.topic.compacted(), group.topic.largest())
    )


def place(record: Record) -> tuple[str, int, int]:
    """Where a record lies."""
    return record.topic, record.partition, record.offset


@pytest.mark.slow
@given(st.data())
def test_a_reshard_in_the_middle_of_a_stream(data: st.DataObject) -> None:
    """Rows, windows and dead letters are the reference's, whatever was read before it, and whoever
    produced meanwhile with the old counts, the new, or others in between."""
    stream: list[KeyedRecord] = [(key, value, None) for key, value, _ in data.draw(streams())]
    old, new = data.draw(changes())
    between = dict.fromkeys(new, data.draw(counts_between(old, new)))
    batches = data.draw(arrivals(stream))
    cut = data.draw(st.integers(0, len(batches)))
    share = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    stale = data.draw(st.integers(0, 2))
    sent = [record for batch in batches for record in batch]
    expected = oracle.evaluate(
        [oracle.Record(value, key, None) for key, value, _ in sent], turn_scope="all", keyed=True
    )

    async def run() -> Group:
        group = Group(old)
        for batch in batches[:cut]:
            group.send(batch)
            await group.read(share)
        if not cut:
            await group.read()
        for batch in batches[cut : cut + stale]:  # while nobody reads
            group.send(batch[::3])
            group.send(batch[1::3], between)
            group.send(batch[2::3], new)
        await group.reshard(new)
        assert sound(await group.audit())
        for batch in batches[cut + stale :]:
            group.send(batch)
            await group.read()
        await group.read()
        assert sound(await group.audit())
        return group

    group = asyncio.run(run())

    assert asyncio.run(group.shown()) == (expected.rows, expected.windows())
    unfit = {sent[number][:2] for number, _ in expected.invalid}
    assert sorted(place(letter.record) for letter in group.letters.letters) == sorted(
        place(record)
        for log in group.logs.values()
        for record in log
        if (record.key, record.value) in unfit
    )


@pytest.mark.slow
@given(st.data())
def test_partitions_that_were_added_under_running_workers(data: st.DataObject) -> None:
    """Workers read on by the old count while producers see the new one, or one in between, so that
    conversations come to lie in pieces: after a reshard rows, also those on the output topic, and
    windows are the reference's."""
    stream: list[KeyedRecord] = [(key, value, None) for key, value, _ in data.draw(streams())]
    names = data.draw(st.sampled_from([("events",), ("events", "labels")]))
    before, after = data.draw(st.sampled_from(RAISED))
    old, new = dict.fromkeys(names, before), dict.fromkeys(names, after)
    between = dict.fromkeys(names, data.draw(counts_between(old, new)))
    batches = data.draw(arrivals(stream))
    cut = data.draw(st.integers(0, len(batches)))
    mixed = data.draw(st.integers(cut, len(batches)))
    share = data.draw(st.sampled_from([0.5, 1.0]))
    sent = [record for batch in batches for record in batch]
    expected = oracle.evaluate(
        [oracle.Record(value, key, None) for key, value, _ in sent], turn_scope="all", keyed=True
    )

    async def run() -> Group:
        group = Group(old, topic=MemoryTopic())
        await group.read()
        for batch in batches[:cut]:
            group.send(batch)
            await group.read()
        for batch in batches[cut:mixed]:
            group.send(batch[::3])
            group.send(batch[1::3], between)
            group.send(batch[2::3], new)
            await group.read(share)
        await group.reshard(new)
        assert sound(await group.audit())
        assert await whole(group)
        for batch in batches[mixed:]:
            group.send(batch)
            await group.read()
        await group.read()
        assert sound(await group.audit())
        assert await whole(group)
        return group

    group = asyncio.run(run())

    assert asyncio.run(group.shown()) == (expected.rows, expected.windows())


@given(st.data())
def test_windows_do_not_go_back(data: st.DataObject) -> None:
    """With record times that pass windows by, and conversations that expire, sums and rows stay as
    they are through a reshard, and conversations still add up to windows."""
    stream = data.draw(streams())
    old, new = data.draw(changes())
    batches = data.draw(arrivals(stream))
    cut = data.draw(st.integers(0, len(batches)))
    beyond_ms = data.draw(st.sampled_from([-1, 0, 1_000, 3_600_000]))

    async def run() -> None:
        group = Group(old)
        await group.read()
        for batch in batches[:cut]:
            group.send(batch)
            await group.read()
        await group.expire(beyond_ms)
        now_us = (await group.export()).default_now_us()
        before = await group.shown(now_us)
        await group.reshard(new, catch_up=False)
        assert (await group.export()).default_now_us() == now_us
        assert await group.shown(now_us) == before
        assert sound(await group.audit())
        for batch in batches[cut:]:
            group.send(batch)
            await group.read()
        assert sound(await group.audit())
        now_us = (await group.export()).default_now_us()
        after = await group.shown(now_us)
        await group.reshard(dict.fromkeys([f"{topic}-3" for topic in new], 3), catch_up=False)
        assert await group.shown(now_us) == after

    asyncio.run(run())
