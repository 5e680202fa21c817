"""Other partition counts for a stopped group: where its conversations, positions and records go.

A conversation goes to the number on which its key's next records will come. A topic's position
stays where the topic had it; what is new is read from its start. What was read of topics that are
no longer input is remembered in times only (``ports.FORMER``), so that windows do not go back.

A group may have records left that are unread (``CatchUp``): where partitions were added, some of
them lie where the old count puts their key, and their conversation is on another number by then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from stream_metrics.engine.codec import stored_header
from stream_metrics.events.decode import Event, decode
from stream_metrics.events.wire import Forget
from stream_metrics.ports import (
    FORMER,
    DeadLetters,
    Identity,
    Position,
    Record,
    StateStore,
)
from stream_metrics.worker.cache import ConversationCache
from stream_metrics.worker.move import Move, Unmovable
from stream_metrics.worker.partition import PartitionOptions, SharedNames, StatePartition
from stream_metrics.worker.takeover import Extent
from stream_metrics.worker.telemetry import Silent

Place = tuple[str, int]  # topic and partition
Partitioner = Callable[[bytes, int], int]

BATCH: Final = 400


@dataclass(frozen=True, slots=True)
class Stored:
    """What a namespace holds: the identity of its partitions, and their positions by number."""

    identity: Identity
    positions: Mapping[int, Mapping[str, Position]]

    @property
    def count(self) -> int:
        """How many partitions its topics have."""
        return max(self.identity.partition_counts.values())

    def start(self, topic: str, number: int, extent: Extent) -> Position:
        """From where a topic's partition is to be read on."""
        held = self.positions.get(number, {})
        return held.get(topic, Position(extent.first))

    @property
    def places(self) -> list[Place]:
        """Every partition of every topic that it was built for."""
        counts = self.identity.partition_counts
        return [(topic, number) for topic, count in counts.items() for number in range(count)]


async def stored_state(store: StateStore) -> Stored:
    """What the namespace holds; raises ``Unmovable`` unless it is whole."""
    if unfinished := await store.unfinished():
        raise Unmovable(
            f"the state partitions {unfinished} are being wiped, and somebody has to end that: "
            "start the workers, or run `stream-metrics rebuild`"
        )
    identities: list[Identity] = []
    positions = {}
    for number in await store.partitions():
        state = await store.describe(number)
        assert state.identity is not None
        positions[number] = state.positions
        identities.append(state.identity)
    if not identities:
        raise Unmovable("the namespace holds no state; is redis.namespace the workers'?")
    schema = max(identity.schema_version for identity in identities)
    whole = [replace(identity, schema_version=schema) for identity in identities]
    if any(identity != whole[0] for identity in whole):
        raise Unmovable(
            "state partitions were built by different settings; a `stream-metrics migrate` was cut "
            "off, run it again"
        )
    return Stored(whole[0], positions)


async def partitioner_in_use(
    store: StateStore, stored: Stored, partitioners: Mapping[str, Partitioner]
) -> str:
    """The first of the partitioners that puts every conversation where it is.

    Raises ``Unmovable`` if there is none: then nobody knows where conversations will go.
    """
    elsewhere = dict.fromkeys(partitioners, 0)
    total = 0
    for number in stored.positions:
        async for _, parts in store.conversations(number):
            name = stored_header(parts.hot).conversation_id
            if not name:
                continue  # a tombstone, which is on every partition
            total += 1
            key = name.encode("utf-8", "surrogatepass")
            for kind, partitioner in partitioners.items():
                elsewhere[kind] += partitioner(key, stored.count) != number
    for kind, wrong in elsewhere.items():
        if not wrong:
            return kind
    listed = ", ".join(f"{kind} {wrong:,}" for kind, wrong in elsewhere.items())
    raise Unmovable(
        f"of {total:,} conversations so many lie on another partition than a partitioner puts "
        f"their key on: {listed}. Producers choose partitions in different ways, and nobody can "
        "tell where a conversation's next records will come. Let all use one partitioner, wait for "
        "`state.ttl`, and run this again"
    )


def unread(stored: Stored, extents: Mapping[Place, Extent]) -> dict[Place, int]:
    """How many offsets of each place are behind its position; raises ``Unmovable`` for a gap."""
    left = {}
    for place in stored.places:
        topic, number = place
        extent = extents[place]
        offset = stored.start(topic, number, extent).offset
        if not extent.first <= offset <= extent.end:
            raise Unmovable(
                f"{topic}, partition {number}, holds the offsets from {extent.first} to "
                f"{extent.end}, and the state needs {offset}: records are gone, or the topic was "
                "made anew. Start the workers as they were and let them tell (kafka.on_offset_gap)"
            )
        if offset < extent.end:
            left[place] = extent.end - offset
    return left


