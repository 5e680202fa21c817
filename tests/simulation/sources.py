"""The source of a worker's loop in a simulation: a member of the group of scripted brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.worker.source import Assignment, Commit, Fetched, PartitionId
from tests.simulation.brokers import Brokers


class ScriptedSource:
    """``CommittedSource`` over scripted brokers; notices rebalances only when told to.

    One answer has at most ``max_records`` records, of the partition ``only`` if it is set.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.max_records = 10
        self.only: PartitionId | None = None
        self.due: set[TopicPartition] = set()
        self.assignment: Assignment | None = None
        self.acknowledged: dict[PartitionId, Commit] = {}
        self._next: dict[PartitionId, int] = {}
        self._generation = 0

    # -- the group

    def notice(self) -> None:
        """Notice the last rebalance."""
        if self in self._brokers.members and self._generation != self._brokers.generation:
            self._generation = self._brokers.generation
            self.assignment = Assignment(frozenset(PartitionId(*place) for place in self.due))
            self._next.clear()

    def _is_member(self) -> bool:
        """Whether it is a member of the current generation."""
        return self._generation == self._brokers.generation and self in self._brokers.members

    def is_member_for(self, number: int) -> bool:
        """Whether the group has assigned this partition number of every topic to it."""
        places = {PartitionId(topic, number) for topic in self._brokers.topics}
        return self._is_member() and self._holds(places)

    def _holds(self, places: Collection[PartitionId]) -> bool:
        return self.assignment is not None and self.assignment.places >= set(places)

    @property
    def rebalancing(self) -> bool:
        """See ``Source``."""
        return self.assignment is None

    async def join(self) -> None:
        """Do nothing."""

    async def leave(self) -> None:
        """Do nothing."""

    async def partition_counts(self) -> dict[str, int]:
        """See ``Source``."""
        return dict.fromkeys(self._brokers.topics, self._brokers.partitions)

    async def confirm(self, commits: Mapping[PartitionId, Commit]) -> bool:
        """Commit; refused unless it is a member of the current generation."""
        if not self._is_member():
            self.assignment = None
        if not self._holds(commits):
            return False
        await self.commit_for_all(commits)
        return True

    async def commit_for_all(self, commits: Mapping[PartitionId, Commit]) -> None:
        """See ``CommittedSource``."""
        self._brokers.commit(
            {TopicPartition(*p): OffsetAndMetadata(*commit) for p, commit in commits.items()}
        )

    async def commit(self, commits: Mapping[PartitionId, Commit]) -> None:
        """Commit; a refusal is raised like any other failure."""
        assignment = self.assignment
        if await self.confirm(commits):
            self.acknowledged |= commits
        self.assignment = assignment

    async def committed(self, places: Collection[PartitionId]) -> dict[PartitionId, Commit]:
        """See ``Source``."""
        found = {place: self._brokers.commits.get(TopicPartition(*place)) for place in places}
        return {p: Commit(one.offset, one.metadata) for p, one in found.items() if one is not None}

    # -- reading

    def read_from(self, offsets: Mapping[PartitionId, int]) -> bool:
        """See ``Source``."""
        if not self._holds(offsets):
            return False
        self._next |= offsets
        for place in offsets:
            self.acknowledged.pop(place, None)
        return True

    def stop_reading(self, places: Collection[PartitionId]) -> None:
        """See ``Source``."""
        for place in places:
            self._next.pop(place, None)

    async def passed(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """See ``Source``."""
        return {place: self._next[place] for place in places if place in self._next}

    async def extents(self, places: Collection[PartitionId]) -> dict[PartitionId, Extent]:
        """See ``Source``."""
        firsts, ends = self._brokers.firsts, await self.ends(places)
        return {p: Extent(firsts.get(TopicPartition(*p), 0), ends[p]) for p in places}

    async def ends(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """See ``Source``."""
        if self._brokers.silent is not None:
            raise self._brokers.silent
        return {place: self._brokers.ends[TopicPartition(*place)] for place in places}

    async def first_since(self, times_ms: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """See ``CommittedSource``."""
        found = {}
        for place, since_ms in times_ms.items():
            for record in self._records(place, (await self.extents([place]))[place]):
                if (record.timestamp_ms or 0) >= since_ms:
                    found[place] = record.offset
                    break
        return found

    async def time_at(self, place: PartitionId, extent: Extent) -> int | None:
        """See ``CommittedSource``."""
        return next((record.timestamp_ms for record in self._records(place, extent)), None)

    def shows_all(self, place: PartitionId) -> bool:
        """See ``CommittedSource``."""
        at = TopicPartition(*place)
        return len(self._brokers.logs[at]) == self._brokers.ends[at]

    def _records(self, place: PartitionId, extent: Extent) -> Iterator[Record]:
        log = self._brokers.logs[TopicPartition(*place)]
        return (record for record in log[extent.first : extent.end] if record is not None)

    async def poll(self) -> Fetched:
        """The next records of the partitions that are read; markers are skipped."""
        found: dict[PartitionId, list[Record]] = {}
        left = self.max_records
        for place in sorted(self._next):
            if self.only not in (None, place):
                continue
            at = TopicPartition(*place)
            log, end = self._brokers.logs[at], self._brokers.ends[at]
            while self._next[place] < end and left:
                record = log[self._next[place]]
                self._next[place] += 1
                if record is not None:
                    left -= 1
                    found.setdefault(place, []).append(record)
        return Fetched(found)
