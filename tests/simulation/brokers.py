"""Scripted brokers: logs with offset gaps, a consumer group, and the worker's Kafka client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    CorruptRecordException,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
)
from aiokafka.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp

from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.kafka.cluster import Cluster, Group

Commits = dict[TopicPartition, OffsetAndMetadata]


class Member(Protocol):
    """One member of the group, which notices a rebalance only when the test says so.

    One answer has at most ``max_records`` records.
    """

    due: set[TopicPartition]
    max_records: int

    def is_member_for(self, number: int) -> bool:
        """Whether the group has assigned this partition number of every topic to it."""
        ...

    def notice(self) -> None:
        """Notice the last rebalance."""
        ...


class Brokers:
    """The logs of some topics, what the group has committed, and who its members are.

    A log's entry without a record is a marker of a transaction. ``on_commit`` is called with every
    commit. Appended entries become visible when they are produced, in the order of appending.
    ``unreadable`` has, by partition, the offset of a batch that the client cannot read and the
    error that it raises.
    """

    def __init__(self, topics: Sequence[str], partitions: int) -> None:
        self.topics, self.partitions = tuple(topics), partitions
        self.logs: dict[TopicPartition, list[Record | None]] = {
            TopicPartition(topic, n): [] for topic in topics for n in range(partitions)
        }
        self.ends = dict.fromkeys(self.logs, 0)
        self.firsts: dict[TopicPartition, int] = {}  # first offset that is retained
        self._coming: deque[tuple[TopicPartition, int]] = deque()  # with its time
        self.unreadable: dict[TopicPartition, tuple[int, KafkaError]] = {}
        self.silent: Exception | None = None  # raised where the ends of logs are asked for
        self.commits: Commits = {}
        self.members: list[Member] = []
        self.generation = 0
        self.on_commit: Callable[[Commits], None] = lambda commits: None

    def append(self, place: TopicPartition, key: bytes | None, value: bytes, stamp_ms: int) -> None:
        """Add a record at the end of a log, to be produced later."""
        log = self.logs[place]
        log.append(Record(value, key, stamp_ms, place.topic, place.partition, len(log)))
        self._coming.append((place, stamp_ms))

    def mark(self, place: TopicPartition, stamp_ms: int) -> None:
        """Add the end of a transaction, to be produced later."""
        self.logs[place].append(None)
        self._coming.append((place, stamp_ms))

    def produce(self, entries: int) -> int | None:
        """Produce this many entries; returns the time of the last one, if there was one."""
        stamp_ms = None
        while self._coming and entries:
            place, stamp_ms = self._coming.popleft()
            self.ends[place] += 1
            entries -= 1
        return stamp_ms

    def another_group(self) -> Brokers:
        """The same logs, as a consumer group of another name sees them."""
        other = Brokers(self.topics, self.partitions)
        other.logs, other.ends, other.firsts = self.logs, self.ends, self.firsts
        other.unreadable = self.unreadable
        return other

    def add_partition(self) -> None:
        """Add a partition to each topic."""
        for topic in self.topics:
            place = TopicPartition(topic, self.partitions)
            self.logs[place], self.ends[place] = [], 0
        self.partitions += 1

    def commit(self, commits: Commits) -> None:
        """Store the commit of a current member."""
        self.commits |= commits
        self.on_commit(commits)

    def rebalance(
        self,
        members: Iterable[Member],
        unaware: Collection[Member] = (),
        *,
        split: bool = False,
    ) -> None:
        """Assign the partitions to ``members``; the ``unaware`` do not notice.

        ``split``: topic by topic in another order, so that numbers are held for some topics only.
        """
        self.members = list(members)
        self.generation += 1
        for at, member in enumerate(self.members):
            member.due = {
                TopicPartition(topic, number)
                for turn, topic in enumerate(self.topics)
                for number in range(self.partitions)
                if (number + (turn if split else 0)) % len(self.members) == at
            }
        for member in self.members:
            if member not in unaware:
                member.notice()


class ScriptedConsumer:
    """The part of aiokafka's consumer that a worker uses; notices rebalances only when told to."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._listener: ConsumerRebalanceListener | None = None
        self._coordinator = self  # whose method the worker uses too
        self.max_records = 10  # records in one answer
        self.fails_after: int | None = None  # records that the next answer loses, and raises
        self.due: set[TopicPartition] = set()
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._generation = 0

    # -- the group

    def notice(self) -> None:
        """Notice the last rebalance."""
        if self not in self._brokers.members or self._generation == self._brokers.generation:
            return
        assert self._listener is not None
        self.revoke()
        self._assigned, self._generation = set(self.due), self._brokers.generation
        self._positions.clear()
        self._paused.clear()
        self._listener.on_partitions_assigned(self._assigned)

    def revoke(self) -> None:
        """Revoke the partitions before the group assigns them anew."""
        assert self._listener is not None
        self._listener.on_partitions_revoked(self._assigned)

    def holds(self, number: int) -> bool:
        """Whether the consumer considers this partition number of every topic assigned."""
        return self._places(number) <= self._assigned

    def is_member_for(self, number: int) -> bool:
        """Whether the group agrees."""
        current = self._generation == self._brokers.generation and self in self._brokers.members
        return current and self.holds(number)

    def _places(self, number: int) -> set[TopicPartition]:
        return {TopicPartition(topic, number) for topic in self._brokers.topics}

    def subscribe(self, topics: object, listener: ConsumerRebalanceListener) -> None:
        """Store the listener."""
        self._listener = listener

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer considers assigned."""
        return frozenset(self._assigned)

    async def commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """Commit; refused unless the consumer is a member of the current generation."""
        self._need(offsets)
        await self.commit_offsets(None, offsets)

    async def commit_offsets(self, _: None, offsets: Mapping[TopicPartition, Any]) -> None:
        """Commit for any partition, as the coordinator does."""
        if self._generation != self._brokers.generation or self not in self._brokers.members:
            raise CommitFailedError("another generation")
        commits = {
            place: o if isinstance(o, OffsetAndMetadata) else OffsetAndMetadata(o, "")
            for place, o in offsets.items()
        }
        self._brokers.commit(commits)

    async def list_consumer_group_offsets(
        self, group: str, coordinator: None, places: Iterable[TopicPartition]
    ) -> Commits:
        """The commits of the group, in the form of an admin client."""
        none = OffsetAndMetadata(-1, "")
        return {place: self._brokers.commits.get(place, none) for place in places}

    async def close(self) -> None:
        """Do nothing."""

    # -- reading

    def pause(self, *places: TopicPartition) -> None:
        """Stop fetching from partitions."""
        self._need(places)
        self._paused |= set(places)

    def resume(self, *places: TopicPartition) -> None:
        """Fetch from partitions again."""
        self._need(places)
        self._paused -= set(places)

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue from an offset."""
        self._need([place])
        self._positions[place] = offset

    async def topics(self) -> set[str]:
        """All topics."""
        return set(self._brokers.topics)

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The partition numbers of a topic."""
        return {place.partition for place in self._brokers.logs if place.topic == topic}

    async def position(self, place: TopicPartition) -> int:
        """The next offset; without a seek, the committed one."""
        self._need([place])
        if place not in self._positions:
            commit = self._brokers.commits.get(place)
            if commit is None:
                raise NoOffsetForPartitionError(place)
            self._positions[place] = commit.offset
        return self._positions[place]

    async def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[Any, int]:
        """The first retained offsets."""
        return {place: self._brokers.firsts.get(place, 0) for place in places}

    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets, without open transactions."""
        if self._brokers.silent is not None:
            raise self._brokers.silent
        return {place: self._brokers.ends[place] for place in places}

    def highwater(self, place: TopicPartition) -> int:
        """The end offset, including records of open transactions."""
        return len(self._brokers.logs[place])

    def last_stable_offset(self, place: TopicPartition) -> int:
        """The offset of the first open transaction."""
        return self._brokers.ends[place]

    async def offsets_for_times(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each log at or after a time."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = dict.fromkeys(wanted)
        for place, since_ms in wanted.items():
            first = self._brokers.firsts.get(place, 0)
            for record in self._brokers.logs[place][first : self._brokers.ends[place]]:
                if record is not None and (record.timestamp_ms or 0) >= since_ms:
                    stamp_ms = record.timestamp_ms or 0
                    found[place] = OffsetAndTimestamp(record.offset, stamp_ms)
                    break
        return found

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, Any]:
        """The next records of partitions that are not paused; markers are skipped.

        What was taken before a batch that cannot be read is lost with the call, as aiokafka does.
        """
        found: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]] = {}
        left = self.max_records
        for place in sorted(self._assigned - self._paused):
            at, end = await self.position(place), self._brokers.ends[place]
            bad, error = self._brokers.unreadable.get(place, (None, None))
            while at < end and left:
                if self.fails_after == sum(map(len, found.values())):
                    self._positions[place], self.fails_after = at, None
                    raise CorruptRecordException("CRC")
                if at == bad:
                    self._positions[place] = at
                    raise error or KafkaError
                record = self._brokers.logs[place][at]
                at += 1
                if record is not None:
                    left -= 1
                    found.setdefault(place, []).append(_fetched(record))
            self._positions[place] = at
        return found

    def _need(self, places: Iterable[TopicPartition]) -> None:
        if missing := set(places) - self._assigned:
            raise IllegalStateError(f"not assigned: {sorted(missing)}")


class ScriptedCluster(Cluster):
    """A cluster with this one client, in which every access is allowed."""

    def __init__(self, brokers: Brokers, client: ScriptedConsumer) -> None:
        self._brokers = brokers
        self.client: Any = client

    def consumer(self, group: Group) -> Any:
        """See ``Cluster``."""
        return self.client

    def admin(self) -> Any:
        """See ``Cluster``."""
        return self.client

    async def lacking(self) -> str:
        """Every access is allowed."""
        return ""

    async def check_rights(self) -> None:
        """Every access is allowed."""

    async def time_at(self, place: TopicPartition, extent: Extent) -> int | None:
        """See ``Cluster``."""
        found = (one for one in self._brokers.logs[place][extent.first : extent.end] if one)
        return next((record.timestamp_ms for record in found), None)

    async def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """See ``Cluster``."""
        return {t: self._brokers.partitions for t in topics if t in self._brokers.topics}


def _fetched(record: Record) -> ConsumerRecord[bytes, bytes]:
    stamp_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
    return ConsumerRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=stamp_ms,
        timestamp_type=0,
        key=record.key,
        value=record.value,
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=0,
        headers=(),
    )
