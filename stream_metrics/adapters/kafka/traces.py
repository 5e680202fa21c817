"""The topic of traces as the bridge reads it, and the input topics as it writes them.

A commit is the offset before the first record of any trace that is not closed. Beside it stand the
record time there, by which whoever reads next finds which traces had records before, and the scopes
of which searches were told.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import InvalidTimestampError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.adapters.kafka.cluster import Cluster, Group
from stream_metrics.adapters.kafka.commits import Commits, commits_of
from stream_metrics.adapters.kafka.inputs import ANSWER_WITHIN_SECONDS, KafkaInputs
from stream_metrics.adapters.kafka.keyed import Keyed, KeyedProducer
from stream_metrics.adapters.kafka.lag import Gauges, Lag
from stream_metrics.adapters.kafka.records import record_of
from stream_metrics.adapters.kafka.topics import TopicsMissing, check_input_topics
from stream_metrics.ports import InputTopicsUnavailable, Position, Record
from stream_metrics.settings import KafkaSettings
from stream_metrics.telemetry import Event
from stream_metrics.telemetry.assembly import Place
from stream_metrics.telemetry.teller import Teller
from stream_metrics.worker.bridge import Assemblies
from stream_metrics.worker.clock import Clock
from stream_metrics.worker.patience import Patience, Reasons
from stream_metrics.worker.takeover import Extent

log = structlog.get_logger(__name__)

NOTE_BYTES: Final = 3_000  # brokers take 4,096 by default
_TIME, _SCOPES = "time_ms", "scopes"


def note_of(time_ms: int, scopes: frozenset[tuple[str, str]]) -> str:
    """What stands beside an offset.

    >>> said_in(note_of(7, frozenset({("service", "scope")})))
    (7, [('service', 'scope')])
    """
    listed = sorted(scopes)
    while True:
        text = json.dumps({_TIME: time_ms, _SCOPES: listed}, separators=(",", ":"))
        if len(text) <= NOTE_BYTES:
            return text
        listed = listed[: len(listed) // 2]


def said_in(note: str | None) -> tuple[int | None, list[tuple[str, str]]]:
    """Time and scopes in such a text; None and none where it is no text of ours.

    >>> said_in(""), said_in('{"scopes":1}')
    ((None, []), (None, []))
    """
    try:
        said = json.loads(note or "")
        time_ms = int(said[_TIME])
        return time_ms, [(str(service), str(scope)) for service, scope in said[_SCOPES]]
    except (ValueError, TypeError, KeyError):
        return None, []


class KafkaTraces(KafkaInputs):
    """``worker.bridge.Inputs``: the topic of traces, from the commits of the bridge's group."""

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        patience: Patience,
        reasons: Reasons,
        operations: Gauges,
        clock: Clock,
        assemblies: Assemblies,
        teller: Teller,
        events: Sequence[str] = (),
    ) -> None:
        group = Group(settings.group_id, settings.state_topics, RoundRobinPartitionAssignor)
        super().__init__(settings, cluster, patience, reasons, operations, clock, group)
        self._lag = Lag(operations, clock.now_ms, in_order=False)  # only the end tells the time
        self._events = tuple(events)
        self._assemblies = assemblies
        self._teller = teller
        self._places: dict[TopicPartition, tuple[Extent, OffsetAndMetadata | None]] = {}

    async def check_topics(self) -> None:
        """Raise ``TopicsMissing`` unless the topic is there, and those for its events."""
        counts = await self._cluster.partition_counts([*self._topics, *self._events])
        for topic in self._topics:
            if topic not in counts:
                raise TopicsMissing(
                    f"the topic of traces does not exist: {topic}. Create it with "
                    "message.timestamp.type=LogAppendTime, or correct `bridge.topic`"
                )
        check_input_topics(self._events, counts)

    def record(self, found: Any) -> Record:
        """A record to be counted."""
        return record_of(found, self._settings.repartition_topic)

    def ended(self) -> Mapping[int, int]:
        """See ``worker.bridge.Inputs``."""
        return {
            place.partition: self.read_up_to_ms(place)
            for place in self.next_offsets()
            if self._shows_all(place)
        }

    def _shows_all(self, place: TopicPartition) -> bool:
        """Whether no transaction is open: records behind it are as old as when it began."""
        highwater = self._group.consumer.highwater(place)
        stable = self._group.consumer.last_stable_offset(place)
        return highwater is not None and highwater == stable

    def commits(self) -> Commits:
        """What whoever reads next must know."""
        found = {}
        for place, position in self._positions.items():
            begin = self._assemblies.commit(place.partition, position.offset)
            if begin is not None:
                note = note_of(begin.time_ms, self._teller.scopes)
                found[place] = OffsetAndMetadata(begin.offset, note)
        return found

    def begin(
        self, place: TopicPartition, extent: Extent, commit: OffsetAndMetadata | None
    ) -> None:
        """Find out where the reading of a partition goes on, or halt it."""
        super().begin(place, extent, commit)
        self._places[place] = extent, commit

    async def starts(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        """From where to read each partition: before the place where it goes on, so that it is known
        which traces had records there. Raises aiokafka's errors and ``TwoScopes``."""
        begins: dict[TopicPartition, Place] = {}
        since_ms: dict[int, int] = {}
        for place, position in self._positions.items():
            begins[place] = await self._place(place, position.offset)
            since_ms[place.partition] = await self._since_ms(place, begins[place])
        self._places.clear()
        before_ms = self._assemblies.bounds.known_ms
        wanted = {place: max(0, begin.time_ms - before_ms) for place, begin in begins.items()}
        found = await consumer.offsets_for_times(wanted) if wanted else {}
        starts = {}
        for place, begin in begins.items():
            at = found.get(place)
            starts[place] = begin.offset if at is None else min(at.offset, begin.offset)
            self._positions[place] = Position(starts[place])
        self._assemblies.begin(
            {place.partition: begin for place, begin in begins.items()}, since_ms
        )
        log.info(
            "partitions of traces",
            partitions={place.partition: begin.offset for place, begin in begins.items()},
        )
        return starts

    async def _ask(self) -> None:
        """Ask for the ends too; raises ``TwoScopes``."""
        await super()._ask()
        if self._positions and not self._halted:
            until_ms = min(map(self.read_up_to_ms, self._positions))
            self._operations.complete_until(until_ms / 1000)
        await self._hear_of_others()

    async def _hear_of_others(self) -> None:
        """Learn which scopes other bridges of the group have told."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                commits = await commits_of(self._group.consumer, self._topics)
        except (KafkaError, OSError, TimeoutError):
            return  # asked again soon
        for commit in commits.values():
            self._teller.know(said_in(commit.metadata)[1])

    async def _place(self, place: TopicPartition, offset: int) -> Place:
        """Where the reading of a partition goes on, and the record time there."""
        extent, commit = self._places[place]
        time_ms, scopes = said_in(commit.metadata if commit else None)
        self._teller.know(scopes)
        if commit is not None and commit.offset == offset and time_ms is not None:
            return Place(offset, time_ms)
        if not offset:
            return Place(0, 0)  # nothing was before
        return Place(offset, await self._time_ms(place, Extent(offset, extent.end)))

    async def _since_ms(self, place: TopicPartition, begin: Place) -> int:
        """From when on no record of a trace that begins was deleted; 0 if that is so from there."""
        extent, commit = self._places[place]
        if not extent.first:
            return 0
        deleted_ms = min(begin.time_ms, await self._time_ms(place, extent))  # no later
        since_ms = deleted_ms + self._assemblies.bounds.known_ms
        if begin.time_ms >= since_ms:
            return 0
        if commit is not None and commit.offset >= extent.first:
            self._operations.offset_gap(place.topic)
        log.warning(
            "records were deleted that may have begun traces, so what begins within the time for "
            "which traces are remembered is not told. Keep the records of the topic for longer",
            partition=place.partition,
            first_offset=extent.first,
            until_ms=since_ms,
        )
        return since_ms

    async def _time_ms(self, place: TopicPartition, extent: Extent) -> int:
        """The time of the first record of the extent; the present time if there is none."""
        if extent.first < extent.end:
            found = await self._cluster.time_at(place, extent)
            if found is not None:
                return found
        return self._clock.now_ms()


class KafkaEvents:
    """``worker.bridge.Events``: each event goes to the topic that ``topic_of`` says."""

    def __init__(self, settings: KafkaSettings, topic_of: Callable[[bytes], str]) -> None:
        self._settings = settings
        self._topic_of = topic_of
        self._producer = KeyedProducer(settings)

    async def send(self, events: Sequence[Event]) -> Sequence[Event]:
        """See ``worker.bridge.Events``."""
        records = {
            Keyed(self._topic_of(event.value), event.conversation.encode(), event.value): event
            for event in events
        }
        try:
            large = await self._producer.send(list(records))
        except (KafkaError, OSError, TimeoutError) as error:
            topics = ", ".join(sorted({record.topic for record in records}))
            raise InputTopicsUnavailable(f"cannot write to {topics}: {_why(error)}") from error
        return [records[record] for record in large]

    async def stop(self) -> None:
        """Disconnect; what is not sent yet is dropped."""
        await self._producer.stop()


def _why(error: Exception) -> str:
    if isinstance(error, InvalidTimestampError):
        return "the topic rejects the present time; check this machine's clock"
    return (
        f"{type(error).__name__}. The topics must exist and have room, and the bridge needs "
        "permission to write to them"
    )
