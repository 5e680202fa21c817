"""Takeover of a partition: gaps and their policies, with crashes at any point."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import count
from typing import Any

import pytest
from msgspec import structs

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Extent, Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from stream_metrics.live.memory import MemoryDeadLetters, MemorySnapshot, MemoryStore
from stream_metrics.live.ports import (
    BatchWrite,
    Fenced,
    PartitionState,
    Position,
    StoreUnavailable,
    Superseded,
    WipeResult,
    WriteResult,
)
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.kept_state import KeptState
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import LoopOptions, Policy
from stream_metrics.live.worker.ownership.takeover import (
    Blocked,
    OffsetGap,
    TakenOver,
    TakeOver,
    offsets,
    other_record,
)
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.source import Commit, PartitionId
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests.helpers import rest_long
from tests.property.test_partition import IDENTITY as ONE_TOPIC
from tests.property.test_partition import once, options

TOPICS = ("events", "labels")
IDENTITY = replace(ONE_TOPIC, partition_counts=dict.fromkeys(TOPICS, 1))
BATCH = 40
STEPS = 4  # three conversations each


class Crash(Exception):
    """Simulates the death of the process."""


class Fuse:
    """Raises ``Crash`` once it has been passed ``left`` times; never if that is None."""

    def __init__(self, left: int | None = None) -> None:
        self.left = left

    def passing(self, place: str) -> None:
        """Count a pass; raises ``Crash`` after the last."""
        if self.left == 0:
            raise Crash(place)
        if self.left is not None:
            self.left -= 1


class FusedStore(MemoryStore):
    """The memory store of a process that dies before or after a call; wipes in small steps."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self.fuse = fuse
        self.wiped_at_once = 3

    async def describe(self, partition: int) -> PartitionState:
        """Die before it; to die after it is to die before the next call."""
        self.fuse.passing("describe")
        return await super().describe(partition)

    async def wipe(self, partition: int, token: bytes | None = None) -> WipeResult:
        """Every step."""
        self.fuse.passing("before wipe")
        result = await super().wipe(partition, token)
        self.fuse.passing("after wipe")
        return result

    async def claim(
        self, partition: int, token: bytes, start: Mapping[str, Position]
    ) -> PartitionState:
        """The owner may be set although the answer never comes."""
        self.fuse.passing("before claim")
        state = await super().claim(partition, token, start)
        self.fuse.passing("after claim")
        return state

    async def write(self, batch: BatchWrite) -> WriteResult:
        """Batches, and positions that are moved."""
        self.fuse.passing("before write")
        result = await super().write(batch)
        self.fuse.passing("after write")
        return result


@dataclass
class ScriptedLog:
    """The logs of one partition number, and the group's commits (offset, fresh)."""

    fuse: Fuse
    records: dict[str, list[Record]]
    first: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    commits: dict[PartitionId, Commit] = field(default_factory=dict)
    member: bool = True

    async def extents(self, places: Collection[PartitionId]) -> dict[PartitionId, Extent]:
        """See ``Source``."""
        self.fuse.passing("extents")
        return {place: Extent(self.first[place.topic], self.end(place.topic)) for place in places}

    async def committed(self, places: Collection[PartitionId]) -> dict[PartitionId, Commit]:
        """See ``Source``."""
        return {place: self.commits[place] for place in places if place in self.commits}

    async def confirm(self, commits: Mapping[PartitionId, Commit]) -> bool:
        """See ``Source``."""
        self.fuse.passing("before confirm")
        if self.member:
            self.commits |= commits
        self.fuse.passing("after confirm")
        return self.member

    def end(self, topic: str) -> int:
        """The offset of the next record."""
        found = self.records[topic]
        return found[-1].offset + 1 if found else self.first[topic]

    def cut(self, topic: str, first: int) -> None:
        """Delete records below ``first``."""
        self.first[topic] = first
        self.records[topic] = [r for r in self.records[topic] if r.offset >= first]

    def after(self, positions: Mapping[str, Position]) -> list[Record]:
        """The records from this position on."""
        return [
            record
            for topic in TOPICS
            for record in self.records[topic]
            if record.offset >= positions[topic].offset
        ]

    @property
    def all(self) -> list[Record]:
        """Every record."""
        return [record for topic in TOPICS for record in self.records[topic]]


@lru_cache
def generated(seed: int) -> tuple[TrafficRecord, ...]:
    """The traffic of a seed."""
    profile = TrafficProfile(seed=seed, conversations=12, duration_seconds=300, invalid=0.05)
    return tuple(generate(profile))


