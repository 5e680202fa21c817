"""Other partition counts for a stopped group: where its conversations, positions and records go.

A conversation goes to the number on which its key's next records will come. A topic's position
stays where the topic had it; what is new is read from its start. What was read of topics that are
no longer input is remembered in times only (``ports.FORMER``), so that windows do not go back.

Records that are unread must be taken along (``catch_up``), or there must be none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from stream_metrics.ports import (
    FORMER,
    DeadLetters,
    Identity,
    Outputs,
    Position,
    Record,
    StateStore,
    of_topics,
)
from stream_metrics.worker.astray import Astray, Partitioner, Place, find_astray, outgrown
from stream_metrics.worker.catch_up import CatchUp
from stream_metrics.worker.identity import check_identity
from stream_metrics.worker.move import Move, Progress, Unmovable, draft, switch
from stream_metrics.worker.options import PartitionOptions
from stream_metrics.worker.pieces import Merge, Merged, Pieces, merging
from stream_metrics.worker.publish import publish, publish_gone, shut_out
from stream_metrics.worker.source import Extent
from stream_metrics.worker.stored import REPARTITION, Stored, partitioner_in_use, stored_state
from stream_metrics.worker.takeover import OffsetGap, Policy, behind, gaps_between

COUNTED: Final = 10_000  # unread offsets up to which records are told from transaction markers
LISTED: Final = 8


class Logs(Protocol):
    """What Kafka says of topics, and their records."""

    async def counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Partitions by topic; topics that do not exist are left out."""
        ...

    async def extents(self, places: Collection[Place]) -> Mapping[Place, Extent]:
        """Where each log begins and ends now."""
        ...

    def records(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> AsyncIterator[Record]:
        """Those from each start to before each end, in the order of each place."""
        ...


def gaps_in(stored: Stored, extents: Mapping[Place, Extent]) -> dict[int, list[OffsetGap]]:
    """Where logs do not hold what the state needs, by partition number."""
    found = {}
    for number, held in stored.positions.items():
        logs = {topic: extents[topic, number] for topic in of_topics(held)}
        if gaps := gaps_between(held, logs):
            found[number] = gaps
    return found


def unread(stored: Stored, extents: Mapping[Place, Extent]) -> dict[Place, int]:
    """How many offsets of each place are behind its position, where there are any."""
    left = {}
    for place in stored.places:
        offset = stored.start(*place, extents[place]).offset
        if offset < extents[place].end:
            left[place] = extents[place].end - offset
    return left


def resharding(
    stored: Stored,
    identity: Identity,
    extents: Mapping[Place, Extent],
    partitioner: Partitioner,
    merge: Merge | None = None,
    *,
    apart: bool = False,
    astray: Collection[Place] = (),
) -> Move:
    """The move to the partition counts of ``identity``.

    With ``merge`` pieces become one; ``apart`` says that conversations lie elsewhere than the
    partitioner puts them. Of new places those that hold something ``astray`` are noted.
    """
    counts = identity.partition_counts
    identity = replace(
        identity.after(stored.identity),
        schema_version=stored.identity.schema_version,
        outgrown=outgrown(stored.identity, counts, extents, astray),
    )
    number_of = max(counts.values())
    event_times_us = [p.event_time_us for held in stored.positions.values() for p in held.values()]
    former = Position(
        0,
        record_time_ms=stored.record_time_ms,
        event_time_us=max(event_times_us, default=0),
    )
    starts = {
        number: {
            FORMER: former,
            **{topic: stored.start(topic, number, extents[topic, number]) for topic in counts},
        }
        for number in range(number_of)
    }

    def home(conversation_id: str, _: int) -> int:
        return _number(partitioner, number_of, conversation_id)

    def elsewhere(conversation_id: str, number: int) -> bool:
        return _number(partitioner, stored.count, conversation_id) != number

    pieces = Pieces(merge, elsewhere if apart else None) if merge is not None else None
    return Move(identity, tuple(stored.positions), starts, home, pieces=pieces)


class Reshard:
    """Moves the state of a namespace that is held to the counts of ``options.identity``.

    ``policy`` is that of offset gaps: ``continue`` goes on behind them, any other refuses.
    """

    def __init__(
        self,
        store: StateStore,
        logs: Logs,
        options: PartitionOptions,
        dead_letters: DeadLetters,
        say: Callable[[str], None],
        progress: Progress,
        outputs: Outputs | None = None,
        policy: Policy = "halt",
    ) -> None:
        self._store = store
        self._logs = logs
        self._options = options
        self._letters = dead_letters
        self._say = say
        self._progress = progress
        self._outputs = outputs
        self._policy = policy

    async def check(self) -> Stored:
        """What is stored; raises ``OtherIdentity`` where more than the counts is another."""
        stored = await stored_state(self._store)
        target = self._options.identity
        same = replace(stored.identity, partition_counts=target.partition_counts)
        check_identity(same, target, min(stored.positions))
        return stored

    async def run(
        self, mark: bytes, partitioners: Mapping[str, Partitioner], *, catch_up: bool
    ) -> None:
        """All that is left to do; raises ``Unmovable`` before anything is changed."""
        stored = await self.check()
        target = self._options.identity
        if stored.identity.partition_counts == target.partition_counts:
            await self._publish(mark)  # an earlier run has come as far as that
            return
        owed = await self._store.switched()  # rows, by a run that this one takes over
        raised = await self._check_topics(stored)
        number_of = max(target.partition_counts.values())
        found = await partitioner_in_use(self._store, stored, number_of, partitioners, raised)
        self._say(f"partitioner: {found.name}")
        partitioner = partitioners[found.name]
        new = [(t, n) for t, count in target.partition_counts.items() for n in range(count)]
        extents = await self._logs.extents({*stored.places, *new})
        stored = self._past_gaps(stored, extents)
        left = unread(stored, extents)
        if left and not catch_up:
            await self._refuse_unread(stored, extents, left)
            left = {}
        places = {place for place in {*new, *left} if place[0] in target.partition_counts}
        starts = _starts(stored, extents, places)
        ends = {place: extents[place].end for place in places}
        astray = await self._astray(starts, ends, partitioner)
        new_astray = astray.found.keys() - {*stored.places}
        if new_astray and not catch_up:
            raise Unmovable(
                f"{astray.found.total():,} records on new partitions or topics are where an "
                f"earlier partition count put their keys ({_listed(astray.found)}), where no "
                "worker would look for them: include them with --catch-up"
            )
        left |= {place: ends[place] - starts[place] for place in new_astray}
        if found.apart:
            self._say(
                f"{found.apart:,} conversations are where another partition count put them: "
                "merging each with its parts on other partitions"
            )
        notes = Merged()
        merge = merging(self._options, stored.identity.schema_version, notes)
        apart = found.apart > 0
        move = resharding(
            stored, target, extents, partitioner, merge, apart=apart, astray=new_astray
        )
        drafted = await draft(self._store, mark, move, self._options, self._progress)
        if self._outputs is not None:
            await shut_out(self._outputs, move.retired)
        if left:
            late = CatchUp(
                self._store.drafts(mark),
                mark,
                move,
                drafted,
                self._options,
                self._letters,
                partitioner,
                self._outputs,
            )
            ends = {place: extents[place].end for place in left}
            async for record in self._logs.records(_starts(stored, extents, left), ends):
                await late.take(record)
            drafted = await late.finish(ends)
            self._say(f"included {late.taken:,} unread records")
        await self._refuse_astray(extents.keys(), extents, partitioner)
        if self._outputs is not None:
            way = partial(_number, partitioner, stored.count)
            await publish_gone(self._store, mark, self._outputs, notes.gone, way)
        await switch(self._store, mark, move.retired, drafted)
        self._say(f"replaced {len(move.retired)} state partitions by {len(move.starts)}")
        if notes.rows or owed:
            await self._publish(mark, None if owed else notes.rows)

    async def _publish(self, mark: bytes, names: Collection[str] | None = None) -> None:
        """Send rows to the output topic, if there is one: merged conversations have other rows.

        Those of all, unless ``names`` tells which: what an earlier run has merged nobody knows.
        """
        if self._outputs is not None:
            engine, scope = self._options.engine, self._options.turn_scope
            await publish(self._store, mark, self._outputs, engine, scope, lambda _: None, names)
            which = "all rows" if names is None else "the rows of merged conversations"
            self._say(f"the output topic has the current version of {which}")

    async def _check_topics(self, stored: Stored) -> int:
        """The largest count that topics of the state have by now."""
        counts = await self._logs.counts(stored.identity.partition_counts)
        for topic, count in stored.identity.partition_counts.items():
            if topic not in counts:
                raise Unmovable(
                    f"topic {topic} no longer exists, so it is unknown whether it was read to its "
                    "end. Keep a topic until reshard is done"
                )
            if counts[topic] < count:
                raise Unmovable(
                    f"topic {topic} has {counts[topic]} partitions and had {count}: it was "
                    "recreated, and its unread records are gone. Give the new topic another name"
                )
        return max(counts.values())

    def _past_gaps(self, stored: Stored, extents: Mapping[Place, Extent]) -> Stored:
        """The state at positions that the logs hold; raises ``Unmovable`` unless that is asked for.

        Workers cannot judge: none starts with other counts than those of the state.
        """
        found = gaps_in(stored, extents)
        told = [f"partition {n}: {gap.message}" for n, gaps in found.items() for gap in gaps]
        if told and self._policy != "continue":
            more = f" (and {len(told) - 1} more offset gaps)" if len(told) > 1 else ""
            raise Unmovable(
                f"{told[0]}{more}. To continue from the nearest offset, without the records that "
                "are gone, run this with kafka.on_offset_gap continue. "
                f"Or start over: {REPARTITION}"
            )
        for gap in told:
            self._say(f"offset gap, passed over: {gap}")
        positions = {n: behind(held, found.get(n, ())) for n, held in stored.positions.items()}
        return replace(stored, positions=positions)

    async def _refuse_unread(
        self, stored: Stored, extents: Mapping[Place, Extent], left: Mapping[Place, int]
    ) -> None:
        """Raise ``Unmovable`` unless what is left are transaction markers."""
        found = Counter(left)
        if found.total() <= COUNTED:
            found = Counter()
            ends = {place: extents[place].end for place in left}
            async for record in self._logs.records(_starts(stored, extents, left), ends):
                found[record.topic, record.partition] += 1
        if found:
            raise Unmovable(
                f"{found.total():,} records are unread ({_listed(found)}). Start the workers until "
                "they have read them, and stop them again. If they cannot, because partitions were "
                "added, include the records with --catch-up"
            )

    async def _astray(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int], partitioner: Partitioner
    ) -> Astray:
        """What lies astray; raises ``Unmovable`` if no partition count explains it."""
        counts, limits = self._options.identity.partition_counts, self._options.engine.limits
        records = self._logs.records(starts, ends)
        astray = await find_astray(records, starts, counts, partitioner, limits)
        if astray.alien:
            raise Unmovable(
                f"{astray.alien.total():,} records are where the conversations' partitioner does "
                f"not put their key under any partition count ({_listed(astray.alien)}). Producers "
                "use different partitioners, so it is unknown where a conversation's next records "
                f"will arrive. {REPARTITION}"
            )
        return astray

    async def _refuse_astray(
        self,
        places: Collection[Place],
        extents: Mapping[Place, Extent],
        partitioner: Partitioner,
    ) -> None:
        """Raise ``Unmovable`` if producers have written meanwhile as if nothing had changed."""
        now = await self._logs.extents(places)
        starts = {place: extents[place].end for place in places}
        ends = {place: now[place].end for place in places}
        found = (await self._astray(starts, ends, partitioner)).found
        if found:
            raise Unmovable(
                f"producers have just written {found.total():,} records where no worker would look "
                f"for them ({_listed(found)}): some still use the old topics or partition count. "
                "Restart those, then run this again with --catch-up"
            )


def _number(partitioner: Partitioner, count: int, conversation_id: str) -> int:
    return partitioner(conversation_id.encode("utf-8", "surrogatepass"), count)


def _starts(
    stored: Stored, extents: Mapping[Place, Extent], places: Collection[Place]
) -> dict[Place, int]:
    return {place: stored.start(*place, extents[place]).offset for place in places}


def _listed(found: Counter[Place]) -> str:
    listed = ", ".join(f"{topic}/{n}: {c:,}" for (topic, n), c in found.most_common(LISTED))
    return listed + (f" and {len(found) - LISTED} others" if len(found) > LISTED else "")
