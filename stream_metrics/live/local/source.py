"""``CommittedSource`` over the log in the SQLite file: the only member of its group."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

import structlog

from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.local.database import FileUnavailable
from stream_metrics.live.local.log import READ_RECORDS, Log
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.source import Assignment, Commit, Fetched, PartitionId

WAIT_SECONDS: Final = 0.25  # for records; what other processes append is found after that
ANSWER_SECONDS: Final = 2.0  # for the end of a log, which is read at once on a disk that works

log = structlog.get_logger(__name__)


class LocalSource:
    """Reads some topics, each of which is partition 0, for a reader that commits by name.

    With ``hand_over`` it gets what this process appends without asking the file, and requests wait
    while it is behind.
    """

    rebalancing = False

    def __init__(
        self,
        records: Log,
        reader: str,
        topics: Collection[str],
        retry: Retry,
        *,
        max_records: int = READ_RECORDS,
        wait_seconds: float = WAIT_SECONDS,
        hand_over: bool = False,
    ) -> None:
        self.assignment: Assignment | None = None
        self.acknowledged: dict[PartitionId, Commit] = {}
        self._log = records
        self._reader = reader
        self._places = frozenset(PartitionId(topic, 0) for topic in topics)
        self._retry = retry
        self._max_records = max_records
        self._wait_seconds = wait_seconds
        self._listener = records.listen(topics, hand_over=hand_over)
        self._next: dict[PartitionId, int] = {}

    # -- the group

    async def join(self) -> None:
        """See ``Source``."""
        self._reassign()

    async def leave(self) -> None:
        """Do nothing."""

    def _reassign(self) -> None:
        self._next.clear()
        self.assignment = Assignment(self._places)

    async def partition_counts(self) -> dict[str, int]:
        """See ``Source``."""
        return {place.topic: 1 for place in self._places}

    async def confirm(self, commits: Mapping[PartitionId, Commit]) -> bool:
        """See ``Source``."""
        await self.commit_for_all(commits)
        return True

    async def commit_for_all(self, commits: Mapping[PartitionId, Commit]) -> None:
        """See ``CommittedSource``."""
        rows = {place.topic: (commit.offset, commit.note) for place, commit in commits.items()}
        await self._log.commit(self._reader, rows)

    async def commit(self, commits: Mapping[PartitionId, Commit]) -> None:
        """See ``Source``; what is committed already is not written again."""
        if commits.items() <= self.acknowledged.items():
            return
        try:
            await self.commit_for_all(commits)
        except FileUnavailable as error:
            log.warning("commit failed", why=str(error))
        else:
            self.acknowledged |= commits

    async def committed(self, places: Collection[PartitionId]) -> dict[PartitionId, Commit]:
        """See ``Source``."""
        found = await self._log.committed(self._reader)
        return {
            place: Commit(*found[place.topic])
            for place in places
            if place in self._places and place.topic in found
        }

    # -- reading

    def read_from(self, offsets: Mapping[PartitionId, int]) -> bool:
        """See ``Source``."""
        if not self._places >= offsets.keys():
            return False
        self._next |= offsets
        for place in offsets:
            self.acknowledged.pop(place, None)
        return True

    def stop_reading(self, places: Collection[PartitionId]) -> None:
        """See ``Source``."""
        for place in places:
            self._next.pop(place, None)

    async def poll(self) -> Fetched:
        """See ``Source``; raises ``Stopped``."""
        self._listener.heard.clear()
        if not (fetched := await self._fetch()).records:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._listener.heard.wait(), self._wait_seconds)
                fetched = await self._fetch()
        return fetched

    async def _fetch(self) -> Fetched:
        """The next records; none, but a new assignment, if some were deleted before."""
        wanted = dict(self._next)
        offsets = {place.topic: offset for place, offset in wanted.items()}
        read = self._just_appended(offsets)
        if missing := {topic: at for topic, at in offsets.items() if topic not in read}:
            read |= await self._retry(lambda: self._log.read(missing, self._max_records))
        found = {}
        for place, offset in wanted.items():
            records = read[place.topic]
            if self._next.get(place) != offset or not records:
                continue  # somebody has sought meanwhile, or there is nothing
            if records[0].offset != offset:
                self._reassign()
                return Fetched()
            self._next[place] = records[-1].offset + 1
            self._log.read_up_to(place.topic, self._next[place])
            found[place] = records
        return Fetched(found)

    def _just_appended(self, offsets: Mapping[str, int]) -> dict[str, list[Record]]:
        """The next records of the topics that have them in memory."""
        tails = self._listener.tails
        found = {
            topic: tails[topic].take(at, self._max_records)
            for topic, at in offsets.items()
            if topic in tails
        }
        return {topic: records for topic, records in found.items() if records}

    async def passed(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """See ``Source``."""
        return {place: self._next[place] for place in places if place in self._next}

    async def extents(self, places: Collection[PartitionId]) -> dict[PartitionId, Extent]:
        """See ``Source``."""
        found = await self._log.extents([place.topic for place in places])
        return {place: found[place.topic] for place in places}

    async def ends(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """See ``Source``."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await self._log.ends([place.topic for place in places])
                return {place: found[place.topic] for place in places}
        except TimeoutError:
            raise FileUnavailable(f"the disk has not answered for {ANSWER_SECONDS:.0f} s") from None

    async def first_since(self, times_ms: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """See ``CommittedSource``."""
        found = await self._log.first_since({p.topic: ms for p, ms in times_ms.items()})
        return {place: found[place.topic] for place in times_ms if place.topic in found}

    async def time_at(self, place: PartitionId, extent: Extent) -> int | None:
        """See ``CommittedSource``."""
        return await self._log.time_at(place.topic, extent)

    def shows_all(self, place: PartitionId) -> bool:
        """See ``CommittedSource``."""
        return True