def traffic(seed: int) -> dict[str, list[Record]]:
    """Both topics with the records of one seed."""
    records: dict[str, list[Record]] = {topic: [] for topic in TOPICS}
    for sent in generated(seed):
        found = records[sent.stream]
        found.append(Record(sent.value, sent.key, sent.timestamp_ms, sent.stream, 0, len(found)))
    return records


_read: list[tuple[MemorySnapshot, dict[PartitionId, Commit]]] = []  # made once


@dataclass
class World:
    """A group with one partition number, its store and its logs, and workers that come and go."""

    fuse: Fuse
    store: FusedStore
    log: ScriptedLog
    told: list[OffsetGap] = field(default_factory=list)

    @classmethod
    async def that_has_read(cls) -> World:
        """A group whose state has all of the traffic, which is committed."""
        fuse = Fuse()
        world = cls(fuse, FusedStore(fuse), ScriptedLog(fuse, traffic(5)))
        if not _read:
            await world.work("halt")
            _read.append((world.store.snapshot(), dict(world.log.commits)))
        snapshot, commits = _read[0]
        world.store.restore(snapshot)
        world.log.commits |= commits
        return world

    def take_over(self, policy: Policy, retry: Retry = once) -> TakeOver:
        """The takeover of a worker that has just started."""
        shared = replace(options(), identity=IDENTITY)

        def make(number: int, token: bytes) -> StatePartition:
            cache, names = ConversationCache(1_000), SharedNames(self.store, shared)
            letters = MemoryDeadLetters()
            return StatePartition(
                number, shared, self.store, letters, cache, names, NoTelemetry(), token
            )

        source: Any = self.log  # all that a take-over asks of one
        return TakeOver(
            source,
            KeptState(self.store, IDENTITY, make),
            LoopOptions(TOPICS, policy),
            retry,
            lambda _, gap: self.told.append(gap),
            lambda: None,
        )

    async def take(
        self, policy: Policy, found: Sequence[OffsetGap] = ()
    ) -> TakenOver | Blocked | None:
        """Take over as a worker that has just started."""
        return await self.take_over(policy).take(0, None, found)

    async def work(self, policy: Policy, found: Sequence[OffsetGap] = ()) -> None:
        """Take over, read to the end and commit."""
        ready = await self.take(policy, found)
        assert isinstance(ready, TakenOver)
        partition = ready.partition
        records = self.log.after(partition.positions)
        for start in range(0, len(records), BATCH):
            await partition.process(records[start : start + BATCH], once)
        read = offsets(partition.positions).items()
        await self.log.confirm({PartitionId(topic, 0): Commit(offset) for topic, offset in read})

    async def dies(self, policy: Policy, found: Sequence[OffsetGap], left: int) -> str:
        """Work until the fuse has been passed ``left`` times; where that was, or an empty text."""
        self.fuse.left = left
        try:
            await self.work(policy, found)
        except Crash as crash:
            return str(crash)
        finally:
            self.fuse.left = None
        return ""

    async def replayed_so_far(self) -> object:
        """The result of one pass over the records below the stored positions."""
        positions = (await self.store.describe(0)).positions
        read = [r for r in self.log.all if positions and r.offset < positions[r.topic].offset]
        return replayed(read)

    async def shown(self) -> object:
        """Rows and windows of an export."""
        export = await export_state(self.store, EngineConfig(), DEFAULT_WINDOWS, "last")
        rows = [canonical(row) for row in export.rows]
        return rows, canonical(export.windows_document(now_us())) if export.windows else None


NOTHING: tuple[list[str], None] = ([], None)


@cache
def now_us() -> int:
    """The time of the last record."""
    logs = [log for seed in (5, 6) for log in traffic(seed).values()]
    return 1000 * max(record.timestamp_ms or 0 for log in logs for record in log)


def replayed(records: Sequence[Record]) -> object:
    """Rows and windows of one pass over the records."""
    replay = Replay()
    for record in records:
        replay.feed(record)
    return [canonical(row) for row in replay.rows()], canonical(replay.windows(now_us()))


# -- the kinds of gap


def made_anew(world: World) -> Sequence[OffsetGap]:
    """A topic is recreated and has more records than were read; the last one differs."""
    offset = world.log.end("events")
    world.log.records["events"] = longer_than(offset)
    return [other_record("events", offset)]


def longer_than(offset: int) -> list[Record]:
    """Other events, more than ``offset``."""
    events = traffic(6)["events"]
    assert len(events) != offset
    last = events[-1]
    fill = [
        structs.replace(last, offset=len(events) + n)
        for n in range(max(0, offset + 5 - len(events)))
    ]
    return [*events, *fill]


