"""Workers over scripted brokers and one store, and the rules that must hold at every moment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from prometheus_client import CollectorRegistry

from stream_metrics.clients.kafka.records import record_of
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from stream_metrics.live.health import Health
from stream_metrics.live.kafka.cluster import Group
from stream_metrics.live.kafka.group_source import KafkaSource
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import MemoryDeadLetters, MemorySnapshot, MemoryStore
from stream_metrics.live.ports import BatchWrite, Fenced, Moved, StateStore, Written
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.readers.audit import AuditOptions, audit
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.kept_state import KeptState
from stream_metrics.live.worker.keying import KeyMonitor
from stream_metrics.live.worker.loop import Loop
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import LoopOptions, PartitionOptions
from stream_metrics.live.worker.ownership.takeover import NOTHING_WRITTEN, offsets
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.retry import RetryPolicy
from stream_metrics.live.worker.source import Source
from stream_metrics.live.worker.surroundings import Surroundings
from tests import oracle
from tests.faulty import Bug, BuggyDeduplicators
from tests.labels_of_models import with_models
from tests.simulation.brokers import Brokers, Commits, ScriptedCluster, ScriptedConsumer
from tests.simulation.faults import Died, Fault, FaultInjector, Kind
from tests.simulation.sources import ScriptedSource

TOPICS: Final = ("events", "labels")
PARTITIONS: Final = 2
MARKED: Final = 7  # one record in this many ends a transaction
TTL_MS: Final = 1_800_000
ROUNDS: Final = 10  # the most that a worker needs to read everything and let it expire
AFTER_CONFIRMATION: Final = ("wipe", "claim")  # the group may assign partitions anew afterwards
COUNTS: Final = dict.fromkeys(TOPICS, PARTITIONS)
IDENTITY: Final = Identity("group", 1, "fingerprint", COUNTS)


class ImmediateRetry(RetryPolicy):
    """A retry policy without pauses."""

    async def pause(self, seconds: float) -> None:
        """Do not wait."""


class PausableState(KeptState):
    """The state of a worker whose reading is paused while there is a reason."""

    stopped: str | None = None

    def why_not_read(self) -> str | None:
        """See ``KeptState.why_not_read``."""
        return self.stopped


@dataclass(eq=False)
class Process:
    """One worker, its member of the group, and the offset of its clock."""

    client: ScriptedSource | ScriptedConsumer
    loop: Loop
    fault: Fault
    health: Health
    state: PausableState
    clock_off_ms: int = 0


@lru_cache
def traffic(seed: int) -> tuple[TrafficRecord, ...]:
    """All kinds of records over some hours; no conversation lasts longer than ``TTL_MS``."""
    profile = TrafficProfile(
        seed=seed,
        conversations=30,
        duration_seconds=10_000,
        turns=(1, 2),
        iterations=(1, 3),
        results_per_search=4,
        documents=100,
        out_of_order=0.1,
        redelivered=0.05,
        invalid=0.05,
    )
    records = tuple(with_models(generate(profile)))
    first: dict[bytes | None, int] = {}
    for record in records:
        age_ms = record.timestamp_ms - first.setdefault(record.key, record.timestamp_ms)
        assert age_ms < TTL_MS, "a conversation may expire before its last record"
    return records


@dataclass(frozen=True)
class Outcome:
    """The reference's figures for the traffic: rows by conversation, and windows at ``now_us``.

    ``rejected`` has the values of the records that become dead letters.
    """

    rows: dict[str, str]
    windows: str
    now_us: int
    last_ms: dict[str, int]
    rejected: set[bytes]


def is_poison(record: TrafficRecord, poison: int) -> bool:
    """Whether the record is a search event with that many results; never with 0."""
    if not poison or not record.valid or b'"searches"' not in record.value:
        return False
    event = json.loads(record.value)
    return poison == sum(len(search["results"]) for search in event.get("searches", ()))


@lru_cache
def expected(seed: int, poison: int = 0) -> Outcome:
    """The outcome of one pass over the traffic without its poison."""
    taken = [record for record in traffic(seed) if not is_poison(record, poison)]
    records = [oracle.Record(r.value, r.key, r.timestamp_ms) for r in taken]
    outcome = oracle.evaluate(records, keyed=True)
    now_us = 1000 * traffic(seed)[-1].timestamp_ms
    rows = {str(json.loads(row)["conversation_id"]): row for row in outcome.rows}
    last_ms = {(r.key or b"").decode(errors="replace"): r.timestamp_ms for r in taken}
    rejected = {r.value for r in traffic(seed) if not r.valid or is_poison(r, poison)}
    return Outcome(rows, outcome.windows(now_us), now_us, last_ms, rejected)


@dataclass
class Stored:
    """What was last stored of a partition, according to the answers of the store."""

    owner: bytes
    offsets: dict[str, int]
    last_batch: bytes = b""


@dataclass(kw_only=True)
class Keeping:
    """How much workers keep, for how long, and how much they process at once.

    ``poison``: a conversation cannot be encoded with an event of that many results; none with 0.
    """

    cache_results: int = 1_000
    batch_records: int = 8
    ttl_ms: int = TTL_MS
    poison: int = 0
    options: PartitionOptions = field(init=False)  # of the partitions that were made last

    def partitions(
        self, identity: Identity, clock: Clock, store: Any, letters: Any, operations: Operations
    ) -> Callable[[int, bytes], StatePartition]:
        """What makes the state partitions of a worker."""
        bug = Bug(ZeroDivisionError, at_pack=lambda results: 0 < results == self.poison)
        options = PartitionOptions(
            identity,
            EngineConfig(),
            "k",
            {"k": b"secret"},
            DEFAULT_WINDOWS,
            ttl_ms=self.ttl_ms,
            batch_records=self.batch_records,
            now_ms=clock.now_ms,
            latest_ms=clock.latest_ms,
            dedups=BuggyDeduplicators(b"secret", bug),
        )
        self.options = options
        cache, names = ConversationCache(self.cache_results), SharedNames(store, options)

        def make(number: int, token: bytes) -> StatePartition:
            return StatePartition(number, options, store, letters, cache, names, operations, token)

        return make


@dataclass
class System(Keeping):
    """A group and its processes; ``seed`` determines the content of the topics.

    ``over_kafka``: what workers read is that over aiokafka, with a scripted client.
    """

    seed: int
    over_kafka: bool = False
    brokers: Brokers = field(default_factory=lambda: Brokers(TOPICS, PARTITIONS))
    store: MemoryStore = field(default_factory=MemoryStore)
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now_ms = traffic(self.seed)[0].timestamp_ms
        self.store_off_ms = 0
        self.breaches: list[str] = []  # rules that were broken
        self._stored: dict[int, Stored] = {}
        self._went_back: set[int] = set()  # partitions, since they were last claimed
        self.seen: Counter[str] = Counter()
        self._past: tuple[MemorySnapshot, dict[int, Stored]] | None = None
        self.store.clock = lambda: self.now_ms + self.store_off_ms
        self.brokers.on_commit = self._committed
        for number, record in enumerate(traffic(self.seed)):
            key = record.key or b""
            place = TopicPartition(record.stream, PARTITIONERS["murmur2"](key, PARTITIONS))
            self.brokers.append(place, key, record.value, record.timestamp_ms)
            if number % MARKED == 0:
                self.brokers.mark(place, record.timestamp_ms)

    # -- what happens ---------------------------------------------------------------------------

    def produce(self, entries: int) -> None:
        """Produce this many records and markers, and advance the clock to the last one."""
        self.now_ms = self.brokers.produce(entries) or self.now_ms

    async def start(self) -> Process:
        """Start a worker, which is not a member yet."""
        fault, health = Fault(), Health(reasons={})
        clock = Clock(lambda: self.now_ms + process.clock_off_ms, lambda: self.now_ms / 1000)
        operations = Operations(CollectorRegistry(), TOPICS)

        def seen(name: str, arguments: tuple[Any, ...], answer: Any) -> None:
            if name == "claim" and fault.interrupted not in AFTER_CONFIRMATION:
                is_member = client.is_member_for(arguments[0])
                self._rule(is_member, "a claim without membership")
            self._answered(name, arguments, answer)

        store: Any = FaultInjector(self.store, fault, seen)
        letters: Any = FaultInjector(self.letters, fault, seen)
        retry = ImmediateRetry(health, operations.redis_error)
        client, source = self._reading(retry, health)
        partitions = self.partitions(IDENTITY, clock, store, letters, operations)
        state = PausableState(store, IDENTITY, partitions)
        loop = Loop(
            source,
            state,
            LoopOptions(TOPICS),
            # periodic work happens only when the test asks for it
            Surroundings(retry, health, operations, clock, monotonic=lambda: 0.0),
            KeyMonitor(operations.keyed_differently, PARTITIONERS),
        )
        await source.join()
        process = Process(client, loop, fault, health, state)
        self.processes.append(process)
        return process

    def _reading(
        self, retry: ImmediateRetry, health: Health
    ) -> tuple[ScriptedSource | ScriptedConsumer, Source]:
        """A member of the group, and what a worker reads through it."""
        if not self.over_kafka:
            scripted = ScriptedSource(self.brokers)
            return scripted, scripted
        client = ScriptedConsumer(self.brokers)
        cluster = ScriptedCluster(self.brokers, client)
        group = Group("group", TOPICS, RangePartitionAssignor)
        record = partial(record_of, internal_topic=None)

        async def counts() -> dict[str, int]:
            return dict(COUNTS)

        return client, KafkaSource(
            KafkaSettings(topics=TOPICS), cluster, group, counts, record, retry, health
        )

    async def replace(self, process: Process) -> None:
        """End a process and start another one; the other members do not know it yet."""
        self.processes.remove(process)
        others = list(self.processes)
        await self.start()
        self.rebalance(others)

    def rebalance(self, unaware: Collection[Process] = (), *, split: bool = False) -> None:
        """Assign the partitions to the running workers."""
        members = [process.client for process in self.processes]
        self.brokers.rebalance(members, [process.client for process in unaware], split=split)

    def swap(self) -> None:
        """Assign to each worker the partitions of another one."""
        members = [process.client for process in self.processes]
        self.brokers.rebalance([*members[1:], *members[:1]])

    async def act(self, process: Process, what: str, kind: Kind | None = None, at: int = 0) -> None:
        """Let a worker read, commit or maintain its partitions, with a fault at the ``at``-th call.

        In place of a worker that dies another one is started.
        """
        fault, loop = process.fault, process.loop
        fault.kind, fault.at, fault.interrupt = kind, at, self.swap
        try:
            if what == "read":
                await loop.turn()
            elif what == "commit":
                await loop.commit()
            else:
                await loop.check()
                await loop.probe.ask()
                await loop.expire()
        except Died as death:
            self.seen[f"died at {death}"] += 1
            await self.replace(process)
        finally:
            if kind is not None and fault.kind is None:
                self.seen[kind] += 1
            fault.kind, fault.interrupted = None, ""
        assert not self.breaches, self.breaches

    def remember(self) -> None:
        """Take a snapshot of the store once every partition is stored."""
        if len(self._stored) == PARTITIONS:
            self._past = self.store.snapshot(), deepcopy(self._stored)

    def go_back(self) -> None:
        """Fail the store over to the snapshot."""
        if self._past is not None:
            self.store.restore(self._past[0])
            self._stored = deepcopy(self._past[1])
            self._went_back = set(range(PARTITIONS))
            self.seen["store went back"] += 1

    async def settle(self) -> None:
        """End all faults; one worker reads the remaining records."""
        self.produce(10_000)
        if not self.processes:
            await self.start()
        del self.processes[1:]
        worker = self.processes[0]
        worker.clock_off_ms = self.store_off_ms = 0
        self.rebalance()
        worker.client.max_records = 1_000
        for _ in range(ROUNDS):
            await self.act(worker, "read")
            await self.act(worker, "look after")

    # -- what must hold -------------------------------------------------------------------------

    def _rule(self, holds: bool, what: str) -> None:
        """Record a breach, which is raised later: the worker could take it for a failure."""
        if not holds:
            self.breaches.append(what)

    def _answered(self, name: str, arguments: tuple[Any, ...], answer: Any) -> None:
        if name == "claim":
            number, token = arguments[:2]
            stored = self._stored.setdefault(number, Stored(token, {}))
            stored.owner, stored.offsets = token, offsets(answer.positions)
            self._went_back.discard(number)
            self.seen["claim"] += 1
        if name == "write":
            self._wrote(arguments[0], type(answer))

    def _wrote(self, batch: BatchWrite, answer: type) -> None:
        number = batch.partition
        self.seen[answer.__name__] += 1
        self.seen["expired"] += sum(write.delete for write in batch.conversations)
        stored = self._stored[number]
        if stored.owner != batch.token:
            self._rule(answer is Fenced, "a write by somebody who is not the owner")
        elif number in self._went_back:
            self._rule(answer in (Written, Moved), "the owner was fenced")
        else:
            self._rule(answer is Written, "the owner's write was refused")
        if answer is Written and stored.last_batch != batch.batch_id:
            same = batch.expected.items() <= stored.offsets.items()
            self._rule(same, "a write on other offsets than it expects")
            stored.offsets |= offsets(batch.positions)
            stored.last_batch = batch.batch_id

    def _committed(self, commits: Commits) -> None:
        for place, commit in commits.items():
            stored = self._stored.get(place.partition)
            if stored is None:
                self._rule(
                    commit.metadata == NOTHING_WRITTEN,
                    "a commit without state, and without the note",
                )
            elif place.partition not in self._went_back:
                ahead = commit.offset > stored.offsets[place.topic]
                self._rule(not ahead, "a commit ahead of the stored offset")

    async def check(self) -> None:
        """All is read, and everything is what one pass gives; see ``compare``."""
        left = {
            place: end
            for place, end in self.brokers.ends.items()
            if (await self.store.describe(place.partition)).positions[place.topic].offset != end
        }
        assert not left, "the state does not stand at the ends of the logs"
        letters = {letter.record.value for letter in self.letters.letters}
        young_ms = self.now_ms - self.ttl_ms
        await compare(self.store, letters, expected(self.seed, self.poison), young_ms)


async def compare(
    store: StateStore, letters: set[bytes | None], outcome: Outcome, young_ms: int
) -> None:
    """Rows, windows and values of letters are the reference's, and the audit finds no difference.

    Rows of conversations whose last record is before ``young_ms`` may be missing.
    """
    export = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "last")
    windows = canonical(export.windows_document(outcome.now_us)) + "\n"
    assert windows == outcome.windows, "other windows than one pass gives"
    rows = {str(row["conversation_id"]): canonical(row) for row in export.rows}
    wanted = {k: row for k, row in outcome.rows.items() if outcome.last_ms[k] >= young_ms}
    assert rows == wanted, "other rows than one pass gives"
    assert letters == outcome.rejected, "other dead letters than one pass gives"
    options = AuditOptions(EngineConfig(), DEFAULT_WINDOWS)
    found = await audit(store, options, _never)
    assert (found.differences, found.unreadable, found.busy) == ([], [], [])


async def _never() -> bool:
    return False
