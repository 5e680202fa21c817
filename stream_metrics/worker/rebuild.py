"""State anew for a stopped group: all its topics are read again, as far back as Kafka has them.

Empty drafts at the starts of the logs take the places of the state partitions (``move``): until
that one step nothing has changed, after it workers read from there. It is the way out for whatever
cannot be gone on with: other settings, records that are gone, state that is lost, damaged or half
wiped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from stream_metrics.engine.state import DamagedState
from stream_metrics.ports import (
    FORMER,
    MAX_TIMESTAMP_MS,
    Identity,
    PartitionState,
    Position,
    Record,
    StateStore,
)
from stream_metrics.worker.astray import Place
from stream_metrics.worker.identity import OtherIdentity
from stream_metrics.worker.move import Move, Unmovable, draft, switch
from stream_metrics.worker.options import PartitionOptions, record_digest
from stream_metrics.worker.source import Extent
from stream_metrics.worker.stored import REPARTITION


class Starts(Protocol):
    """What Kafka says of where logs begin."""

    async def extents(self, places: Collection[Place]) -> Mapping[Place, Extent]:
        """Where each log begins and ends now."""
        ...

    def records(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> AsyncIterator[Record]:
        """Those from each start to before each end, in the order of each place."""
        ...

    async def oldest_ms(self, places: Collection[Place]) -> Mapping[Place, int]:
        """The timestamp of the first record of each log; logs without one are left out."""
        ...


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back a topic can be read.

    ``deleted`` are offsets that its logs have passed without keeping them, ``oldest_ms`` where the
    log begins that reaches back least (None: no records are left), ``bare`` the conversations of
    the state whose last record is older than their topic's log.
    """

    topic: str
    deleted: int = 0
    oldest_ms: int | None = None
    bare: int = 0


@dataclass(frozen=True, slots=True)
class Former:
    """What the state has of topics that are no longer input, or of before they got more partitions.

    ``read_up_to_ms`` is the largest timestamp of those records, ``bare`` the conversations whose
    last record is older than all that their number's topics still have.
    """

    read_up_to_ms: int
    bare: int