def made_anew_and_short(world: World) -> Sequence[OffsetGap]:
    """A topic is recreated and has fewer records than were read."""
    world.log.records["events"] = traffic(6)["events"][:20]
    return ()


def deleted(world: World) -> Sequence[OffsetGap]:
    """Retention has deleted records that were not read: the log starts after the position."""
    end = world.log.end("events")
    more = [structs.replace(r, offset=end + n) for n, r in enumerate(traffic(6)["events"])]
    world.log.records["events"] += more
    world.log.cut("events", end + 10)
    return ()


def lost(world: World) -> Sequence[OffsetGap]:
    """Redis was emptied, while the group has commits."""
    world.store.restore(MemoryStore().snapshot())
    return ()


KINDS = (made_anew, made_anew_and_short, deleted, lost)
NEEDLES = ("is not the one", "recreated or has lost", "deleted before", "no state for it")
BY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
DYING = pytest.mark.parametrize(  # at each step, of which these two have all
    "kind", rest_long([pytest.param(kind, id=kind.__name__) for kind in reversed(KINDS)], 2)
)


@pytest.mark.parametrize(("kind", "words"), list(zip(KINDS, NEEDLES, strict=True)))
async def test_halt_changes_nothing_and_says_why(kind: Any, words: str) -> None:
    """With `halt` a gap of any kind leaves state and commits unchanged."""
    world = await World.that_has_read()
    found = kind(world)
    before, commits = await world.shown(), dict(world.log.commits)

    held = await world.take("halt", found)

    assert isinstance(held, Blocked)
    assert words in held.gaps[0].message
    assert world.told == list(held.gaps)
    assert (await world.shown(), world.log.commits) == (before, commits)


@BY_KIND
async def test_rebuild_ends_as_a_replay_of_the_log(kind: Any) -> None:
    """With `rebuild` a gap of any kind ends with the result of one pass over the logs."""
    world = await World.that_has_read()

    await world.work("rebuild", kind(world))

    assert world.told
    assert await world.shown() == replayed(world.log.all)


@pytest.mark.slow
@DYING
async def test_a_rebuild_may_crash_anywhere(kind: Any) -> None:
    """Wherever it dies: what is shown is the old state, none, or one pass over what was read since;
    and the next worker ends as a replay."""
    places = []
    for left in count():
        world = await World.that_has_read()
        found = kind(world)
        old = await world.shown()
        place = await world.dies("rebuild", found, left)
        if not place:
            break
        places.append(place)
        assert await world.shown() in (old, NOTHING, await world.replayed_so_far()), place
        await world.work("rebuild", found)
        assert await world.shown() == replayed(world.log.all), place
    passed = {"extents", "before confirm", "after confirm", "after claim", "before write"}
    assert passed <= set(places)
    assert places.count("after wipe") == (1 if kind is lost else 1 + STEPS)


@pytest.mark.slow
@DYING
async def test_an_interrupted_rebuild_is_not_undone_by_halt(kind: Any) -> None:
    """If the policy changes to `halt`, the partition is halted, or ends as a replay."""
    ends = set()
    for left in count():
        world = await World.that_has_read()
        found = kind(world)
        old = await world.shown()
        place = await world.dies("rebuild", found, left)
        if not place:
            break
        if isinstance(await world.take("halt", found), Blocked):
            ends.add("held")
            assert await world.shown() == old
        else:
            ends.add("done")
            await world.work("halt")
            assert await world.shown() == replayed(world.log.all), place
    assert ends == {"held", "done"}


@pytest.mark.parametrize(
    ("kind", "nearest"),
    [
        (made_anew, lambda world, before: before),
        (made_anew_and_short, lambda world, before: 20),
        (deleted, lambda world, before: before + 10),
        (lost, lambda world, before: before),
    ],
)
async def test_continue_reads_from_the_nearest_offset(kind: Any, nearest: Any) -> None:
    """With `continue` reading resumes as near as possible; the other topic is not affected."""
    world = await World.that_has_read()
    before = {topic: world.log.end(topic) for topic in TOPICS}

    ready = await world.take("continue", kind(world))

    assert isinstance(ready, TakenOver)
    stored = (await world.store.describe(0)).positions
    assert stored == ready.partition.positions
    assert stored["events"].offset == nearest(world, before["events"])
    assert stored["labels"].offset == before["labels"]
    assert stored["events"].last_digest == b""


@pytest.mark.parametrize("kind", [made_anew, made_anew_and_short, deleted])
async def test_continue_keeps_the_state(kind: Any) -> None:
    """With `continue` rows and windows do not change until more records are read."""
    world = await World.that_has_read()
    found = kind(world)
    before = await world.shown()

    await world.take("continue", found)

    assert await world.shown() == before
    assert len(world.told) == 1


