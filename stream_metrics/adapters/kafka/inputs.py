"""Topics that are read by a group whose commits say how far.

Here the commit counts, unlike where state is built: nothing else remembers what was copied.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.adapters.kafka.cluster import Cluster, Group
from stream_metrics.adapters.kafka.commits import (
    Commits,
    begin_at_ends,
    commits_of,
    note,
    note_ms,
)
from stream_metrics.adapters.kafka.fetching import Fetching
from stream_metrics.adapters.kafka.lag import Gauges, Lag
from stream_metrics.adapters.kafka.membership import Membership
from stream_metrics.adapters.kafka.records import record_to_pass_on
from stream_metrics.adapters.kafka.rights import DENIED
from stream_metrics.adapters.kafka.topics import check_input_topics
from stream_metrics.adapters.kafka.waiting import KafkaPatience
from stream_metrics.ports import Position, Record
from stream_metrics.settings import KafkaSettings
from stream_metrics.worker.clock import Clock
from stream_metrics.worker.patience import Patience, Reasons
from stream_metrics.worker.takeover import Extent
from stream_metrics.worker.watchdog import Standing

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 1.5  # how often the brokers are asked for the ends
ANSWER_WITHIN_SECONDS: Final = 3.0
NOTE_SECONDS: Final = 3.0  # how often a commit says up to when, if nothing else is new


class KafkaInputs:
    """``worker.repartition.Inputs``: ``kafka.topics``, each partition from the group's commit.

    Where there is none it is read from its first record, unless the group begins (``kafka.start``).

    A partition whose log does not hold what the group has not read yet is an offset gap: it is
    halted, or read on from the nearest offset if ``kafka.on_offset_gap`` is ``continue``.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        patience: Patience,
        reasons: Reasons,
        operations: Gauges,
        clock: Clock,
        group: Group | None = None,
    ) -> None:
        group = group or Group(
            settings.repartition_group, settings.topics, RoundRobinPartitionAssignor
        )
        self._settings = settings
        self._cluster = cluster
        self._patience = patience
        self._retry = KafkaPatience(settings, patience, reasons, cluster.rights)
        self._name, self._topics = group.name, group.topics
        self._group = Membership(
            cluster,
            group,
            self.check_topics,
            patience,
            reasons,
        )
        self._fetching = Fetching(settings, self._group, self, self._retry, patience, reasons)
        self._reasons = reasons
        self._operations = operations
        self._clock = clock
        self._lag = Lag(operations, clock.now_ms)
        self._positions: dict[TopicPartition, Position] = {}
        self._halted: dict[TopicPartition, Position] = {}
        self._next_note = 0.0
        self._next_ask = 0.0
        self._steps = 0
        self._rounds = 0

    # -- worker.repartition.Inputs --------------------------------------------------------------

    async def fetch(self) -> list[Record]:
        """See ``Inputs.fetch``; raises ``TopicsMissing`` if an input topic is not there."""
        if not self._group.joined:
            await self._group.join()
        self._rounds += 1
        self._reasons.beat()
        if self._group.due:
            await self._retry(self._look)
        fetched = await self._fetching.round()
        if self._group.changed:
            return []  # it is read again by whoever gets it
        return [record for place, found in fetched.items() for record in self._read(place, found)]

    async def taken(self) -> None:
        """See ``Inputs.taken``. A commit that fails is made up for by the next."""
        if not self._group.joined or self._group.changed:
            return
        now = time.monotonic()
        if now >= self._next_ask:
            self._next_ask = now + ASK_SECONDS
            await self._ask()
        commits = self.commits()
        offsets = {place: commit.offset for place, commit in commits.items()}
        if self._group.commits.news(offsets) or now >= self._next_note:
            self._next_note = now + NOTE_SECONDS
            await self._group.commit(commits)

    async def check_topics(self) -> None:
        """Raise ``TopicsMissing`` if a topic is not there."""
        counts = await self._cluster.partition_counts(self._topics)
        check_input_topics(self._topics, counts)

    async def stop(self) -> None:
        """Leave the group."""
        await self._group.leave()

    def standing(self, waiting: frozenset[str]) -> Standing:
        """How far it is, for the watchdog; ``waiting`` names what it is known to wait for."""
        return Standing(
            {(place.partition, place.topic): p.offset for place, p in self._positions.items()},
            {
                (place.partition, place.topic): self._lag.behind(place, p.offset)
                for place, p in self._positions.items()
            },
            taking_over=self._group.changed,
            rebalancing=self._group.rebalancing(self._settings.rebalance_timeout_ms),
            steps=self._steps,
            rounds=self._rounds,
            waiting=waiting,
        )

    # -- where to read --------------------------------------------------------------------------

    async def _look(self) -> None:
        """Find out from where to read what the group gave us, and read on.

        Asked again after an error, it has nothing to do if the group has taken back what was ours.
        """
        if not self._group.due:
            return
        consumer = self._group.consumer
        self._group.looking()
        places = sorted(consumer.assignment())
        try:
            commits = await self._commits(consumer) if places else {}
            firsts = await consumer.beginning_offsets(places) if places else {}
            asked_ms = self._clock.now_ms()
            ends = await consumer.end_offsets(places) if places else {}
        except BaseException:
            self._group.look_again()
            raise
        if commits is None:  # another member is about to say where the group begins
            self._group.look_again()
            await self._patience.pause(ASK_SECONDS)
            return
        if self._group.changed:
            return
        for place in self._positions.keys() | self._halted.keys():
            if place not in places:
                self._lag.forget(place)
            self._unhalt(place)
        self._positions.clear()
        self._group.commits.forget_all()
        self._lag.heard(ends, asked_ms)
        try:
            for place in places:
                self.begin(place, Extent(firsts[place], ends[place]), commits.get(place))
            starts = await self.starts(consumer)
            if self._group.changed:
                return
            for place, offset in starts.items():
                consumer.seek(place, offset)
                consumer.resume(place)
        except IllegalStateError:
            self._group.look_again()  # the group gave it away meanwhile
            return
        except BaseException:
            self._group.look_again()
            raise
        self._steps += 1
        self._next_note = 0.0
        self._reasons.clear("assignment")
        log.info("input partitions", partitions=[f"{p.topic}/{p.partition}" for p in places])

    async def _commits(self, consumer: AIOKafkaConsumer) -> Commits | None:
        """The group's commits; None while it is another member's to say where the group begins."""
        commits = await commits_of(consumer, self._topics)
        if commits or self._settings.start == "earliest":
            return commits
        return await begin_at_ends(consumer, self._topics, self._clock.now_ms)

    async def starts(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        """From where to read each partition that is not halted; raises aiokafka's errors."""
        return {place: position.offset for place, position in self._positions.items()}

    def commits(self) -> Commits:
        """What whoever reads next must know."""
        return {
            place: OffsetAndMetadata(position.offset, note(self.read_up_to_ms(place)))
            for place, position in self._positions.items()
        }

    def begin(
        self,
        place: TopicPartition,
        extent: Extent,
        commit: OffsetAndMetadata | None,
    ) -> None:
        """Find out where the reading of a partition goes on, or halt it."""
        if commit is None:
            offset = extent.first
            self._lag.begin(place)
            self._positions[place] = Position(offset)
        else:
            offset = extent.nearest(commit.offset)
            position = Position(offset, record_time_ms=note_ms(commit.metadata))
            self._lag.begin(place, position.record_time_ms)
            if offset != commit.offset and not self._goes_on(place, extent, commit.offset):
                self._halted[place] = position
                return
            self._positions[place] = position

    def _goes_on(self, place: TopicPartition, extent: Extent, offset: int) -> bool:
        """Whether to read on behind a gap."""
        self._operations.offset_gap(place.topic)
        goes_on = self._settings.on_offset_gap == "continue"
        why = (
            f"partition {place.partition} of {place.topic} has the offsets {extent.first} to "
            f"{extent.end}, and the group {self._name} has read up to "
            f"{offset}: records were deleted before they were read, or the topic was recreated. "
            "To continue from the nearest offset, set `kafka.on_offset_gap` to continue"
        )
        action = "continue" if goes_on else "halt"
        log.error("offset gap", partition=place.partition, action=action, reason=why)
        if not goes_on:
            self._halt(place, why)
        return goes_on

    def _halt(self, place: TopicPartition, why: str) -> None:
        """Stop this input partition only; the others go on."""
        log.error("input partition halted", reason=why)
        if place in self._positions:
            self._halted[place] = self._positions.pop(place)
        self._reasons.set(f"{place.topic}-{place.partition}", why)
        consumer = self._group.consumer
        consumer.pause(place)
        # a partition without a position keeps the client from fetching any other
        consumer.seek(place, 0)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """See ``adapters.kafka.fetching.Reader``."""
        if self._group.changed:
            return {}
        return {place: position.offset for place, position in self._positions.items()}

    def log_moved(self) -> None:
        """See ``adapters.kafka.fetching.Reader``."""
        self._group.look_again()

    def halt_place(self, place: TopicPartition, why: str) -> None:
        """See ``adapters.kafka.fetching.Reader``: this input partition stands still."""
        if place in self.next_offsets():
            self._halt(place, why)

    def _unhalt(self, place: TopicPartition) -> None:
        self._halted.pop(place, None)
        self._reasons.clear(f"{place.topic}-{place.partition}")

    # -- how far it is --------------------------------------------------------------------------

    def _read(self, place: TopicPartition, found: list[Any]) -> list[Record]:
        """The records, and the position behind them."""
        position = self._positions.get(place)
        if position is None or not found:
            return []
        records = [self.record(one) for one in found]
        self._lag.read(records)
        newest_ms = max(record.timestamp_ms or 0 for record in records)
        self._positions[place] = Position(
            records[-1].offset + 1,
            record_time_ms=max(position.record_time_ms, min(newest_ms, self._clock.now_ms())),
        )
        return records

    def record(self, found: Any) -> Record:
        """A record as it is wanted, of what the client gives."""
        return record_to_pass_on(found)

    async def _ask(self) -> None:
        """Ask the brokers for the ends, and pass offsets that hold no record."""
        consumer = self._group.consumer
        places = [*self._positions, *self._halted]
        asked_ms = self._clock.now_ms()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                self._lag.heard(await consumer.end_offsets(places), asked_ms)
                for place, position in list(self._positions.items()):
                    passed = await consumer.position(place)
                    if not self._group.changed and passed > position.offset:
                        record_time_ms = position.record_time_ms
                        self._positions[place] = Position(passed, record_time_ms=record_time_ms)
        except IllegalStateError:
            return  # the group has given it away
        except DENIED:
            return  # reading says what is lacking
        except (KafkaError, OSError, TimeoutError) as error:
            self._reasons.set("kafka", f"brokers do not answer: {type(error).__name__}")
            return
        self._reasons.clear("kafka")
        for place, position in (self._positions | self._halted).items():
            self._lag.report_one(place, position)

    def read_up_to_ms(self, place: TopicPartition) -> int:
        """Record time up to which all records were fetched; 0 if that is not known."""
        position = {place.topic: self._positions[place]}
        return self._lag.read_up_to_ms(place.partition, position) or 0
