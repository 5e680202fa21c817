"""Scripted brokers: logs with holes, a consumer group, and the client that a worker reads with."""

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
    """One member of the group, which hears of a rebalance when it is told to.

    ``at_once`` records are in one answer.
    """

    due: set[TopicPartition]
    at_once: int

    def is_member_for(self, number: int) -> bool:
        """Whether the group believes that it has this number for every topic."""
        ...

    def notice(self) -> None:
        """Hear of the last rebalance."""
        ...


class Brokers:
    """The logs of some topics, what the group has committed, and who its members are.

    A log's entry without a record is a marker of a transaction. ``on_commit`` hears of every
    commit. What is appended is not there until it is produced, in the order of appending.
    ``unreadable`` says where a batch begins that the client cannot read, and what it raises.
    """

    def __init__(self, topics: Sequence[str], partitions: int) -> None:
        self.topics, self.partitions = tuple(topics), partitions
        self.logs: dict[TopicPartition, list[Record | None]] = {
            TopicPartition(topic, n): [] for topic in topics for n in range(partitions)
        }
        self.ends = dict.fromkeys(self.logs, 0)
        self.firsts: dict[TopicPartition, int] = {}  # where what is left begins
        self._coming: deque[tuple[TopicPartition, int]] = deque()  # and when it comes
        self.unreadable: dict[TopicPartition, tuple[int, KafkaError]] = {}
        self.commits: Commits = {}
        self.members: list[Member] = []
        self.generation = 0
        self.on_commit: Callable[[Commits], None] = lambda commits: None

    def append(self, place: TopicPartition, key: bytes | None, value: bytes, stamp_ms: int) -> None:
        """One record at the end of a log, not yet produced."""
        log = self.logs[place]
        log.append(Record(value, key, stamp_ms, place.topic, place.partition, len(log)))
        self._coming.append((place, stamp_ms))

    def mark(self, place: TopicPartition, stamp_ms: int) -> None:
        """A transaction's end, not yet produced."""
        self.logs[place].append(None)
        self._coming.append((place, stamp_ms))

    def produce(self, entries: int) -> int | None:
        """So many entries more are there; the time of the last one, if there was one."""
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
        """Each topic has one more."""
        for topic in self.topics:
            place = TopicPartition(topic, self.partitions)
            self.logs[place], self.ends[place] = [], 0
        self.partitions += 1

    def commit(self, commits: Commits) -> None:
        """A member that the group knows has committed."""
        self.commits |= commits
        self.on_commit(commits)

    def rebalance(
        self,
        members: Iterable[Member],
        unaware: Collection[Member] = (),
        *,
        split: bool = False,
    ) -> None:
        """Share the partitions out among ``members``; the ``unaware`` go on as if nothing were.

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
    """What a worker uses of aiokafka's consumer; a rebalance is noticed when it is told to."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._listener: ConsumerRebalanceListener | None = None
        self._coordinator = self  # whose method the worker uses too
        self.at_once = 10  # records in one answer
        self.fails_after: int | None = None  # records that the next answer loses, and raises
        self.due: set[TopicPartition] = set()
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self._generation = 0

    # -- the group

    def notice(self) -> None:
        """Hear of the last rebalance."""
        if self not in self._brokers.members or self._generation == self._brokers.generation:
            return
        assert self._listener is not None
        self.revoke()
        self._assigned, self._generation = set(self.due), self._brokers.generation
        self._positions.clear()
        self._paused.clear()
        self._listener.on_partitions_assigned(self._assigned)

    def revoke(self) -> None:
        """Hear that the group is about to hand out partitions again."""
        assert self._listener is not None
        self._listener.on_partitions_revoked(self._assigned)

    def holds(self, number: int) -> bool:
        """Whether it believes to have this number for every topic."""
        return self._places(number) <= self._assigned

    def is_member_for(self, number: int) -> bool:
        """Whether the group believes so too."""
        current = self._generation == self._brokers.generation and self in self._brokers.members
        return current and self.holds(number)

    def _places(self, number: int) -> set[TopicPartition]:
        return {TopicPartition(topic, number) for topic in self._brokers.topics}

    def subscribe(self, topics: object, listener: ConsumerRebalanceListener) -> None:
        """Remember whom to tell."""
        self._listener = listener

    async def start(self) -> None:
        """Nothing to connect to."""

    async def stop(self) -> None:
        """Nothing to let go of."""

    def assignment(self) -> frozenset[TopicPartition]:
        """What it believes to have."""
        return frozenset(self._assigned)

    async def commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """Refused unless the group holds it for a member of this generation."""
        self._need(offsets)
        await self.commit_offsets(None, offsets)

    async def commit_offsets(self, _: None, offsets: Mapping[TopicPartition, Any]) -> None:
        """The same for any partition, as the coordinator takes it."""
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
        """What the group has committed, as an admin client tells it."""
        none = OffsetAndMetadata(-1, "")
        return {place: self._brokers.commits.get(place, none) for place in places}

    async def close(self) -> None:
        """Nothing to let go of."""

    # -- reading

    def pause(self, *places: TopicPartition) -> None:
        """Fetch nothing there."""
        self._need(places)
        self._paused |= set(places)

    def resume(self, *places: TopicPartition) -> None:
        """Fetch there again."""
        self._need(places)
        self._paused -= set(places)

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go on from there."""
        self._need([place])
        self._positions[place] = offset

    async def topics(self) -> set[str]:
        """Those that there are."""
        return set(self._brokers.topics)

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The numbers that the topic has."""
        return {place.partition for place in self._brokers.logs if place.topic == topic}

    async def position(self, place: TopicPartition) -> int:
        """Where it goes on; the commit where it was not told."""
        self._need([place])
        if place not in self._positions:
            commit = self._brokers.commits.get(place)
            if commit is None:
                raise NoOffsetForPartitionError(place)
            self._positions[place] = commit.offset
        return self._positions[place]

    async def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[Any, int]:
        """Where what is left of the logs begins."""
        return {place: self._brokers.firsts.get(place, 0) for place in places}

    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end."""
        return {place: self._brokers.ends[place] for place in places}

    def highwater(self, place: TopicPartition) -> int:
        """Where the log ends, with records of transactions that are open."""
        return len(self._brokers.logs[place])

    def last_stable_offset(self, place: TopicPartition) -> int:
        """Where the first open transaction begins."""
        return self._brokers.ends[place]

    async def offsets_for_times(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each log that is not older than that."""
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
        """The next records, of all that is not paused; markers are passed.

        What was taken before a batch that cannot be read is lost with the call, as aiokafka does.
        """
        found: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]] = {}
        left = self.at_once
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
    """Brokers that give this one client to whoever asks, and refuse nobody."""

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
        """A script refuses nobody."""
        return ""

    async def check_rights(self) -> None:
        """A script refuses nobody."""

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
