"""Reads topics from the offsets that a consumer group has committed.

Here the committed offsets are authoritative, unlike for state (``worker.loop``): nothing else
stores which records were copied or converted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.ports import Position
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.lag import AnsweredEnds, Gauges, LogLag
from stream_metrics.live.worker.options import Policy, Start
from stream_metrics.live.worker.retry import Reasons, RetryPolicy
from stream_metrics.live.worker.source import (
    Assignment,
    Commit,
    PartitionId,
    RightsMissing,
    Source,
    SourceUnavailable,
)
from stream_metrics.live.worker.watchdog import WorkerStatus

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 1.5  # how often the brokers are asked for the ends
ANSWER_WITHIN_SECONDS: Final = 3.0
NOTE_SECONDS: Final = 3.0  # how often the metadata are committed without a new offset
_NOTE: Final = "stream-metrics: read up to "


def commit_note(read_up_to_ms: int) -> str:
    """The metadata of a committed offset: record time up to which the partition has been read.

    >>> note_time_ms(commit_note(1_718_020_800_000))
    1718020800000
    """
    return f"{_NOTE}{read_up_to_ms}"


def note_time_ms(text: str) -> int:
    """The time in commit metadata; 0 if they were not written by this module."""
    digits = text.removeprefix(_NOTE)
    return int(digits) if text.startswith(_NOTE) and digits.isdecimal() else 0


class CommittedSource(Source, Protocol):
    """A source that is read from its group's committed offsets."""

    async def commit_for_all(self, commits: Mapping[PartitionId, Commit]) -> None:
        """Commit for any partition, also other members'; raises ``Unavailable``."""
        ...

    async def first_since(self, times_ms: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """The first offset at or after each time; partitions without such a record are omitted."""
        ...

    async def time_at(self, place: PartitionId, extent: Extent) -> int | None:
        """The timestamp of the first record of the extent; None if there is none."""
        ...

    def shows_all(self, place: PartitionId) -> bool:
        """Whether no transaction is open, so that later records cannot have earlier times."""
        ...


@dataclass(frozen=True, slots=True)
class InputOptions:
    """``in_order`` tells whether the records of a log are in the order of their timestamps."""

    group: str
    on_offset_gap: Policy = "halt"
    start: Start = "earliest"
    in_order: bool = True


@dataclass(slots=True)
class InputLog:
    """One assigned log: its lag, its position, and whether it is halted."""

    lag: LogLag
    position: Position = field(default_factory=lambda: Position(0))
    halted: bool = False

    def read_up_to_ms(self) -> int:
        """Record time up to which all records have been read; 0 if that is not known."""
        return self.lag.read_up_to_ms(self.position.offset) or 0


class CommittedInputs:
    """Implements ``worker.repartition.Inputs``: reads each partition from the group's commit.

    A partition without a commit is read from its first record, unless the group is new (see
    ``InputOptions.start``).

    An offset gap means that the log lacks records that the group has not read. The partition is
    halted, or with the policy ``continue`` read from the nearest offset.
    """

    def __init__(
        self,
        source: CommittedSource,
        options: InputOptions,
        retry: RetryPolicy,
        reasons: Reasons,
        gauges: Gauges,
        clock: Clock,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self._options = options
        self._retry = retry
        self._reasons = reasons
        self._gauges = gauges
        self._clock = clock
        self._monotonic = monotonic
        self._unanswered = SourceUnavailable.reason  # the last reason, which an answer clears
        self._joined = False
        self._assignment: Assignment | None = None  # the one that was processed
        self._all: list[PartitionId] = []  # every partition of the topics
        self._logs: dict[PartitionId, InputLog] = {}
        self._ends = AnsweredEnds(gauges, monotonic)
        self._next_note = self._next_ask = monotonic()
        self._steps = 0
        self._rounds = 0

    # -- worker.repartition.Inputs --------------------------------------------------------------

    async def fetch(self) -> list[Record]:
        """See ``Inputs.fetch``; raises the source's errors that forbid to continue."""
        if not self._joined:
            await self.source.join()
            self._joined = True
        self._rounds += 1
        self._reasons.beat()
        if self._changed and self.source.assignment is not None:
            await self._follow_group(self.source.assignment)
        fetched = await self.source.poll()
        for place, why in fetched.unreadable.items():
            if place in self.reading():
                self._halt(place, why)
        if self._changed:
            return []  # the new owner reads these records again
        reading = self.reading()
        wanted = {place: records for place, records in fetched.records.items() if place in reading}
        for place, records in wanted.items():
            self._read(reading[place], records)
        return [record for records in wanted.values() for record in records]

    async def commit(self) -> None:
        """See ``Inputs.commit``. After a failure, the next commit covers it."""
        if self._changed:
            return
        now = self._monotonic()
        if now >= self._next_ask:
            self._next_ask = now + ASK_SECONDS
            await self.ask()
        commits, done = self.commits(), self.source.acknowledged
        news = any(p not in done or done[p].offset != commits[p].offset for p in commits)
        if commits and (news or now >= self._next_note):
            self._next_note = now + NOTE_SECONDS
            await self.source.commit(commits)

    async def run(self, turn: Callable[[], Awaitable[object]]) -> None:
        """Call ``turn`` round by round until the worker stops, and tell the lag beside it."""
        watching = asyncio.create_task(self._retry.rounds(self._watch))
        try:
            await self._retry.rounds(turn)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def stop(self) -> None:
        """Leave the group."""
        await self.source.leave()

    def status(self, waiting: frozenset[str]) -> WorkerStatus:
        """The status for the watchdog; ``waiting`` names what it waits for."""
        logs = {
            (place.partition, place.topic): input_log for place, input_log in self.reading().items()
        }
        return WorkerStatus(
            {place: input_log.position.offset for place, input_log in logs.items()},
            {
                place: input_log.lag.behind(input_log.position.offset)
                for place, input_log in logs.items()
            },
            taking_over=self._changed,
            rebalancing=self.source.rebalancing,
            steps=self._steps,
            rounds=self._rounds,
            waiting=waiting,
        )

    def reading(self) -> dict[PartitionId, InputLog]:
        """The assigned logs that are not halted."""
        return (
            {}
            if self._changed
            else {p: input_log for p, input_log in self._logs.items() if not input_log.halted}
        )

    @property
    def _changed(self) -> bool:
        """Whether a new assignment is to be processed or awaited."""
        return self.source.assignment is None or self.source.assignment is not self._assignment

    # -- where to read --------------------------------------------------------------------------

    async def _follow_group(self, assignment: Assignment) -> None:
        """Find the start offsets of the assigned partitions, and start reading."""
        places = sorted(assignment.places)
        counts = await self._retry(self.source.partition_counts)
        known = {PartitionId(topic, n) for topic, count in counts.items() for n in range(count)}
        self._all = sorted(known | assignment.places)
        commits = await self._commits(assignment)
        if commits is None:  # another member will commit the first offsets
            await self._retry.pause(ASK_SECONDS)
            return
        asked_ms = self._clock.now_ms()
        extents = await self._retry(lambda: self.source.extents(places)) if places else {}
        if self.source.assignment is not assignment:
            return
        for place in self._logs:
            self._reasons.clear(f"{place.topic}-{place.partition}")
        for place in self._logs.keys() - extents.keys():
            self._gauges.forget_partition(*place)
        in_order = self._options.in_order
        self._logs = {
            place: InputLog(
                self._logs[place].lag if place in self._logs else LogLag(in_order=in_order)
            )
            for place in places
        }
        for place, extent in extents.items():
            self._logs[place].lag.set_end(extent.end, asked_ms)
            self.begin(place, extent, commits.get(place))
        starts = await self.start_offsets(extents, commits)
        if self.source.assignment is not assignment or not self.source.read_from(starts):
            return
        self._assignment = assignment
        self._steps += 1
        self._next_note = self._monotonic()
        self._reasons.clear("assignment")
        log.info("input partitions", partitions=[f"{p.topic}/{p.partition}" for p in places])

    async def _commits(self, assignment: Assignment) -> dict[PartitionId, Commit] | None:
        """The group's commits; None while another member has to make the first ones.

        A new group that starts at the ends commits the ends of all partitions, so that a partition
        without a commit is known to have been added later. Only the member with the first partition
        does so: a second commit could skip records produced since.
        """
        commits = await self._retry(lambda: self.source.committed(self._all))
        if commits or self._options.start == "earliest":
            return commits
        if self._all[0] not in assignment.places:
            return None
        note = commit_note(self._clock.now_ms())
        ends = await self._retry(lambda: self.source.ends(self._all))
        commits = {place: Commit(end, note) for place, end in ends.items()}
        await self._retry(lambda: self.source.commit_for_all(commits))
        return commits

    def begin(self, place: PartitionId, extent: Extent, commit: Commit | None) -> None:
        """Set the position of a partition, or halt it at an offset gap."""
        input_log = self._logs[place]
        if commit is None:
            input_log.lag.begin()
            input_log.position = Position(extent.first)
            return
        time_ms = note_time_ms(commit.note)
        input_log.lag.begin(time_ms)
        input_log.position = Position(extent.nearest(commit.offset), record_time_ms=time_ms)
        if input_log.position.offset != commit.offset:
            self._handle_gap(place, extent, commit.offset)

    def _handle_gap(self, place: PartitionId, extent: Extent, offset: int) -> None:
        """Halt a partition at an offset gap, unless the policy is ``continue``."""
        self._gauges.offset_gap(place.topic)
        continues = self._options.on_offset_gap == "continue"
        why = (
            f"partition {place.partition} of {place.topic} has the offsets {extent.first} to "
            f"{extent.end}, and the group {self._options.group} has read up to "
            f"{offset}: records were deleted before they were read, or the topic was recreated. "
            "To continue from the nearest offset, set `kafka.on_offset_gap` to continue"
        )
        action = "continue" if continues else "halt"
        log.error("offset gap", partition=place.partition, action=action, reason=why)
        if not continues:
            self._halt(place, why)

    def _halt(self, place: PartitionId, why: str) -> None:
        """Stop reading this input partition only."""
        log.error("input partition halted", reason=why)
        self._logs[place].halted = True
        self._reasons.hold(f"{place.topic}-{place.partition}", why)
        self.source.stop_reading([place])

    async def start_offsets(
        self, extents: Mapping[PartitionId, Extent], commits: Mapping[PartitionId, Commit]
    ) -> dict[PartitionId, int]:
        """The start offset of each partition that is not halted."""
        return {
            p: input_log.position.offset
            for p, input_log in self._logs.items()
            if not input_log.halted
        }

    def commits(self) -> dict[PartitionId, Commit]:
        """The offsets and metadata that the next reader needs."""
        return {
            place: Commit(input_log.position.offset, commit_note(input_log.read_up_to_ms()))
            for place, input_log in self.reading().items()
        }

    # -- lag ------------------------------------------------------------------------------------

    def _read(self, input_log: InputLog, records: Sequence[Record]) -> None:
        """Advance the position past these records."""
        now_ms = self._clock.now_ms()
        input_log.lag.read((record.timestamp_ms for record in records), now_ms)
        newest_ms = max(record.timestamp_ms or 0 for record in records)
        input_log.position = Position(
            records[-1].offset + 1,
            record_time_ms=max(input_log.position.record_time_ms, min(newest_ms, now_ms)),
        )

    async def ask(self) -> bool:
        """Ask the brokers for the end offsets, and skip offsets without records.

        Returns whether they have answered.
        """
        asked_ms = self._clock.now_ms()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                ends = await self.source.ends(list(self._logs))
                passed = await self.source.passed(self.reading().keys())
        except RightsMissing:
            self._ends.expire(self._logs)
            return False  # reading reports the missing rights
        except (SourceUnavailable, TimeoutError) as error:
            why = str(error) or "brokers do not answer: TimeoutError"
            if isinstance(error, SourceUnavailable):
                self._unanswered = error.reason
            self._reasons.set(self._unanswered, why)
            self._ends.expire(self._logs)
            return False
        self._reasons.clear(self._unanswered)
        for place, input_log in self.reading().items():
            if passed.get(place, 0) > input_log.position.offset:
                time_ms = input_log.position.record_time_ms
                input_log.position = Position(passed[place], record_time_ms=time_ms)
        self._tell(ends, asked_ms)
        return True

    async def _watch(self) -> None:
        await self._retry.pause(ASK_SECONDS)
        await self.look()

    async def look(self) -> None:
        """Tell the lag if the loop has not lately, because it waits for something.

        Without this the last lag before the wait, often 0, would be told during all of it.
        """
        if self._monotonic() < self._next_ask + ASK_SECONDS:
            return
        logs, asked_ms = self._logs, self._clock.now_ms()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                ends = await self.source.ends(list(logs))
        except (SourceUnavailable, RightsMissing, TimeoutError):
            self._ends.expire(self._logs)
        else:
            if self._logs is logs:  # no assignment meanwhile
                self._tell(ends, asked_ms)

    def _tell(self, ends: Mapping[PartitionId, int], asked_ms: int) -> None:
        """Export the lag, now that the brokers have told the ends."""
        self._ends.told()
        for place, end in ends.items():
            self._logs[place].lag.set_end(end, asked_ms)
        for place, input_log in self._logs.items():
            behind = input_log.lag.report(input_log.position, asked_ms)
            self._gauges.lag(*place, behind.records, behind.seconds)


class ReportingInputs(CommittedInputs):
    """The inputs of a service that also exports up to when they have all been read."""

    async def ask(self) -> bool:
        """Ask for the end offsets, and report up to when all partitions have been read."""
        answered = await super().ask()
        logs = self._logs.values()
        is_known = self._ends.known and not any(one.halted for one in logs)
        until_ms = min((one.read_up_to_ms() for one in logs), default=0) if is_known else 0
        self._gauges.complete_until(until_ms / 1000 if until_ms else None)
        return answered

    def _tell(self, ends: Mapping[PartitionId, int], asked_ms: int) -> None:
        super()._tell(ends, asked_ms)
        self._gauges.ends_told(self._clock.now_ms() / 1000)
