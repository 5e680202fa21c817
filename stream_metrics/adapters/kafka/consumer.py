"""The live source: one aiokafka consumer, read in batches, its partitions owned through the store.

Kafka says who may work on a partition number; the store says from where, and refuses whoever is
no longer the owner. See ``worker.partition`` for the order of effects of a batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog
from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import IllegalStateError
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.adapters.kafka.cluster import Cluster, Group
from stream_metrics.adapters.kafka.fetching import Fetched, Fetching
from stream_metrics.adapters.kafka.key_samples import KeyWatch
from stream_metrics.adapters.kafka.lag import Lag
from stream_metrics.adapters.kafka.log import KafkaLog
from stream_metrics.adapters.kafka.membership import Membership
from stream_metrics.adapters.kafka.probe import Probe
from stream_metrics.adapters.kafka.recognition import Recognition
from stream_metrics.adapters.kafka.rights import KafkaRefused
from stream_metrics.adapters.kafka.topics import TopicsMissing, TopicsUnfit, check_state_topics
from stream_metrics.adapters.kafka.waiting import KafkaPatience
from stream_metrics.adapters.prometheus.operations import Operations
from stream_metrics.engine.state import DamagedState
from stream_metrics.layout import Identity
from stream_metrics.ports import (
    Outputs,
    Position,
    Record,
    StateStore,
    Upstream,
)
from stream_metrics.settings import KafkaSettings
from stream_metrics.worker.clock import Clock
from stream_metrics.worker.identity import other_counts
from stream_metrics.worker.partition import Lost, StatePartition
from stream_metrics.worker.patience import Patience, Reasons, Stopped
from stream_metrics.worker.standing import damaged
from stream_metrics.worker.takeover import Held, OffsetGap, Policy, Ready, TakeOver
from stream_metrics.worker.watchdog import Standing

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 5.0


class LiveConsumer:
    """Reads the input topics and hands each partition number's records to its ``StatePartition``.

    ``identity`` is that of the generation in ``store``; ``make_partition(number, token)`` builds
    one. ``prepare`` makes one ready before anything is read, ``beside`` is called of each in every
    round, for what there is to do beside reading. ``grown`` is told of topics that have other
    partitions than the state was built for. ``run`` returns after ``stop``; it raises
    ``TopicsUnfit``, ``OtherIdentity`` or ``Superseded`` where going on would be wrong.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        store: StateStore,
        identity: Identity,
        make_partition: Callable[[int, bytes], StatePartition],
        patience: Patience,
        reasons: Reasons,
        operations: Operations,
        clock: Clock,
        outputs: Outputs | None = None,
        upstream: Upstream | None = None,
        prepare: Callable[[StatePartition], Awaitable[None]] | None = None,
        beside: Callable[[StatePartition], Awaitable[None]] | None = None,
        grown: Callable[[Sequence[str]], Awaitable[None]] | None = None,
    ) -> None:
        self._settings = settings
        self._grown = grown
        self._waits: Callable[[], str] = lambda: ""
        self._waits_for = ""
        self._stands_still = False
        self._beside = beside
        self._cluster = cluster
        self._store = store
        self._identity = identity
        self._patience = patience
        self._retry = KafkaPatience(settings, patience, reasons)
        self._group = Membership(
            cluster,
            Group(settings.group_id, settings.state_topics, RangePartitionAssignor),
            self._check_topics,
            patience,
            reasons,
            on_revoked=self._set_aside,
            on_assigned=operations.rebalanced,
            on_committed=lambda seconds: operations.stage("commit", seconds),
        )
        self._fetching = Fetching(settings, self._group, self, self._retry, patience, reasons)
        self._take_over_one = TakeOver(
            KafkaLog(self._group, settings.state_topics, self._retry),
            store,
            make_partition,
            patience,
            settings.on_offset_gap,
            settings.start,
            self._gap,
            self._stepped,
            prepare,
        )
        self._reasons = reasons
        self._operations = operations
        self._clock = clock
        self._keys = KeyWatch(operations.keyed_differently)
        self._outputs = outputs
        self._active: dict[int, StatePartition] = {}
        self._kept: dict[int, StatePartition] = {}
        self._halted: dict[int, str] = {}
        self._recognition = Recognition(settings.repartition_topic)
        self._lag = Lag(operations, clock.now_ms, in_order=upstream is None)
        self._stuck: dict[int, dict[str, Position]] = {}  # where halted partitions stand
        self._probe = Probe(
            self._group,
            settings.state_topics,
            self._known,
            self._lag,
            clock,
            upstream,
            patience,
            reasons,
        )
        self._next_commit = 0.0
        self._next_look = 0.0
        self._overdue: set[int] = set()  # where conversations may have expired
        # for the watchdog
        self._taking_over = False
        self._steps = 0
        self._rounds = 0

    def wait_for(self, waits: Callable[[], str]) -> None:
        """Read only while this gives no reason to wait; it is asked in every round."""
        self._waits = waits

    def follow(self, policy: Policy) -> None:
        """Handle offset gaps so from now on."""
        self._take_over_one.policy = policy

    # -- life -----------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[StatePartition]:
        """The state partitions that this worker works on."""
        return list(self._active.values())

    @property
    def partition_total(self) -> int:
        """How many state partitions all workers have together."""
        return self._identity.count

    def _known(self) -> dict[int, dict[str, Position]]:
        """Where each number stands, also one that waits to be taken over or is halted."""
        owned = self._active | self._kept
        return {n: p.positions for n, p in owned.items()} | self._stuck

    def standing(self, waiting: frozenset[str]) -> Standing:
        """How far it is, for the watchdog; ``waiting`` names what it is known to wait for."""
        offsets, behind = {}, {}
        for number, partition in (self._active | self._kept).items():
            if number in self._halted:
                continue
            for topic, position in partition.positions.items():
                offsets[number, topic] = position.offset
                place = TopicPartition(topic, number)
                behind[number, topic] = self._lag.behind(place, position.offset)
        rebalancing = self._group.rebalancing(self._settings.rebalance_timeout_ms)
        return Standing(
            offsets,
            behind,
            taking_over=self._taking_over or self._group.changed,
            rebalancing=rebalancing and not self._taking_over,
            steps=self._steps,
            rounds=self._rounds,
            waiting=waiting,
        )

    async def run(self) -> None:
        """Work until told to stop."""
        probe: asyncio.Task[None] | None = None
        try:
            await self._group.join()
            probe = asyncio.create_task(self._probe.run())
            while not self._patience.stopping:
                await self._turn()
        except Stopped:
            pass
        finally:
            if probe is not None:
                probe.cancel()
                await asyncio.gather(probe, return_exceptions=True)
            await self._leave()

    async def _turn(self) -> None:
        """One round: take over what changed, fetch, process, commit, expire."""
        if self._group.due:
            await self._take_over()
        self._wait_or_read()
        fetched = await self._fetching.round()
        if not self._group.changed:
            for number, records in self._by_number(fetched).items():
                await self._process(number, records)
            await self._take_with_gaps()
        now = time.monotonic()
        self._rounds += 1
        self._reasons.beat()
        self._operations.progressed(time.time())
        if now >= self._next_commit:
            self._next_commit = now + self._settings.commit_interval_seconds
            await self._commit()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            await self._look_after()
            self._overdue = set(self._active)
        await self._expire()
        await self._work_beside()

    async def _check_topics(self) -> dict[str, int]:
        """Partition counts of the input topics; raises ``TopicsUnfit`` unless they are equal."""
        counts = await self._cluster.partition_counts(self._settings.state_topics)
        check_state_topics(self._settings, counts)
        return counts

    async def _leave(self) -> None:
        try:
            await self._commit()
        finally:
            await self._group.leave()
            self._active.clear()
            self._operations.assigned(0)

    # -- assignment -----------------------------------------------------------------------------

    def _set_aside(self) -> None:
        """Nothing is worked on until it has been taken over again."""
        self._kept |= self._active
        self._active.clear()

    async def _take_over(self) -> None:
        """Become the owner of what the group gave us, load its state, and seek to its offsets."""
        self._group.looking()
        self._taking_over = True
        try:
            await self._take_what_is_ours()
        finally:
            self._taking_over = False

    async def _take_what_is_ours(self) -> None:
        consumer = self._group.consumer
        self._reasons.set("assignment", "taking over partitions")
        try:
            counts = await self._retry(self._check_topics)
        except (TopicsMissing, KafkaRefused) as missing:
            self._reasons.set("topics", str(missing))
            self._group.look_again()
            await self._patience.pause(2.0)
            return
        except TopicsUnfit:  # topics get partitions one after the other
            counts = await self._retry(
                lambda: self._cluster.partition_counts(self._settings.state_topics)
            )
        self._reasons.clear("topics")
        await self._heed(counts)
        numbers = self._whole_numbers(consumer.assignment())
        held = {place.partition for place in consumer.assignment()}
        for number in (self._kept.keys() | self._halted.keys()) - numbers:
            if number not in held:
                self._drop(number)
        if self._outputs is not None:
            await self._outputs.keep(numbers)
        for number in sorted(numbers):
            if self._group.changed:
                return
            await self._take(number)
        if not self._group.changed:
            self._reasons.clear("assignment")
            self._operations.assigned(len(self._active))
            self._next_look = 0.0  # heartbeats tell who has them now
            log.info("partitions taken over", partitions=sorted(self._active))

    async def _heed(self, counts: Mapping[str, int]) -> None:
        """Read no more once topics have other partitions than the state was built for.

        What is there is shown on. ``grown`` is told which topics.
        """
        why = other_counts(self._identity, counts)
        self._stands_still = bool(why)
        if not why:
            self._reasons.clear("partitions")
            return
        self._reasons.set("partitions", why)
        stored = self._identity.partition_counts
        if self._grown is not None:
            await self._grown([t for t, n in counts.items() if stored.get(t) != n])

    def _wait_or_read(self) -> None:
        """Stop reading while there is something to wait for, and go on where that has ended."""
        why = self._waits()
        if bool(why) != bool(self._waits_for) and not (self._group.changed or self._stands_still):
            for number in self._active:
                places = self._places(number)
                (self._group.consumer.pause if why else self._group.consumer.resume)(*places)
        self._waits_for = why
        if why:
            self._reasons.set("room", why)
        else:
            self._reasons.clear("room")

    def _whole_numbers(self, assignment: Iterable[TopicPartition]) -> set[int]:
        """Partition numbers that we hold for every input topic; the others are not started."""
        held: dict[int, set[str]] = {}
        for place in assignment:
            held.setdefault(place.partition, set()).add(place.topic)
        for added in [number for number in held if number >= self._identity.count]:
            del held[added]  # nobody reads it into this state
        whole = {n for n, topics in held.items() if topics >= set(self._settings.state_topics)}
        for number in held.keys() - whole:
            self._halt(number, "held for some of the input topics only")
        return whole

    def _places(self, number: int) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in self._settings.state_topics]

    async def _take(self, number: int, found: Sequence[OffsetGap] = ()) -> None:
        """Take one partition number over, and read on; or hold it, if records are gone."""
        kept, asked_ms = self._kept.get(number), self._probe.filled_up_to_ms()
        try:
            taken = await self._take_over_one.take(number, kept, found)
        except DamagedState as damage:
            self._kept.pop(number, None)
            self._halt(number, damaged(damage))
            return
        if taken is None:
            self._group.given_away()
            return
        self._kept.pop(number, None)
        if isinstance(taken, Held):
            self._halt(number, "offset gap: " + "; ".join(gap.message for gap in taken.gaps))
            self._stuck[number] = taken.positions
            return
        await self._hear_time(number)
        places = self._places(number)
        self._lag.heard({place: taken.extents[place.topic].end for place in places}, asked_ms)
        for place in places:
            self._lag.begin(place)
        try:
            self._seek(number, taken)
        except IllegalStateError:
            self._group.given_away()
            return
        self._unhalt(number)
        self._steps += 1
        if not self._group.changed:
            self._active[number] = taken.partition

    async def _take_with_gaps(self) -> None:
        """Look again at partitions whose last record is not the one that was read."""
        consumer = self._group.consumer
        for number, gaps in self._recognition.take_gaps().items():
            partition = self._active.pop(number, None)
            if partition is None:
                continue  # taken away; whoever reads there finds it again
            self._kept[number] = partition
            if self._group.changed:
                continue
            consumer.pause(*self._places(number))
            await self._take(number, gaps)

    def _seek(self, number: int, ready: Ready) -> None:
        """Go to the stored offsets, one record back where there is one to be recognised."""
        consumer = self._group.consumer
        places = self._places(number)
        for place in places:
            position = ready.partition.positions[place.topic]
            first = ready.extents[place.topic].first
            consumer.seek(place, self._recognition.begin(place, position, first))
            self._group.commits.forget(place)
        if self._stands_still or self._waits_for:
            consumer.pause(*places)
        else:
            consumer.resume(*places)

    def _stepped(self) -> None:
        """A step of a long take-over is done."""
        self._steps += 1
        self._reasons.beat()

    def _drop(self, number: int) -> None:
        self._kept.pop(number, None)
        self._active.pop(number, None)
        self._unhalt(number)
        for place in self._places(number):
            self._recognition.forget(place)
            self._group.commits.forget(place)
            self._lag.forget(place)

    def _gap(self, number: int, gap: OffsetGap) -> None:
        self._operations.offset_gap(gap.topic)
        action = self._take_over_one.policy
        log.error("offset gap", partition=number, action=action, reason=gap.message)

    def _halt(self, number: int, why: str) -> None:
        """Stop this partition number only; the others go on."""
        if number in self._active:
            self._stuck[number] = self._active[number].positions
        if self._halted.get(number) != why:
            log.error("partition halted", partition=number, reason=why)
        self._halted[number] = why
        self._active.pop(number, None)
        self._reasons.set(f"partition-{number}", why)
        if self._group.joined:
            consumer = self._group.consumer
            for place in self._places(number):
                if place in consumer.assignment():
                    consumer.pause(place)
                    # a partition without a position keeps the client from fetching any other
                    consumer.seek(place, 0)

    def _unhalt(self, number: int) -> None:
        self._halted.pop(number, None)
        self._stuck.pop(number, None)
        self._reasons.clear(f"partition-{number}")

    # -- records --------------------------------------------------------------------------------

    def next_offsets(self) -> dict[TopicPartition, int]:
        """See ``adapters.kafka.fetching.Reader``."""
        offsets = {}
        for number, partition in self._active.items():
            for topic, position in partition.positions.items():
                place = TopicPartition(topic, number)
                offsets[place] = position.offset - self._recognition.expects(place)
        return offsets

    def log_moved(self) -> None:
        """See ``adapters.kafka.fetching.Reader``."""
        self._set_aside()
        self._group.look_again()

    def halt_place(self, place: TopicPartition, why: str) -> None:
        """See ``adapters.kafka.fetching.Reader``: the partition number stands still."""
        if place.partition in self._active:
            self._halt(place.partition, why)

    def _by_number(self, fetched: Fetched) -> dict[int, list[Record]]:
        """The records by partition number, without those that the state already has."""
        numbers: dict[int, list[Record]] = {}
        for place, found in fetched.items():
            partition = self._active.get(place.partition)
            if partition is None or not found:
                continue
            records = self._recognition.new(place, found, partition)
            if not records:
                continue
            stored = partition.positions[place.topic].offset
            holes = records[-1].offset - stored + 1 - len(records)
            if holes > 0:
                self._operations.offset_holes(holes)
            numbers.setdefault(place.partition, []).extend(records)
        return {n: records for n, records in numbers.items() if not self._recognition.has_gaps(n)}

    async def _process(self, number: int, records: list[Record]) -> None:
        partition = self._active.get(number)
        if partition is None:
            return
        async with self._answered(partition):
            await partition.process(records, self._patience)
            self._lag.read(records)
            self._keys.note(records, self._identity.partition_counts)
            now_ms = self._clock.now_ms()
            self._operations.counted(now_ms, (record.timestamp_ms or 0 for record in records))

    @asynccontextmanager
    async def _answered(self, partition: StatePartition) -> AsyncIterator[None]:
        """Work with a state partition ends early, without an error, where its state is not ours to
        go on with, or is damaged."""
        try:
            yield
        except Lost as lost:
            await self._lost(partition, lost)
        except DamagedState as damage:
            self._halt(partition.number, damaged(damage))

    async def _lost(self, partition: StatePartition, lost: Lost) -> None:
        """The store refused: look again whether we are the owner, and from where to go on.

        Where another is, the group has most likely given all away, and we are the last to hear of
        it. Nothing of ours is shown until the brokers have answered: sums over workers would count
        it twice.
        """
        log.warning("write refused", partition=partition.number, reason=lost.why)
        self._active.pop(partition.number, None)
        self._kept.pop(partition.number, None)
        if lost.why == "fenced":
            self._operations.fenced()
            self._set_aside()
            self._group.look_again()
            return
        self._operations.rewound()
        consumer = self._group.consumer
        held = set(self._places(partition.number))
        if held <= consumer.assignment() and not self._group.changed:
            consumer.pause(*held)
            await self._take(partition.number)

    # -- now and then ---------------------------------------------------------------------------

    async def _commit(self) -> None:
        """Tell Kafka how far the state is; only a hint, so that a failure is no harm."""
        offsets = {
            TopicPartition(topic, number): position.offset
            for number, partition in self._active.items()
            for topic, position in partition.positions.items()
            if position.last_digest  # else the note stands that nothing was written yet
        }
        new = self._group.commits.news(offsets)
        await self._group.commit({p: OffsetAndMetadata(offset, "") for p, offset in new.items()})

    async def _look_after(self) -> None:
        """Notice what happened to the state, and note offsets that hold no record."""
        self._keys.look()
        for number, partition in list(self._active.items()):
            async with self._answered(partition):
                await self._hear_time(number)
                await partition.check(self._patience)
                await partition.beat(
                    self._patience, self._lag.behind_ms(number, partition.positions)
                )
                await partition.advance(await self._passed(number), self._patience)

    async def _hear_time(self, number: int) -> None:
        state = await self._patience(lambda: self._store.describe(number))
        self._clock.heard(state.store_ms)

    async def _expire(self) -> None:
        """Delete some of what has expired; what is left has its turn in the next round."""
        for number in sorted(self._overdue):
            partition = self._active.get(number)
            if partition is not None:
                horizon = self._lag.read_up_to_ms(number, partition.positions)
                async with self._answered(partition):
                    if horizon is not None:
                        await partition.expire(horizon, self._patience)
            if partition is None or not partition.overdue:
                self._overdue.discard(number)

    async def _work_beside(self) -> None:
        """Let partitions do a step of what there is to do beside reading."""
        for partition in list(self._active.values()) if self._beside is not None else ():
            async with self._answered(partition):
                assert self._beside is not None
                await self._beside(partition)

    async def _passed(self, number: int) -> dict[str, int]:
        """How far the client is; all that it has returned is in the state by now."""
        consumer = self._group.consumer
        if self._group.changed:
            return {}
        places = self._places(number)
        passed = {place: await consumer.position(place) for place in places}
        for place, offset in passed.items():
            self._recognition.passed(place, offset)
        if any(self._recognition.expects(place) for place in places):
            return {}
        return {place.topic: offset for place, offset in passed.items()}
