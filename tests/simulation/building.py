"""Generations of state, each built beside the one before to take its place, in any trouble.

Workers of the old generation and of the new one read the same logs, each in a group of their own,
over one store. Each has another threshold of good gain than the one before, so that its figures are
others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any, Final

from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.windows import DEFAULT_WINDOWS
from stream_metrics.lab.traffic import partition_for
from stream_metrics.live.health import Health
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.layout import Generation, Identity, InvalidTransition
from stream_metrics.live.memory import (
    MemoryDeadLetters,
    MemoryOutput,
    MemoryOutputs,
    MemorySnapshot,
    MemoryStore,
    MemoryTopic,
)
from stream_metrics.live.ports import StoreUnavailable, Superseded
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.worker.announce import AnnouncementScope, Announcer
from stream_metrics.live.worker.audit import AuditOptions, audit
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.export import export_state
from stream_metrics.live.worker.generations import begin, change
from stream_metrics.live.worker.keying import KeyMonitor
from stream_metrics.live.worker.loop import Loop, LoopOptions
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import PartitionOptions
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.publication import Publication, before
from stream_metrics.live.worker.switch import (
    LayoutWatcher,
    announced,
    finish,
    forget_purged,
    give_up,
    roll_forward,
)
from tests import oracle
from tests.simulation.brokers import Brokers
from tests.simulation.sources import ScriptedSource
from tests.simulation.system import COUNTS, MARKED, PARTITIONS, TOPICS, AtOnce, traffic
from tests.simulation.troubled import KINDS, Died, Kind, Trouble, Troubled

OLD: Final = Identity("group", 1, "old", COUNTS)
NEW: Final = Identity("group", 1, "new", COUNTS)
GOOD_GAIN: Final = {"old": 2, "new": 3}
OTHER: Final = {"old": NEW, "new": OLD}  # what is built beside state of that fingerprint
DAY_MS: Final = 86_400_000

# How often each is drawn. Numbers name processes; what is not there is another, or none.
WEIGHTS: Final = {
    "read": 20,
    "look after": 3,
    "commit": 1,
    "produce": 5,
    "look": 8,
    "register": 3,
    "decide": 1,
    "finish": 2,
    "give up": 1,
    "kill": 2,
    "rebalance": 1,
    "notice": 1,
    "remember": 2,
    "go back": 1,
}


class Handle(Troubled):
    """A troubled store, of which the handles on generations are troubled as well."""

    def __getattr__(self, name: str) -> Any:
        if name == "generation":
            inner: Any = self._inner
            return lambda generation: Handle(
                inner.generation(generation), self._trouble, self._seen
            )
        if name == "conversations":
            return self._listed
        return super().__getattr__(name)

    async def _listed(self, partition: int) -> AsyncIterator[Any]:
        """Conversations, in trouble before each of them."""
        inner: Any = self._inner
        async for found in inner.conversations(partition):
            kind = self._trouble.due()
            if kind in ("dies before", "dies after"):
                raise Died("conversations")
            if kind in ("refused", "answer lost"):
                raise StoreUnavailable("conversations")
            yield found


class Outputs(MemoryOutputs):
    """The ways of one generation, under ids of its own."""

    def __init__(self, topic: MemoryTopic, generation: Generation) -> None:
        super().__init__(topic)
        self._first = 100 * generation.number

    def of(self, partition: int) -> MemoryOutput:
        """See ``Outputs.of``."""
        return super().of(self._first + partition)

    async def keep(self, partitions: Collection[int]) -> None:
        """See ``Outputs.keep``."""
        await super().keep([self._first + partition for partition in partitions])


@dataclass
class Fence:
    """Shuts out whoever has sent for a generation; may die amid it."""

    topic: MemoryTopic
    trouble: Trouble

    async def fence_producers(self, generation: Generation) -> None:
        """See ``worker.switch.Fence``."""
        for number in range(generation.identity.count):
            if self.trouble.due() in ("dies before", "dies after"):
                raise Died("begin")
            await Outputs(self.topic, generation).of(number).begin()


async def _at_once() -> None:
    """No rest."""


@dataclass(eq=False)
class Process:
    """A worker of one generation."""

    generation: Generation
    client: ScriptedSource
    loop: Loop
    trouble: Trouble
    publication: Publication
    watcher: LayoutWatcher


@lru_cache
def expected(seed: int, good_gain: int) -> tuple[dict[str, str], str, int]:
    """What one pass over all of the traffic gives: rows, windows, and when."""
    records = [oracle.Record(r.value, r.key, r.timestamp_ms) for r in traffic(seed)]
    outcome = oracle.evaluate(records, keyed=True, good_gain=good_gain)
    now_us = 1000 * traffic(seed)[-1].timestamp_ms
    rows = {str(json.loads(row)["conversation_id"]): row for row in outcome.rows}
    return rows, outcome.windows(now_us), now_us


@dataclass
class Builders:
    """Two generations over the same brokers; ``seed`` says what lies in the topics."""

    seed: int
    cache_results: int = 1_000
    batch_records: int = 8
    space: MemoryStore = field(default_factory=MemoryStore)
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    topic: MemoryTopic = field(default_factory=MemoryTopic)
    processes: list[Process] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.brokers = Brokers(TOPICS, PARTITIONS)
        self.groups: dict[str, Brokers] = {}  # by the mark of a generation
        self.now_ms = traffic(self.seed)[0].timestamp_ms
        self.space.clock = lambda: self.now_ms
        self._past: MemorySnapshot | None = None
        for number, record in enumerate(traffic(self.seed)):
            key = record.key or b""
            place = TopicPartition(record.stream, partition_for(key, PARTITIONS))
            self.brokers.append(place, key, record.value, record.timestamp_ms)
            if number % MARKED == 0:
                self.brokers.mark(place, record.timestamp_ms)

    # -- workers

    def produce(self, entries: int) -> None:
        """So many more records and markers come, and time goes on as far."""
        self.now_ms = self.brokers.produce(entries) or self.now_ms

    async def start(self, generation: Generation) -> Process:
        """A worker more, which is no member yet."""
        group = self.groups.setdefault(generation.mark, self.brokers.another_group())
        client, trouble, health = ScriptedSource(group), Trouble(), Health(reasons={})
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
        space: Any = Handle(self.space, trouble, lambda *_: None)
        store = space.generation(generation)
        letters: Any = Troubled(self.letters, trouble, lambda *_: None)
        publication = Publication(space, generation, letters, Outputs(self.topic, generation))
        shown = publication.outputs
        assert shown is not None
        cache, names = ConversationCache(self.cache_results), SharedNames(store, options)
        retry = AtOnce(health, operations.redis_error)

        def make_partition(number: int, token: bytes) -> StatePartition:
            return StatePartition(
                number, options, store, publication.letters, cache, names, operations, token,
                shown.of(number),
            )  # fmt: skip

        def muted(is_muted: bool) -> None:
            publication.muted = is_muted
            loop.set_gap_policy("rebuild" if is_muted else "halt")

        def scope_of(number: int) -> AnnouncementScope | None:
            newest = watcher.newest
            found, other = newest.of(generation.number), before(newest, generation)
            if publication.muted or found is None or other is None:
                return None
            held = [(space.generation(other), number)]
            return AnnouncementScope(
                store, engine, "last", DAY_MS, announced(found), held, page_size=3
            )

        announcer = Announcer(scope_of, retry)
        loop = Loop(
            client, store, LoopOptions(TOPICS), generation.identity, make_partition, retry,
            health, operations, clock, KeyMonitor(operations.keyed_differently, PARTITIONERS),
            outputs=shown, background=announcer.step, monotonic=lambda: 0.0,
        )  # fmt: skip
        fence = Fence(self.topic, trouble)
        layout = await self.space.layout()
        watcher = LayoutWatcher(space, layout, generation, fence, _at_once, muted)
        muted(publication.muted)
        process = Process(generation, client, loop, trouble, publication, watcher)
        self.processes.append(process)
        return process

    def rebalance(self, generation: Generation, unaware: Collection[Process] = ()) -> None:
        """Share the partitions out among the workers of a generation that are there."""
        members = [p.client for p in self.processes if p.generation.mark == generation.mark]
        group = self.groups[generation.mark]
        group.rebalance(members, [process.client for process in unaware])

    async def act(self, process: Process, what: str, kind: Kind | None, at: int) -> None:
        """Let a worker do something, in trouble at the ``at``-th call.

        In place of one that dies another one is started; one that was superseded ends.
        """
        trouble, loop, generation = process.trouble, process.loop, process.generation
        trouble.kind, trouble.at = kind, at
        trouble.interrupt = lambda: self.rebalance(generation)
        try:
            if what == "read":
                await loop.turn()
            elif what == "commit":
                await loop.commit()
            elif what == "look":
                await AtOnce(Health(), lambda: None)(process.watcher.look)
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
            await roll_forward(self.space, superseded, self.now_ms)
        finally:
            trouble.kind = None

    async def replace(self, process: Process) -> None:
        """One process is no more; another one comes if its generation may still be worked on."""
        self.processes.remove(process)
        layout = await self.space.layout()
        found = layout.of(process.generation.number)
        if found is not None and found.mark == process.generation.mark and not found.ended:
            await self.start(found)
            self.rebalance(found)

    # -- the command

    async def register(self) -> None:
        """Begin a build, unless one goes on, and start a worker for it."""
        layout = await self.space.layout()
        if layout.in_force is None:
            return
        wanted = OTHER[layout.in_force.identity.fingerprint]
        for old in layout.generations:
            if old.purged:
                await forget_purged(self.space, old)
        mark = f"m{layout.last}-{self.seen['registered']}"
        with suppress(InvalidTransition):
            await change(self.space, lambda now: now.registered(wanted, mark, self.now_ms))
        building = (await self.space.layout()).building
        if building is not None and self.workers_of(building) < 2:
            self.seen["registered"] += 1
            await self.start(building)
            self.rebalance(building)

    def workers_of(self, generation: Generation) -> int:
        """How many there are."""
        return sum(p.generation.mark == generation.mark for p in self.processes)

    async def command(self, what: str, kind: Kind | None, at: int) -> None:
        """Let the command decide, give up, or finish; it may die, and is not started again."""
        trouble = Trouble(kind, at)
        space: Any = Handle(self.space, trouble, lambda *_: None)
        building = (await self.space.layout()).building
        try:
            if building is not None and what == "decide":
                number = building.number
                await change(space, lambda now: now.switched(number, self.now_ms))
                self.seen["decided" if number == 2 else "decided again"] += 1
            if building is not None and what == "give up":
                number = building.number
                await give_up(space, number)
                self.seen["given up"] += 1
            await finish(space, Fence(self.topic, trouble), _at_once)
        except (Died, InvalidTransition) as stopped:
            self.seen[f"command {stopped}"] += 1
        except StoreUnavailable:
            self.seen["command refused"] += 1

    async def remember(self) -> None:
        """Keep the store's content, once all partitions of all generations have begun.

        What a store loses of a partition's beginning is an offset gap, which halts it.
        """
        for generation in (await self.space.layout()).generations:
            begun = await self.space.generation(generation).partitions()
            if not generation.ended and len(begun) < PARTITIONS:
                return
        self._past = self.space.snapshot()

    def go_back(self) -> None:
        """The store fails over to what was remembered."""
        if self._past is not None:
            self.space.restore(self._past)
            self.seen["store went back"] += 1

    # -- the end

    async def settle(self) -> None:
        """All troubles end: the new generation is built, takes over, and reads what is left."""
        self.produce(10_000)
        before, self.processes = self.processes, []
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
            worker.client.at_once = 1_000
            for what in ("look", "read", "look after"):
                await self.act(worker, what, None, 0)
            if new.state == "building" and len(worker.loop.partitions) == PARTITIONS:
                await self.command("decide", None, 0)
            elif new.state == "live" and not layout.to_purge:
                break
        assert worker is not None
        for _ in range(4):
            await self.act(worker, "read", None, 0)
        self.sent = len(self.topic.messages)
        late = [p for p in before if p.generation.mark != worker.generation.mark]
        for process in late[:1]:  # one that slept through all of it
            process.client.at_once = 1_000
            for what in ("read", "look after", "commit", "read", "look"):
                if process not in self.processes:
                    self.processes.append(process)
                await self.act(process, what, None, 0)

    async def check(self) -> None:
        """The figures are those of one pass under the new settings, and nobody says otherwise."""
        layout = await self.space.layout()
        live = layout.in_force
        assert live is not None
        assert live.number > 1
        assert (live.state, layout.building, layout.to_purge) == ("live", None, ())
        store, good_gain = self.space.generation(live), GOOD_GAIN[live.identity.fingerprint]
        rows, windows, now_us = expected(self.seed, good_gain)
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
        assert letters == {record.value for record in traffic(self.seed) if not record.valid}
        audited = await audit(store, AuditOptions(engine, DEFAULT_WINDOWS), _never)
        assert (audited.differences, audited.unreadable, audited.busy) == ([], [], [])


async def _never() -> bool:
    return False


def drawn(seed: int) -> tuple[Builders, list[tuple[Any, ...]]]:
    """Two generations and what is to happen to them; the same for the same seed."""
    rng = Random(seed)
    builders = Builders(
        seed=rng.randint(1, 3),
        cache_results=rng.choice((0, 60, 1_000)),
        batch_records=rng.choice((1, 8, 100)),
    )
    whats = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rng.randint(60, 160))
    return builders, [
        (
            what,
            rng.randint(0, 3),
            rng.choice((*[None] * 4, *KINDS)),
            rng.randint(0, 9),
            rng.randint(1, 25),
        )
        for what in whats
    ]


async def play(builders: Builders, actions: list[tuple[Any, ...]]) -> None:
    """Start, let everything happen, settle and compare; breaks ``AssertionError``."""
    old = await begin(builders.space, OLD, 0)
    for _ in range(2):
        await builders.start(old)
    builders.rebalance(old)
    builders.produce(40)
    for action in actions:
        await _happen(builders, *action)
    await builders.settle()
    await builders.check()


async def _happen(
    builders: Builders, what: str, number: int, kind: Kind | None, at: int, many: int
) -> None:
    """One thing."""
    simple: dict[str, Callable[[], Awaitable[None]]] = {"register": builders.register}
    if what in simple:
        await simple[what]()
    elif what in ("decide", "finish", "give up"):
        await builders.command(what, kind, at)
    elif what == "produce":
        builders.produce(many)
    elif what == "remember":
        await builders.remember()
    elif what == "go back":
        builders.go_back()
    elif builders.processes:
        process = builders.processes[number % len(builders.processes)]
        if what == "kill":
            await builders.replace(process)
        elif what == "rebalance":
            builders.rebalance(process.generation, [process] if at % 2 else ())
        elif what == "notice":
            process.client.notice()
        else:
            process.client.at_once = 1 + many // 2
            await builders.act(process, what, kind, at)
