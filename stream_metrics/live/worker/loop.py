"""The loop of a live worker, over a ``Source`` and a store.

Kafka's group says who may work on a partition number; the store says from where, and refuses
whoever is no longer the owner. In each round (``Loop.turn``) the loop

1. takes over what the group has assigned, one partition after the other (``worker.takeover``);
2. polls the source, and leaves out what the state already has;
3. has each partition's records processed (``worker.partition`` has the order of effects: load,
   step, dead letters, output, write);
4. commits the stored offsets to Kafka, from time to time;
5. checks every few seconds that the store still has this worker's token and offsets, sends a
   heartbeat, and notes offsets that hold no record;
6. deletes some of what has expired;
7. lets each partition do a step of what there is to do beside reading (``beside``).

What a partition goes through is in ``worker.assigned``. Between two rounds nothing changes but
``Source.assignment``; while it is another one than the loop has looked at, nothing is read, written
or exported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.events.record import Record
from stream_metrics.live.layout import Identity
from stream_metrics.live.ports import Outputs, StateStore, Upstream
from stream_metrics.live.worker.assigned import AssignedPartition, Event, State
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.identity import other_counts
from stream_metrics.live.worker.keying import KeyMonitor
from stream_metrics.live.worker.partition import PartitionLost, StatePartition
from stream_metrics.live.worker.probe import Probe
from stream_metrics.live.worker.retry import Reasons, RetryPolicy, Stopped
from stream_metrics.live.worker.source import Assignment, Commit, Fetched, Source
from stream_metrics.live.worker.stored_state import damage_message
from stream_metrics.live.worker.takeover import (
    Blocked,
    NotPrepared,
    OffsetGap,
    Policy,
    Start,
    TakeOver,
)
from stream_metrics.live.worker.telemetry import LoopMetrics
from stream_metrics.live.worker.watchdog import WorkerStatus

log = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 5.0
NOT_READING: Final = "reading"  # the reason on ``/readyz`` while ``may_read`` says no
OTHER_COUNTS: Final = "partitions"  # and while topics have other partitions than the state


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """``topics`` are those that state is built from; each partition number is one state partition.

    ``in_order``: whether the records of a log come about in the order of their times.
    """

    topics: tuple[str, ...]
    on_offset_gap: Policy = "halt"
    start: Start = "earliest"
    commit_interval_seconds: float = 1.0
    in_order: bool = True


class Loop:
    """Works on the partitions that the group assigns to this worker.

    ``identity`` is that of the generation in ``store``; ``make_partition(number, token)`` builds
    what processes one. ``may_read`` says why nothing is to be read for now; partitions stay active
    meanwhile. ``prepare`` makes a partition ready before anything is read; ``beside`` is called of
    each in every round. ``grown`` is told of topics that have other partitions than the state was
    built for, of which nothing more is read. ``monotonic`` tells when to commit and to check.
    ``run`` returns after ``retry.stop``; it raises ``Superseded``, ``OtherIdentity`` or the
    source's errors where going on would be wrong. The other public methods are its steps.
    """

    def __init__(
        self,
        source: Source,
        store: StateStore,
        options: LoopOptions,
        identity: Identity,
        make_partition: Callable[[int, bytes], StatePartition],
        retry: RetryPolicy,
        reasons: Reasons,
        metrics: LoopMetrics,
        clock: Clock,
        keys: KeyMonitor,
        *,
        outputs: Outputs | None = None,
        upstream: Upstream | None = None,
        may_read: Callable[[], str | None] = lambda: None,
        prepare: Callable[[StatePartition], Awaitable[None]] | None = None,
        beside: Callable[[StatePartition], Awaitable[None]] | None = None,
        grown: Callable[[Sequence[str]], Awaitable[None]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._store = store
        self._options = options
        self._identity = identity
        self._retry = retry
        self._reasons = reasons
        self._metrics = metrics
        self._clock = clock
        self._keys = keys
        self._outputs = outputs
        self._may_read = may_read
        self._beside = beside
        self._grown = grown
        self._monotonic = monotonic
        self._take_over = TakeOver(
            source,
            options.topics,
            store,
            make_partition,
            retry,
            options.on_offset_gap,
            options.start,
            self._gap,
            self._stepped,
            prepare,
        )
        self._partitions: dict[int, AssignedPartition] = {}
        self.probe = Probe(source, self._partitions, metrics, clock, upstream, retry, reasons)
        self._assignment: Assignment | None = None  # the one that was looked at
        self._unfit = False  # whether topics have other partitions than the state
        self._stopped = False  # reading, for that or by ``may_read``
        self._next_commit = self._next_check = monotonic()
        # for the watchdog
        self._taking_over = False
        self._steps = 0
        self._rounds = 0

    # -- what others may know -------------------------------------------------------------------

    @property
    def partitions(self) -> list[StatePartition]:
        """The state partitions that this worker works on, and whose figures are its own."""
        return [p.owned for p in self._active() if p.owned is not None]

    @property
    def partition_total(self) -> int:
        """How many state partitions all workers have together."""
        return self._identity.count

    def follow(self, policy: Policy) -> None:
        """Handle offset gaps so from now on."""
        self._take_over.policy = policy

    def status(self, waiting: frozenset[str]) -> WorkerStatus:
        """How far it is, for the watchdog; ``waiting`` names what it is known to wait for."""
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
        """Whether there is an assignment to look at, or to wait for."""
        return self._source.assignment is None or self._source.assignment is not self._assignment

    def _active(self) -> Iterator[AssignedPartition]:
        """Those that are worked on; one that ceases to be so meanwhile is left out."""
        for partition in list(self._partitions.values()):
            if partition.state is State.ACTIVE and not self._changed:
                yield partition

    # -- a round --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until told to stop."""
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
        """One round."""
        if self._changed:
            await self._follow_group()  # 1
        self._stop_or_go_on()
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
        await self.work_beside()  # 7

    # -- 1. what the group has assigned ---------------------------------------------------------

    async def _follow_group(self) -> None:
        """Stop what was; become the owner of what the group has assigned, once it has said so."""
        for partition in self._partitions.values():
            partition.on(Event.REVOKED)
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
        await self._compare(counts)
        if self._changed:
            return
        wanted = self._sort(assignment)
        if self._outputs is not None:
            await self._outputs.keep([partition.number for partition in wanted])
        for partition in wanted:
            if self._changed:
                return
            await self._take(partition)
        if not self._changed:
            self._reasons.clear("assignment")
            numbers = [partition.number for partition in self._active()]
            self._metrics.assigned(len(numbers))
            self._next_check = self._monotonic()  # heartbeats tell who has them now
            log.info("partitions taken over", partitions=sorted(numbers))

    async def _compare(self, counts: Mapping[str, int]) -> None:
        """Read no more where topics have other partitions than the state was built for.

        What is there is shown on, and ``grown`` is told which topics.
        """
        why = other_counts(self._identity, counts)
        self._unfit = bool(why)
        if not why:
            self._reasons.clear(OTHER_COUNTS)
            return
        self._reasons.set(OTHER_COUNTS, why)
        built = self._identity.partition_counts
        if self._grown is not None:
            await self._grown([topic for topic, n in counts.items() if built.get(topic) != n])

    def _sort(self, assignment: Assignment) -> list[AssignedPartition]:
        """Drop what is not ours; the partitions that are ours for every topic, by number.

        Those that are ours for some topics only are halted. Those that were added since the state
        was built are nobody's.
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
                    partition, Event.PARTLY_ASSIGNED, "held for some of the input topics only"
                )
        return wanted

    async def _take(self, partition: AssignedPartition) -> None:
        """Take one over, and read on from its stored offsets; or hold it, if records are gone."""
        gaps, partition.gaps = partition.gaps, []
        partition.on(Event.CLAIM)
        asked_ms = self.probe.filled_up_to_ms()
        try:
            taken = await self._take_over.take(partition.number, partition.owned, gaps)
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
        await self._hear_time(partition.number)
        for place, lag in partition.logs.items():
            lag.heard(taken.extents[place.topic].end, asked_ms)
        if not self._source.read_from(partition.start_offsets(taken.extents)):
            partition.on(Event.UNCONFIRMED)
            return
        if self._stopped:
            self._source.stop_reading(partition.logs)
        partition.on(Event.CLAIMED)
        partition.why = ""
        self._reasons.clear(f"partition-{partition.number}")
        self._steps += 1

    def _halt(self, partition: AssignedPartition, event: Event, why: str) -> None:
        """Stop this partition number only; the others go on."""
        partition.on(event)
        if partition.why != why:
            log.error("partition halted", partition=partition.number, reason=why)
        partition.why = why
        self._reasons.set(f"partition-{partition.number}", why)
        self._source.stop_reading(partition.logs)

    def _gap(self, number: int, gap: OffsetGap) -> None:
        self._metrics.offset_gap(gap.topic)
        action = self._take_over.policy
        log.error("offset gap", partition=number, action=action, reason=gap.message)

    def _stepped(self) -> None:
        """A step of a long take-over is done."""
        self._steps += 1
        self._reasons.beat()

    # -- 2. and 3. records ----------------------------------------------------------------------

    def _stop_or_go_on(self) -> None:
        """Stop reading, or read on, where a reason for it has come or gone; all else goes on."""
        why = self._may_read()
        if why is not None:
            self._reasons.set(NOT_READING, why)
        elif self._stopped:
            self._reasons.clear(NOT_READING)
        stop = self._unfit or why is not None
        if stop == self._stopped:
            return
        self._stopped = stop
        for partition in self._active():
            if self._stopped:
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
        """What was read of each partition, without what its state already has."""
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
        async with self._answered(partition) as owned:
            await owned.process(records, self._retry)
            now_ms = self._clock.now_ms()
            for place, lag in partition.logs.items():
                lag.read((r.timestamp_ms for r in records if r.topic == place.topic), now_ms)
            self._keys.note(records, self._identity.partition_counts)
            self._metrics.counted(now_ms, (record.timestamp_ms or 0 for record in records))

    @asynccontextmanager
    async def _answered(self, partition: AssignedPartition) -> AsyncIterator[StatePartition]:
        """End work with a partition early where its state is not ours any more, or is damaged."""
        assert partition.owned is not None
        try:
            yield partition.owned
        except PartitionLost as lost:
            await self._lost(partition, lost)
        except DamagedState as damage:
            partition.forget()
            self._halt(partition, Event.FAILED, damage_message(damage))

    async def _lost(self, partition: AssignedPartition, lost: PartitionLost) -> None:
        """The store refused: find out whether we are the owner, and from where to go on.

        Where another is, the group has most likely given all away, and we are the last to hear of
        it. Nothing of ours is exported until the brokers have answered: sums over workers would
        count it twice.
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

    # -- 4. to 6. from time to time -------------------------------------------------------------

    async def commit(self) -> None:
        """Tell Kafka how far the state is; only a hint, so that a failure is no harm."""
        commits = {}
        for partition in self._active():
            for place in partition.logs:
                position = partition.positions[place.topic]
                if position.last_digest:  # else the note stands that nothing was written yet
                    commits[place] = Commit(position.offset)
        done = self._source.acknowledged
        if new := {place: at for place, at in commits.items() if done.get(place) != at}:
            await self._source.commit(new)

    async def check(self) -> None:
        """Notice what happened to the state, and note offsets that hold no record."""
        self._keys.look()
        for partition in self._active():
            async with self._answered(partition) as owned:
                owned.overdue = True
                await self._hear_time(partition.number)
                await owned.check(self._retry)
                await owned.beat(self._retry, partition.behind_ms(self._clock.now_ms()))
                passed = {} if self._changed else await self._source.passed(partition.logs)
                if partition.is_verified(passed):
                    offsets = {place.topic: offset for place, offset in passed.items()}
                    await owned.advance(offsets, self._retry)

    async def _hear_time(self, number: int) -> None:
        state = await self._retry(lambda: self._store.describe(number))
        self._clock.heard(state.store_ms)

    async def expire(self) -> None:
        """Delete some of what has expired; what is left has its turn in the next round."""
        for partition in self._active():
            async with self._answered(partition) as owned:
                horizon_ms = partition.read_up_to_ms() if owned.overdue else None
                if horizon_ms is not None:
                    await owned.expire(horizon_ms, self._retry)

    async def work_beside(self) -> None:
        """Let partitions do a step of what there is to do beside reading."""
        if self._beside is None:
            return
        for partition in self._active():
            async with self._answered(partition) as owned:
                await self._beside(owned)