def resharding(
    stored: Stored,
    identity: Identity,
    extents: Mapping[Place, Extent],
    partitioner: Partitioner,
) -> Move:
    """The move to the partition counts of ``identity``."""
    identity = replace(identity, schema_version=stored.identity.schema_version)
    counts = identity.partition_counts
    number_of = max(counts.values())
    every = [p for held in stored.positions.values() for p in held.values()]
    former = Position(
        0,
        record_time_ms=max((p.record_time_ms for p in every), default=0),
        event_time_us=max((p.event_time_us for p in every), default=0),
    )
    starts = {
        number: {
            FORMER: former,
            **{topic: stored.start(topic, number, extents[topic, number]) for topic in counts},
        }
        for number in range(number_of)
    }

    def home(conversation_id: str, _: int) -> int:
        return partitioner(conversation_id.encode("utf-8", "surrogatepass"), number_of)

    return Move(identity, tuple(stored.positions), starts, home)


@dataclass(slots=True)
class _Passed:
    """The last record of a place, and the largest timestamp."""

    record: Record
    record_time_ms: int


class CatchUp:
    """Takes the unread records of the old places into drafts, each where its key belongs now."""

    def __init__(
        self,
        drafts: StateStore,
        mark: bytes,
        move: Move,
        options: PartitionOptions,
        dead_letters: DeadLetters,
        partitioner: Partitioner,
    ) -> None:
        self._drafts = drafts
        self._mark = mark
        self._move = move
        self._options = replace(options, identity=move.identity)
        self._letters = dead_letters
        self._partitioner = partitioner
        self._cache = ConversationCache(100_000)
        self._names = SharedNames(drafts, self._options)
        self._partitions: dict[int, StatePartition] = {}
        self._waiting: dict[int, list[Record]] = {}
        self._passed: dict[Place, _Passed] = {}
        self.taken = 0

    async def take(self, record: Record) -> None:
        """Take the next record of its place."""
        self.taken += 1
        place = (record.topic, record.partition)
        clock, stamp = self._options.now_ms, record.timestamp_ms or 0
        stamp = stamp if clock is None else min(stamp, clock())
        known = self._passed.get(place)
        times = stamp if known is None else max(stamp, known.record_time_ms)
        self._passed[place] = _Passed(record, times)
        for number in self._numbers(record):
            waiting = self._waiting.setdefault(number, [])
            waiting.append(record)
            if len(waiting) >= BATCH:
                await self._process(number)

    async def finish(self, ends: Mapping[Place, int]) -> None:
        """Write what waits, and let reading go on behind all that was taken."""
        for number in list(self._waiting):
            await self._process(number)
        counts = self._move.identity.partition_counts
        for (topic, number), end in ends.items():
            if number >= counts.get(topic, 0):
                continue  # is not read any more
            partition = await self._partition(number)
            position = replace(partition.positions[topic], offset=end)
            passed = self._passed.get((topic, number))
            if passed is not None:
                stamp = passed.record.timestamp_ms
                position = replace(
                    position,
                    last_timestamp_ms=-1 if stamp is None else stamp,
                    last_digest=partition.record_digest(passed.record),
                    record_time_ms=max(position.record_time_ms, passed.record_time_ms),
                )
            await partition.move({**partition.positions, topic: position}, _once)

    def _numbers(self, record: Record) -> Sequence[int]:
        """Where a record belongs; a forget is for every partition."""
        numbers = tuple(self._move.starts)
        limits = self._options.engine.limits
        event = decode(
            record.value,
            key=record.key,
            timestamp_ms=record.timestamp_ms,
            limits=limits,
            require_key=True,
        )
        if isinstance(event, Event) and type(event.payload) is Forget:
            return numbers
        if record.key is None:
            return (numbers[record.partition % len(numbers)],)
        return (self._partitioner(record.key, len(numbers)),)

    async def _process(self, number: int) -> None:
        records = self._waiting.pop(number)
        await (await self._partition(number)).process(records, _once, former=True)

    async def _partition(self, number: int) -> StatePartition:
        partition = self._partitions.get(number)
        if partition is None:
            partition = StatePartition(
                number,
                self._options,
                self._drafts,
                self._letters,
                self._cache,
                self._names,
                Silent(),
                self._mark,
            )
            identity = self._move.identity
            partition.adopt(await self._drafts.claim(number, self._mark, identity, {}))
            self._partitions[number] = partition
        return partition


async def _once(call: Callable[[], Awaitable[Any]]) -> Any:
    """Whoever is cut off by an outage runs the command again."""
    return await call()
