"""The loop of a live worker, over a ``Source`` and a store.

Kafka's consumer group assigns partition numbers to workers; the store has the offsets to read from,
and rejects writes of a worker that is no longer the owner. In each round (``Loop.turn``) the loop

1. takes over newly assigned partitions, one after the other (``ownership.takeover``);
2. polls the source, and drops records that the state already has;
3. processes each partition's records (``worker.partition`` has the order of effects: load, step,
   dead letters, output, write);
4. commits the stored offsets to Kafka, at intervals;
5. checks every few seconds that the store still has this worker's token and offsets, sends a
   heartbeat, and stores offsets without records, such as transaction markers;
6. deletes some expired conversations;
7. does a step of what else is to be done with each partition (``KeptState.work_on``).

The states of a partition are in ``ownership.assigned``. Between two rounds only
``Source.assignment`` changes. While it differs from the assignment that the loop has processed,
nothing is read, written or exported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.events.record import Record
from stream_metrics.live.ports import Upstream
from stream_metrics.live.worker.kept_state import KeptState
from stream_metrics.live.worker.keying import KeyMonitor
from stream_metrics.live.worker.options import LoopOptions
from stream_metrics.live.worker.ownership.assigned import AssignedPartition, Event, State
from stream_metrics.live.worker.ownership.identity import other_counts
from stream_metrics.live.worker.ownership.stored_state import damage_message
from stream_metrics.live.worker.ownership.takeover import (
    Blocked,
    NotPrepared,
    OffsetGap,
    TakeOver,
)
from stream_metrics.live.worker.partition import PartitionLost, StatePartition
from stream_metrics.live.worker.probe import Probe
from stream_metrics.live.worker.retry import Stopped
from stream_metrics.live.worker.source import Assignment, Commit, Fetched, Source
from stream_metrics.live.worker.surroundings import Surroundings
from stream_metrics.live.worker.watchdog import WorkerStatus

log = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 5.0
NOT_READING: Final = "reading"  # the reason on ``/readyz`` while the state gives one
OTHER_COUNTS: Final = "partitions"  # and while partition counts differ from the state's


class Loop:
    """Works on the partitions that the group assigns to this worker.

    It reads from ``source`` what ``state`` is computed from; ``upstream``, if there is one, fills
    the topics. ``keys`` watches how their records are keyed.

    ``run`` returns after ``retry.stop``. It raises ``Superseded``, ``OtherIdentity`` or the
    source's errors if the worker must not continue. The other public methods are its steps.
    """

    def __init__(
        self,
        source: Source,
        state: KeptState,
        options: LoopOptions,
        surroundings: Surroundings,
        keys: KeyMonitor,
        upstream: Upstream | None = None,
    ) -> None:
        self._source = source
        self._state = state
        self._identity = state.identity
        self._options = options
        self._retry = surroundings.retry
        self._reasons = surroundings.reasons
        self._metrics = surroundings.metrics
        self._clock = surroundings.clock
        self._monotonic = surroundings.monotonic
        self._keys = keys
        self._take_over = TakeOver(source, state, options, self._retry, self._on_gap, self._on_step)
        self._partitions: dict[int, AssignedPartition] = {}
        self.probe = Probe(source, self._partitions, surroundings, upstream)
        self._assignment: Assignment | None = None  # the one that was processed
        self._counts_differ = False  # the topics' partition counts from the state's
        self._paused = False  # reading, for that or because the state gives a reason
        self._next_commit = self._next_check = self._monotonic()
        # for the watchdog
        self._taking_over = False
        self._steps = 0
        self._rounds = 0

    # -- status --------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[StatePartition]:
        """The state partitions that this worker owns and exports."""
        return [p.owned for p in self._active() if p.owned is not None]

    @property
    def partition_total(self) -> int:
        """The number of state partitions of all workers together."""
        return self._identity.count

    def behind_ms(self) -> dict[int, int | None]:
        """How long ago the time was up to which each of ``partitions`` has been read, in
        milliseconds; None if that is unknown."""
        now_ms = self._clock.now_ms()
        return {partition.number: partition.behind_ms(now_ms) for partition in self._active()}

    def status(self, waiting: frozenset[str]) -> WorkerStatus:
        """The status for the watchdog; ``waiting`` names what the worker waits for."""
        offsets, behind = {}, {}
        for partition in self._partitions.values():
            if partition.owned is None or partition.state in (State.BLOCKED, State.HALTED):
                continue
            for place, records in partition.behind().items():
                at = place.partition, place.topic
                offsets[at] = partition.positions[place.topic].offset
                behind[at] = records
        return WorkerStatus(
            offsets,
            behind,
            taking_over=self._taking_over or self._changed,
            rebalancing=self._source.rebalancing and not self._taking_over,
            steps=self._steps,
            rounds=self._rounds,
            waiting=waiting,
        )

    @property
    def _changed(self) -> bool:
        """Whether a new assignment is to be processed or awaited."""
        return self._source.assignment is None or self._source.assignment is not self._assignment

    def _active(self) -> Iterator[AssignedPartition]:
        """The active partitions; one that stops being active during the iteration is skipped."""
        for partition in list(self._partitions.values()):
            if partition.state is State.ACTIVE and not self._changed:
                yield partition

    # -- a round --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run rounds until ``retry.stop``."""
        probing: asyncio.Task[None] | None = None
        try:
            await self._source.join()
            probing = asyncio.create_task(self.probe.run())
            await self._retry.rounds(self.turn)
        except Stopped:
            pass
        finally:
            if probing is not None:
                probing.cancel()
                await asyncio.gather(probing, return_exceptions=True)
            try:
                await self.commit()
            finally:
                await self._source.leave()
                self._partitions.clear()
                self._metrics.assigned(0)

    async def turn(self) -> None:
        """Run one round."""
        if self._changed:
            await self._follow_group()  # 1
        self._pause_or_resume()
        fetched = await self._source.poll()  # 2
        self._halt_unreadable(fetched)
        for partition, records in self._new_records(fetched):
            await self._process(partition, records)  # 3
        for partition in self._active():
            if partition.gaps:
                partition.on(Event.OTHER_RECORD)
                self._source.stop_reading(partition.logs)
                await self._take(partition)
        self._rounds += 1
        self._metrics.assigned(len(self.partitions))
        self._reasons.beat()
        self._metrics.progressed(time.time())
        now = self._monotonic()
        if now > self._next_commit:
            self._next_commit = now + self._options.commit_interval_seconds
            await self.commit()  # 4
        if now > self._next_check:
            self._next_check = now + CHECK_SECONDS
            await self.check()  # 5
        await self.expire()  # 6
        await self.work_on_partitions()  # 7

    # -- 1. assignments -------------------------------------------------------------------------

    async def _follow_group(self) -> None:
        """Release all partitions, and take over those of the new assignment once there is one."""
        for partition in self._partitions.values():
            partition.on(Event.REVOKED)
        self._metrics.assigned(0)
        assignment = self._source.assignment
        if assignment is None:
            return
        self._assignment = assignment
        self._taking_over = True
        try:
            await self._take_all(assignment)
        finally:
            self._taking_over = False

    async def _take_all(self, assignment: Assignment) -> None:
        self._reasons.set("assignment", "taking over partitions")
        counts = await self._retry(self._source.partition_counts)
        if self._changed:
            return
        await self._compare_counts(counts)
        if self._changed:
            return
        wanted = self._fully_assigned(assignment)
        if self._state.outputs is not None:
            await self._state.outputs.keep([partition.number for partition in wanted])
        for partition in wanted:
            if self._changed:
                return
            await self._take(partition)
        if not self._changed:
            self._reasons.clear("assignment")
            numbers = [partition.number for partition in self._active()]
            self._next_check = self._monotonic()  # heartbeats tell who has them now
            log.info("partitions taken over", partitions=sorted(numbers))

    async def _compare_counts(self, counts: Mapping[str, int]) -> None:
        """Stop reading if the topics' partition counts differ from the state's.

        The existing figures are still exported.
        """
        why = other_counts(self._identity, counts)
        self._counts_differ = bool(why)
        if not why:
            self._reasons.clear(OTHER_COUNTS)
            return
        self._reasons.set(OTHER_COUNTS, why)
        built = self._identity.partition_counts
        await self._state.counts_changed([t for t, n in counts.items() if built.get(t) != n])

    def _fully_assigned(self, assignment: Assignment) -> list[AssignedPartition]:
        """The partitions that are assigned for every topic, by number.

        Partitions that are no longer assigned are dropped, and those that are assigned for some
        topics only are halted. Partitions added since the state was built are ignored.
        """
        held: dict[int, set[str]] = {}
        for place in assignment.places:
            if place.partition < self._identity.count:
                held.setdefault(place.partition, set()).add(place.topic)
        for number in self._partitions.keys() - held.keys():
            gone = self._partitions.pop(number)
            self._reasons.clear(f"partition-{number}")
            for place in gone.logs:
                self._metrics.forget_partition(*place)
        wanted = []
        for number in sorted(held):
            partition = self._partitions.get(number)
            if partition is None:
                partition = self._partitions[number] = AssignedPartition(
                    number, self._options.topics, in_order=self._options.in_order
                )
            if held[number] >= set(self._options.topics):
                partition.on(Event.ASSIGNED)
                wanted.append(partition)
            else:
                self._halt(
                    partition, Event.PARTLY_ASSIGNED, "assigned for some of the input topics only"
                )
        return wanted

    async def _take(self, partition: AssignedPartition) -> None:
        """Take a partition over and read from its stored offsets, or block it at an offset gap."""
        gaps, partition.gaps = partition.gaps, []
        partition.on(Event.CLAIM)
        asked_ms = self.probe.filled_up_to_ms()
        try:
            taken = await self._take_over.take(partition.number, partition.owned, gaps)
            await self._update_clock(partition.number)
        except (DamagedState, NotPrepared) as error:
            partition.forget()
            why = damage_message(error) if isinstance(error, DamagedState) else str(error)
            self._halt(partition, Event.FAILED, why)
            return
        if taken is None:
            partition.on(Event.UNCONFIRMED)
            return
        if isinstance(taken, Blocked):
            partition.set_positions(taken.positions)
            why = "; ".join(gap.message for gap in taken.gaps)
            self._halt(partition, Event.GAP, f"offset gap: {why}")
            return
        partition.owned = taken.partition
        for place, lag in partition.logs.items():
            lag.set_end(taken.extents[place.topic].end, asked_ms)
        if not self._source.read_from(partition.start_offsets(taken.extents)):
            partition.on(Event.UNCONFIRMED)
            return
        if self._paused:
            self._source.stop_reading(partition.logs)
        partition.on(Event.CLAIMED)
        partition.why = ""
        self._reasons.clear(f"partition-{partition.number}")
        self._steps += 1

    def _halt(self, partition: AssignedPartition, event: Event, why: str) -> None:
        """Stop working on this partition number only."""
        partition.on(event)
        if partition.why != why:
            log.error("partition halted", partition=partition.number, reason=why)
        partition.why = why
        self._reasons.hold(f"partition-{partition.number}", why)
        self._source.stop_reading(partition.logs)

    def _on_gap(self, number: int, gap: OffsetGap) -> None:
        self._metrics.offset_gap(gap.topic)
        action = self._take_over.policy
        log.error("offset gap", partition=number, action=action, reason=gap.message)

    def _on_step(self) -> None:
        """Record progress of a long take-over."""
        self._steps += 1
        self._reasons.beat()

    # -- 2. and 3. records ----------------------------------------------------------------------

    def _pause_or_resume(self) -> None:
        """Pause or resume reading; all other work continues."""
        why = self._state.why_not_read()
        if why is not None:
            self._reasons.set(NOT_READING, why)
        elif self._paused:
            self._reasons.clear(NOT_READING)
        stop = self._counts_differ or why is not None
        if stop == self._paused:
            return
        self._paused = stop
        for partition in self._active():
            if self._paused:
                self._source.stop_reading(partition.logs)
            else:
                self._source.read_from(partition.next_offsets())

    def _halt_unreadable(self, fetched: Fetched) -> None:
        for partition in self._active():
            for place in partition.logs:
                if place in fetched.unreadable and partition.state is State.ACTIVE:
                    self._halt(partition, Event.FAILED, fetched.unreadable[place])

    def _new_records(
        self, fetched: Fetched
    ) -> Iterator[tuple[AssignedPartition, Sequence[Record]]]:
        """The fetched records of each partition that its state does not have yet."""
        for partition in self._active():
            found: list[Record] = []
            for place in partition.logs:
                read = fetched.records.get(place)
                if read and (new := partition.new_records(place, read)):
                    stored = partition.positions[place.topic].offset
                    holes = new[-1].offset - stored + 1 - len(new)
                    if holes > 0:
                        self._metrics.offset_holes(holes)
                    found += new
            if found and not partition.gaps:
                yield partition, found

    async def _process(self, partition: AssignedPartition, records: Sequence[Record]) -> None:
        async with self._handling_loss(partition) as owned:
            await owned.process(records, self._retry)
            now_ms = self._clock.now_ms()
            for place, lag in partition.logs.items():
                lag.read((r.timestamp_ms for r in records if r.topic == place.topic), now_ms)
            self._keys.add(records, self._identity.partition_counts)
            self._metrics.counted(now_ms, (record.timestamp_ms or 0 for record in records))

    @asynccontextmanager
    async def _handling_loss(self, partition: AssignedPartition) -> AsyncIterator[StatePartition]:
        """Handle a partition that turns out to be lost or damaged."""
        assert partition.owned is not None
        try:
            yield partition.owned
        except PartitionLost as lost:
            await self._lost(partition, lost)
        except DamagedState as damage:
            partition.forget()
            self._halt(partition, Event.FAILED, damage_message(damage))

    async def _lost(self, partition: AssignedPartition, lost: PartitionLost) -> None:
        """Handle a rejected write: release the partition, or take it over at other offsets.

        If another worker owns it, the group has probably reassigned all partitions and this member
        has yet to learn of that. Nothing is exported until the brokers have answered, because sums
        over workers would count it twice.
        """
        log.warning("write refused", partition=partition.number, reason=lost.why)
        partition.forget()
        if lost.why == "fenced":
            self._metrics.fenced()
            partition.on(Event.FENCED)
            self._assignment = None
            return
        self._metrics.rewound()
        partition.on(Event.MOVED)
        if not self._changed:
            self._source.stop_reading(partition.logs)
            await self._take(partition)

    # -- 4. to 7. periodic work -----------------------------------------------------------------

    async def commit(self) -> None:
        """Commit the stored offsets to Kafka, as a hint: a failure does no harm."""
        commits = {}
        for partition in self._active():
            for place in partition.logs:
                position = partition.positions[place.topic]
                if position.last_digest:  # else keep the metadata ``NOTHING_WRITTEN``
                    commits[place] = Commit(position.offset)
        done = self._source.acknowledged
        if new := {place: at for place, at in commits.items() if done.get(place) != at}:
            await self._source.commit(new)

    async def check(self) -> None:
        """Check ownership, send heartbeats, and store offsets without records."""
        self._keys.check()
        for partition in self._active():
            async with self._handling_loss(partition) as owned:
                owned.overdue = True
                await self._update_clock(partition.number)
                await owned.check(self._retry)
                await owned.beat(self._retry, partition.behind_ms(self._clock.now_ms()))
                passed = {} if self._changed else await self._source.passed(partition.logs)
                if partition.is_verified(passed):
                    offsets = {place.topic: offset for place, offset in passed.items()}
                    await owned.advance(offsets, self._retry)

    async def _update_clock(self, number: int) -> None:
        state = await self._retry(lambda: self._state.store.describe(number))
        self._clock.set_store_time(state.store_ms)

    async def expire(self) -> None:
        """Delete some expired conversations of each partition; the next round deletes more."""
        for partition in self._active():
            async with self._handling_loss(partition) as owned:
                horizon_ms = partition.read_up_to_ms() if owned.overdue else None
                if horizon_ms is not None:
                    await owned.expire(horizon_ms, self._retry)

    async def work_on_partitions(self) -> None:
        """Do a step of what else is to be done with each partition."""
        for partition in self._active():
            async with self._handling_loss(partition) as owned:
                await self._state.work_on(owned)
