"""Generations of state, each of which is built while the previous one is live, under all faults.

Workers of the old generation and of the new one read the same logs, each in a group of their own,
over one store. Each has another threshold of good gain than the one before, so that its figures are
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Final

from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from stream_metrics.cli.client_options import partitioner
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.live.health import Health
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.layout import Generation, Identity, InvalidTransition, Layout
from stream_metrics.live.memory import (
    MemoryDeadLetters,
    MemorySnapshot,
    MemoryStore,
    MemoryTopic,
)
from stream_metrics.live.ports import StoreUnavailable, Superseded
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.readers.audit import AuditOptions, audit
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.keying import KeyMonitor
from stream_metrics.live.worker.loop import Loop
from stream_metrics.live.worker.options import LoopOptions, PartitionOptions
from stream_metrics.live.worker.ownership.generation_state import GenerationState
from stream_metrics.live.worker.ownership.generations import change
from stream_metrics.live.worker.ownership.switch import (
    LayoutWatcher,
    decide,
    finish,
    forget_purged,
    give_up,
    roll_forward,
)
from stream_metrics.live.worker.publication import Publication
from stream_metrics.live.worker.repartition import Repartitioner, route
from stream_metrics.live.worker.surroundings import Surroundings
from tests import oracle
from tests.simulation.brokers import Brokers
from tests.simulation.building_ports import FaultyStore, Fence, Outputs, WatchingRetry
from tests.simulation.building_traffic import expected, forgets
from tests.simulation.faults import Died, Fault, FaultInjector, Kind
from tests.simulation.internal_topic import INTERNAL, Inputs, Internal, Upstream
from tests.simulation.sources import ScriptedSource
from tests.simulation.system import COUNTS, MARKED, PARTITIONS, TOPICS, ImmediateRetry, traffic

OLD: Final = Identity("group", 1, "old", COUNTS)
NEW: Final = Identity("group", 1, "new", COUNTS)
GOOD_GAIN: Final = {"old": 2, "new": 3}
DAY_MS: Final = 86_400_000


async def _at_once() -> None:
    """Do not wait."""


@dataclass(eq=False)
class Process:
    """A worker of one generation."""

    generation: Generation
    client: ScriptedSource
    loop: Loop
    fault: Fault
    publication: Publication
    watcher: LayoutWatcher
    repartitioner: Repartitioner | None = None  # fills the internal topic


@dataclass
class BuildSystem:
    """Two generations over the same brokers; ``seed`` determines the content of the topics.

    The second of two reads an internal topic of ``internal`` partitions, if there are any. With
    ``retained`` the log begins behind what was forgotten once the first generation has read it.
    """

    seed: int
    internal: int = 0
    retained: bool = False
    cache_results: int = 1_000
    batch_records: int = 8
    space: MemoryStore = field(default_factory=MemoryStore)
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    topic: MemoryTopic = field(default_factory=MemoryTopic)
    processes: list[Process] = field(default_factory=list)
    sleepers: list[Process] = field(default_factory=list)  # suspended processes
    origin: str = ""  # the mark of the first generation, if the namespace was purged
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.brokers = Brokers(TOPICS, PARTITIONS)
        self.groups: dict[str, Brokers] = {}  # by the mark of a generation
        self.now_ms = traffic(self.seed)[0].timestamp_ms
        self.space.clock = lambda: self.now_ms
        self.past: MemorySnapshot | None = None
        self._marks: set[str] = set()  # of the generations that it has
        self._looks = count(1)
        self.inner = Brokers((INTERNAL,), self.internal)
        self.copied: dict[TopicPartition, int] = {}
        new = replace(NEW, partition_counts={INTERNAL: self.internal}) if self.internal else NEW
        self.other = {"old": new, "new": OLD}  # the identity to build, by the live fingerprint
        self.half = 0  # entries before the retained ones
        for number, record in enumerate(traffic(self.seed)):
            if self.retained and number == len(traffic(self.seed)) // 2:
                self._append_forgets()
            key = record.key or b""
            place = TopicPartition(record.stream, PARTITIONERS["murmur2"](key, PARTITIONS))
            self.brokers.append(place, key, record.value, record.timestamp_ms)
            if number % MARKED == 0:
                self.brokers.mark(place, record.timestamp_ms)

    def _append_forgets(self) -> None:
        """Append forget records to every partition of every topic, as the command does."""
        for place in self.brokers.logs:
            for record in forgets(self.seed):
                self.brokers.append(place, record.key, record.value, record.timestamp_ms)
        self.half = sum(map(len, self.brokers.logs.values()))

    async def cut(self) -> None:
        """Let the first generation read the first half of the log, then delete that half."""
        self.produce(self.half)
        for process in self.processes:
            process.client.max_records = 1_000
            for what in ("read", "read", "look after", "read", "look after"):
                await self.act(process, what, None, 0)
        store = self.space.generation(self.processes[0].generation)
        states = [await store.describe(number) for number in range(PARTITIONS)]
        read = {
            TopicPartition(topic, number): position.offset
            for number, state in enumerate(states)
            for topic, position in state.positions.items()
        }
        assert read == self.brokers.ends
        self.brokers.firsts.update(self.brokers.ends)

    # -- workers

    def produce(self, entries: int) -> None:
        """Produce this many records and markers, and advance the clock to the last one."""
        self.now_ms = self.brokers.produce(entries) or self.now_ms

    def layout_ms(self) -> int:
        """The time, which is later at each call: a store goes back no twice in one millisecond."""
        return self.now_ms + next(self._looks)

    async def start(self, generation: Generation) -> Process:
        """Start a worker, which is not a member yet."""
        topics = tuple(generation.identity.partition_counts)
        brokers = self.inner if INTERNAL in topics else self.brokers
        group = self.groups.setdefault(generation.mark, brokers.another_group())
        client, fault, health = ScriptedSource(group), Fault(), Health(reasons={})
        clock = Clock(lambda: self.now_ms, lambda: self.now_ms / 1000)
        operations = Operations(CollectorRegistry(), TOPICS)
        engine = EngineConfig(good_gain=GOOD_GAIN[generation.identity.fingerprint])
        options = PartitionOptions(
            generation.identity,
            engine,
            "k",
            {"k": b"secret"},
            DEFAULT_WINDOWS,
            ttl_ms=DAY_MS,
            batch_records=self.batch_records,
            now_ms=clock.now_ms,
            latest_ms=clock.latest_ms,
            worker="worker",
        )
        space: Any = FaultyStore(self.space, fault, lambda *_: None)
        letters: Any = FaultInjector(self.letters, fault, lambda *_: None)
        publication = Publication(space, generation, letters, Outputs(self.topic, generation))
        retry = WatchingRetry(health, operations.redis_error)
        layout, ours = await self.space.layout(), generation.identity
        repartitioner = upstream = internal = None
        if INTERNAL in topics:
            inputs = Inputs(self.brokers, client, self.copied)
            upstream = Upstream(inputs, lambda: self.now_ms)
            internal = partitioner(ours)
            repartitioner = Repartitioner(
                inputs, Internal(self.inner, fault), publication.letters,
                partial(route, limits=engine.limits), retry, operations,
            )  # fmt: skip
        state = GenerationState(
            space, layout, generation, options, publication, ConversationCache(self.cache_results),
            operations, retry, now_ms=self.layout_ms, internal=internal, page_size=3,
        )  # fmt: skip
        loop = Loop(
            client,
            state,
            LoopOptions(topics, in_order=upstream is None),
            Surroundings(retry, health, operations, clock, monotonic=lambda: 0.0),
            KeyMonitor(operations.keyed_differently, PARTITIONERS),
            upstream,
        )
        watcher = state.watch(Fence(self.topic, fault), _at_once)
        retry.look = watcher.look
        process = Process(generation, client, loop, fault, publication, watcher, repartitioner)
        self.processes.append(process)
        return process

    def rebalance(self, generation: Generation, unaware: Collection[Process] = ()) -> None:
        """Assign the partitions to the running workers of a generation."""
        members = [p.client for p in self.processes if p.generation.mark == generation.mark]
        group = self.groups[generation.mark]
        group.rebalance(members, [process.client for process in unaware])

    async def act(self, process: Process, what: str, kind: Kind | None, at: int) -> None:
        """Let a worker perform an action, with a fault at the ``at``-th call.

        In place of one that dies another one is started; one that was superseded ends.
        """
        fault, loop, generation = process.fault, process.loop, process.generation
        fault.kind, fault.at = kind, at
        fault.interrupt = lambda: self.rebalance(generation)
        try:
            if what == "read":
                if process.repartitioner is not None:
                    await process.repartitioner.turn()
                await loop.turn()
            elif what == "commit":
                await loop.commit()
            elif what == "look":
                await ImmediateRetry(Health(), lambda: None)(process.watcher.look)
            else:
                await loop.check()
                await loop.probe.ask()
                await loop.expire()
        except Died as death:
            self.seen[f"died at {death}"] += 1
            await self.replace(process)
        except Superseded as superseded:
            self.seen["superseded"] += 1
            self.processes.remove(process)
            await roll_forward(self.space, generation, superseded, self.layout_ms())
        finally:
            fault.kind = None

    async def replace(self, process: Process) -> None:
        """End a process; start another one if its generation may still have workers."""
        self.processes.remove(process)
        layout = await self.space.layout()
        found = layout.of(process.generation.number)
        if found is not None and found.mark == process.generation.mark and not found.ended:
            await self.start(found)
            self.rebalance(found)

    # -- the command

    async def register(self) -> None:
        """Begin a build unless one is in progress, and start a worker for it."""
        layout = await self.space.layout()
        if layout.in_force is None:
            return
        wanted = self.other[layout.in_force.identity.fingerprint]
        for old in layout.generations:
            if old.purged:
                await forget_purged(self.space, old)
        mark = f"m{layout.last}-{self.seen['registered']}"
        with suppress(InvalidTransition):
            await change(
                self.space,
                lambda now: now.registered(wanted, mark, self.layout_ms(), retained=self.retained),
            )
        building = (await self.space.layout()).building
        if building is not None and self.workers_of(building) < 2:
            self.seen["registered"] += 1
            await self.start(building)
            self.rebalance(building)

    def workers_of(self, generation: Generation) -> int:
        """The number of running workers of a generation."""
        return sum(p.generation.mark == generation.mark for p in self.processes)

    async def command(self, what: str, kind: Kind | None, at: int) -> None:
        """Let the command switch, cancel or finish the build; it may die, and is not restarted."""
        fault = Fault(kind, at)
        space: Any = FaultyStore(self.space, fault, lambda *_: None)
        building = (await self.space.layout()).building
        try:
            if building is not None and what == "decide" and not await self.lacks(building):
                await decide(space, building.number, self.layout_ms())
                self.seen["decided" if building.number == 2 else "decided again"] += 1
            if building is not None and what == "give up":
                await give_up(space, building.number)
                self.seen["given up"] += 1
            await finish(space, Fence(self.topic, fault), _at_once)
        except (Died, InvalidTransition) as stopped:
            self.seen[f"command {stopped}"] += 1
        except StoreUnavailable:
            self.seen["command refused"] += 1

    async def lacks(self, generation: Generation) -> bool:
        """Whether the store has lost partitions that the generation had begun.

        They are built again while it is muted. Later this is an offset gap, which halts them.
        """
        begun = await self.space.generation(generation).partitions()
        return bool(self.groups[generation.mark].commits) and len(begun) < generation.identity.count

    async def remember(self) -> None:
        """Take a snapshot of the store once all partitions of all generations have begun.

        What a store loses of a partition's beginning is an offset gap, which halts it.
        """
        for generation in (await self.space.layout()).generations:
            begun = await self.space.generation(generation).partitions()
            if not generation.ended and len(begun) < generation.identity.count:
                return
        self.past = self.space.snapshot()
        self._marks = {g.mark for g in (await self.space.layout()).generations}

    @staticmethod
    async def layout_of(snapshot: MemorySnapshot) -> Layout:
        """The layout in a snapshot."""
        store = MemoryStore()
        store.restore(snapshot)
        return await store.layout()

    async def go_back(self) -> None:
        """Fail the store over to the snapshot, unless that would lose all state in force: an offset
        gap, which halts its partitions."""
        live = (await self.space.layout()).in_force
        lost = live is not None and live.mark not in self._marks
        if self.past is not None and not lost:
            self.space.restore(self.past)
            self.seen["store went back"] += 1

    # -- the end

    async def settle(self) -> None:
        """End all faults: the new generation is built, goes live, and reads what remains."""
        self.produce(10_000)
        before, self.processes = [*self.processes, *self.sleepers], []
        mark = await self.build_and_switch()
        layout = await self.space.layout()
        for same in (False, True):  # one process each that was suspended all the time
            late = [p for p in before if (p.generation.mark == mark) is same]
            for process in late[:1]:
                await self.wake_late(process)
        if await self.space.layout() != layout:  # they put back what was lost
            await self.build_and_switch()

    async def wake_late(self, process: Process) -> None:
        """Let a process go on that was suspended, and suspend it again."""
        process.client.max_records = 1_000
        for what in ("read", "look after", "commit", "read", "look"):
            if process not in self.processes:
                self.processes.append(process)
            await self.act(process, what, None, 0)
        self.processes = [p for p in self.processes if p is not process]

    async def build_and_switch(self) -> str:
        """Build the new generation until it is live; return its mark."""
        worker: Process | None = None
        for _ in range(40):
            layout = await self.space.layout()
            new = layout.building or layout.in_force
            if new is None or new.number == 1:
                await self.command("finish", None, 0)
                await self.register()
                continue
            if not self.workers_of(new):
                await self.start(new)
                self.rebalance(new)
            worker = next(p for p in self.processes if p.generation.mark == new.mark)
            worker.client.max_records = 1_000
            for what in ("look", "read", "look after"):
                await self.act(worker, what, None, 0)
            if new.state == "building" and len(worker.loop.partitions) == new.identity.count:
                await self.command("decide", None, 0)
            elif new.state == "live" and not layout.to_purge:
                break
        assert worker is not None
        for _ in range(4):
            await self.act(worker, "read", None, 0)
        self.sent = len(self.topic.messages)
        return worker.generation.mark

    async def check(self) -> None:
        """Check that the figures are those of one pass under the new settings, in every output."""
        layout = await self.space.layout()
        live = layout.in_force
        assert live is not None
        assert live.number > 1
        assert (live.state, layout.building, layout.to_purge) == ("live", None, ())
        assert self.origin in ("", layout.origin), "a purged namespace was put back"
        store, good_gain = self.space.generation(live), GOOD_GAIN[live.identity.fingerprint]
        keyed = INTERNAL not in live.identity.partition_counts
        rows, windows, now_us = expected(self.seed, good_gain, keyed, self.retained)
        engine = EngineConfig(good_gain=good_gain)
        export = await export_state(store, engine, DEFAULT_WINDOWS, "last")
        assert canonical(export.windows_document(now_us)) + "\n" == windows
        found = {str(row["conversation_id"]): canonical(row) for row in export.rows}
        assert found == rows, "other rows than one pass gives"
        last = {name: message.value for name, message in self.topic.compacted().items()}
        sent = {name: value.decode() for name, value in last.items() if value is not None}
        assert sent == rows, "other rows on the output topic"
        assert len(self.topic.messages) == self.sent, "a late worker has sent something"
        letters = {letter.record.value for letter in self.letters.letters}
        read = traffic(self.seed)
        broken = {record.value for record in read if not record.valid}
        if keyed:
            assert letters == broken
        else:  # its generation takes records under any key
            records = [oracle.Record(r.value, r.key, r.timestamp_ms) for r in read]
            unkeyed = oracle.evaluate(records, keyed=False).invalid
            assert {read[number].value for number, _ in unkeyed} <= letters <= broken
        audited = await audit(store, AuditOptions(engine, DEFAULT_WINDOWS), _never)
        assert (audited.differences, audited.unreadable, audited.busy) == ([], [], [])


async def _never() -> bool:
    return False