class Rebuild:
    """Replaces the state of a namespace by empty partitions at the starts of the logs."""

    def __init__(
        self,
        store: StateStore,
        logs: Starts,
        options: PartitionOptions,
        say: Callable[[str], None],
    ) -> None:
        self._store = store
        self._logs = logs
        self._options = options
        self._say = say

    async def conversations(self) -> int:
        """How many conversations the state holds, as far as it can be told."""
        return sum([await self._older(n, None) for n in await self._store.partitions()])

    async def reach(self) -> list[Reach]:
        """What the topics still have, and what of the state they have no more.

        Raises ``OtherIdentity`` for another group's state, ``Unmovable`` where reading again would
        tear conversations apart.
        """
        extents = await self._logs.extents(self._places())
        for topic in sorted(await self._check(extents)):
            self._say(f"{topic}: recreated since partitions were added, so all of it is read")
        cut = [place for place, extent in extents.items() if extent.first > 0]
        oldest = await self._logs.oldest_ms(cut)
        begins = {place: oldest.get(place, MAX_TIMESTAMP_MS) for place in cut}
        found = []
        for topic in self._options.identity.partition_counts:
            of_topic = {n: ms for (name, n), ms in begins.items() if name == topic}
            last = max(of_topic.values(), default=MAX_TIMESTAMP_MS)
            found.append(
                Reach(
                    topic,
                    sum(extents[topic, number].first for number in of_topic),
                    last if last < MAX_TIMESTAMP_MS else None,
                    sum([await self._older(number, ms) for number, ms in of_topic.items()]),
                )
            )
        return found

    async def former(self) -> Former | None:
        """What of the state came from where nothing is read any more, if anything did."""
        numbers = await self._store.partitions()
        read_up_to_ms = max([await self._former_ms(number) for number in numbers], default=0)
        if not read_up_to_ms:
            return None
        oldest = await self._logs.oldest_ms(self._places())
        begins = dict[int, int]()
        for (_, number), ms in oldest.items():
            begins[number] = min(ms, begins.get(number, MAX_TIMESTAMP_MS))
        bare = [await self._older(n, begins.get(n, MAX_TIMESTAMP_MS)) for n in numbers]
        return Former(read_up_to_ms, sum(bare))

    async def run(self, mark: bytes) -> None:
        """Put the empty partitions in place; raises like ``reach``, before anything is changed."""
        extents = await self._logs.extents(self._places())
        await self._check(extents)
        counts = self._options.identity.partition_counts
        starts = {
            number: {topic: Position(extents[topic, number].first) for topic in counts}
            for number in range(max(counts.values()))
        }
        old = {*await self._store.partitions(), *await self._store.unfinished()}
        move = Move(self._options.identity, (), starts, lambda _, home: home)
        drafted = await draft(self._store, mark, move, self._options, lambda _: None)
        await switch(self._store, mark, sorted(old), drafted)
        self._say(f"reset {len(starts)} state partitions to the beginning of the logs")

    async def _check(self, extents: Mapping[Place, Extent]) -> set[str]:
        """Raise like ``reach``; the topics for which an earlier count does not matter any more."""
        ours = self._options.identity
        states = dict[int, PartitionState]()
        for number in await self._store.partitions():
            with suppress(DamagedState):  # it is replaced whatever it holds
                states[number] = await self._store.describe(number)
        anew = await self._made_anew(states, extents)
        for number, state in states.items():
            stored = state.identity
            if stored is None:
                continue
            if stored.group != ours.group:
                raise OtherIdentity(
                    f"state partition {number} belongs to group {stored.group!r}, but the settings "
                    f"name group {ours.group!r}. Use a separate namespace for each group"
                )
            for topic, count in ours.partition_counts.items():
                before = stored.partition_counts.get(topic, count)
                if before < count:
                    raise Unmovable(
                        f"topic {topic} had {before} partitions and has {count} now: its older "
                        "records are on the partitions of the old count, so a rebuild would split "
                        "conversations. Run `stream-metrics reshard`, which moves the state and "
                        f"merges conversations that are already split. Or start over: {REPARTITION}"
                    )
            _refuse_outgrown(stored, extents, anew)
        return anew

    async def _made_anew(
        self, states: Mapping[int, PartitionState], extents: Mapping[Place, Extent]
    ) -> set[str]:
        """Topics that are others than those of which the state notes an earlier partition count.

        A log may have lost its last records, too. So a topic is another one if a log ends before
        the state's position, or has another record before it, and no log is recognised.
        """
        another, known = set[str](), set[str]()
        last: dict[Place, tuple[Identity, Position]] = {}
        for number, state in states.items():
            for topic in state.identity.outgrown if state.identity is not None else ():
                extent, position = extents.get((topic, number)), state.positions.get(topic)
                if state.identity is None or extent is None or position is None:
                    continue
                if position.offset > extent.end:
                    another.add(topic)
                elif position.last_digest and position.offset > extent.first:
                    last[topic, number] = state.identity, position
        ends = {place: position.offset for place, (_, position) in last.items()}
        async for record in self._logs.records({p: end - 1 for p, end in ends.items()}, ends):
            identity, position = last[record.topic, record.partition]
            same = self._recognised(record, identity, position)
            (known if same else another).add(record.topic)
        return another - known

    def _recognised(self, record: Record, stored: Identity, position: Position) -> bool:
        """Whether a record may be the one that was read before a position.

        The key of digests is known only if the settings are those of the state.
        """
        stamp = -1 if record.timestamp_ms is None else record.timestamp_ms
        if stamp != position.last_timestamp_ms:
            return False
        if stored.fingerprint != self._options.identity.fingerprint:
            return True
        return record_digest(record, self._options) == position.last_digest

    async def _former_ms(self, number: int) -> int:
        """Up to which record time a partition has what is read no more; 0 if it has nothing."""
        with suppress(DamagedState):
            former = (await self._store.describe(number)).positions.get(FORMER)
            return former.record_time_ms if former is not None else 0
        return 0

    async def _older(self, number: int, ms: int | None) -> int:
        """How many conversations of a partition had their last record before that time, if any.

        None of a partition that is damaged: it is replaced whatever it holds.
        """
        with suppress(DamagedState):
            held = await self._store.count(number)
            return held if ms is None else len(await self._store.idle(number, ms, held))
        return 0

    def _places(self) -> list[Place]:
        counts = self._options.identity.partition_counts
        return [(topic, number) for topic, count in counts.items() for number in range(count)]


def _refuse_outgrown(
    stored: Identity, extents: Mapping[Place, Extent], anew: Collection[str]
) -> None:
    """Raise ``Unmovable`` if a log still has records of before its topic got more partitions."""
    for topic, ends in stored.outgrown.items():
        if topic in anew:
            continue
        for number, end in enumerate(ends):
            extent = extents.get((topic, number))
            if extent is not None and extent.first < min(end, extent.end):
                raise Unmovable(
                    f"partitions were added to topic {topic} when its partition {number} ended at "
                    f"offset {end}, and it still begins at {extent.first}: the records between "
                    "are on the partitions of an earlier count, so a rebuild would split "
                    "conversations. Wait until Kafka has deleted them, or delete them "
                    f"(kafka-delete-records.sh), which loses their figures. {REPARTITION}"
                )