@BY_KIND
async def test_after_continue_there_is_no_gap(kind: Any) -> None:
    """The next worker finds no gap, whatever its policy."""
    world = await World.that_has_read()
    found = kind(world)
    await world.take("continue", found)
    world.told.clear()

    await world.work("halt", found)

    assert world.told == []


@pytest.mark.slow
@BY_KIND
async def test_continue_may_crash_anywhere(kind: Any) -> None:
    """After a crash at any point the next worker has the state of an uninterrupted one."""
    undisturbed = await World.that_has_read()
    await undisturbed.work("continue", kind(undisturbed))
    expected = await undisturbed.shown()
    for left in count():
        world = await World.that_has_read()
        found = kind(world)
        place = await world.dies("continue", found, left)
        if not place:
            break
        await world.work("continue", found)
        assert await world.shown() == expected, place


# -- who may


@pytest.mark.parametrize("policy", ["rebuild", "continue"])
async def test_nothing_is_changed_without_membership(policy: Policy) -> None:
    """A worker that is no member of the group neither wipes nor moves positions."""
    world = await World.that_has_read()
    found = deleted(world)
    before = await world.store.describe(0)
    world.log.member = False

    assert await world.take(policy, found) is None
    assert await world.store.describe(0) == before


async def test_a_wipe_gives_way_to_another_owner() -> None:
    """If another worker claims before the wipe, its state is kept, and is inspected again."""
    world = await World.that_has_read()
    deleted(world)
    healthy = world.store.wipe
    refused: list[WipeResult] = []

    async def late(partition: int, token: bytes | None = None) -> WipeResult:
        if not refused:
            await world.store.claim(0, b"another", {})
        result = await healthy(partition, token)
        refused.append(result)
        return result

    world.store.wipe = late  # type: ignore[method-assign]
    await world.work("rebuild")

    assert refused[0] == Fenced()
    assert await world.shown() == replayed(world.log.all)


async def test_a_returning_owner_keeps_its_cache() -> None:
    """After a rebalance without a gap the partition keeps its cached conversations."""
    world = await World.that_has_read()
    ready = await world.take("rebuild")
    assert isinstance(ready, TakenOver)

    again = await world.take_over("rebuild").take(0, ready.partition)

    assert isinstance(again, TakenOver)
    assert again.partition is ready.partition


async def test_a_fresh_group_has_no_gap() -> None:
    """Without state and commits, reading begins at the start, with any policy."""
    fuse = Fuse()
    policies: tuple[Policy, ...] = ("halt", "rebuild", "continue")
    for policy in policies:
        world = World(fuse, FusedStore(fuse), ScriptedLog(fuse, traffic(5)))
        await world.work(policy)

        assert world.told == []
        assert await world.shown() == replayed(world.log.all)


@pytest.mark.parametrize("policy", ["halt", "rebuild", "continue"])
async def test_nothing_is_taken_over_once_another_generation_is_in_force(policy: Policy) -> None:
    """A late worker finds its partition frozen, whatever it finds in the log."""
    world = await World.that_has_read()
    found = deleted(world) if policy != "halt" else ()
    before = await world.shown()
    await world.store.freeze(0, 2)

    with pytest.raises(Superseded, match="by generation 2"):
        await world.take(policy, found)

    assert await world.shown() == before


async def test_a_switch_just_before_a_wipe_is_respected() -> None:
    """A switch after the inspection leaves the state complete."""
    world = await World.that_has_read()
    deleted(world)
    before = await world.shown()
    confirm = world.log.confirm

    async def late(commits: Mapping[PartitionId, Commit]) -> bool:
        await world.store.freeze(0, 2)
        return await confirm(commits)

    world.log.confirm = late  # type: ignore[method-assign]
    with pytest.raises(Superseded):
        await world.take("rebuild")

    assert await world.shown() == before


async def test_an_outage_does_not_skip_a_step() -> None:
    """A wipe that is retried after an outage continues where it stopped."""
    world = await World.that_has_read()
    deleted(world)
    failures = iter(range(100))

    async def patient(call: Any) -> Any:
        while True:
            try:
                if next(failures) % 2:
                    raise StoreUnavailable("every other call")
                return await call()
            except StoreUnavailable:
                continue

    ready = await world.take_over("rebuild", patient).take(0)

    assert isinstance(ready, TakenOver)
    state = await world.store.describe(0)
    assert (state.conversations, state.wiping) == (0, False)
