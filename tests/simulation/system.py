"""Workers over scripted brokers and one store, and the rules that must hold at every moment."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from stream_metrics.adapters.health import Health
from stream_metrics.adapters.kafka.consumer import LiveConsumer
from stream_metrics.adapters.kafka.log import FRESH
from stream_metrics.adapters.memory import MemoryDeadLetters, MemorySnapshot, MemoryStore
from stream_metrics.adapters.prometheus.operations import Operations
from stream_metrics.engine.config import EngineConfig
from stream_metrics.engine.row import canonical
from stream_metrics.engine.windows import DEFAULT_WINDOWS
from stream_metrics.layout import Identity
from stream_metrics.ports import BatchWrite, Fenced, Moved, Written
from stream_metrics.settings import KafkaSettings
from stream_metrics.traffic import TrafficProfile, TrafficRecord, generate, partition_for
from stream_metrics.worker.audit import AuditOptions, audit
from stream_metrics.worker.cache import ConversationCache
from stream_metrics.worker.clock import Clock
from stream_metrics.worker.export import export_state
from stream_metrics.worker.partition import PartitionOptions, SharedNames, StatePartition
from stream_metrics.worker.patience import Patience
from stream_metrics.worker.takeover import offsets
from tests import oracle
from tests.simulation.brokers import Brokers, Commits, ScriptedCluster, ScriptedConsumer
from tests.simulation.troubled import Died, Kind, Trouble, Troubled

TOPICS: Final = ("events", "labels")
PARTITIONS: Final = 2
MARKED: Final = 7  # one record in so many ends a transaction
TTL_MS: Final = 1_800_000
ROUNDS: Final = 10  # that a worker needs at most to read all and let all expire
COUNTS: Final = dict.fromkeys(TOPICS, PARTITIONS)
IDENTITY: Final = Identity("group", 1, "fingerprint", COUNTS)


class AtOnce(Patience):
    """Patience that tries again at once."""

    async def pause(self, seconds: float) -> None:
        """Do not wait."""


class ScriptedLive(LiveConsumer):
    """The worker's loop; commits and the rest happen when told to."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(KafkaSettings(topics=TOPICS), *arguments)
        self._next_commit = self._next_look = math.inf


@dataclass(eq=False)
class Process:
    """One worker, and how far its clock is off."""

    client: ScriptedConsumer
    live: ScriptedLive
    trouble: Trouble
    health: Health
    clock_off_ms: int = 0


@lru_cache
def traffic(seed: int) -> tuple[TrafficRecord, ...]:
    """A little of everything, over some hours; no conversation is older than ``TTL_MS``."""
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
    records = tuple(generate(profile))
    first: dict[bytes | None, int] = {}
    for record in records:
        age_ms = record.timestamp_ms - first.setdefault(record.key, record.timestamp_ms)
        assert age_ms < TTL_MS, "a conversation may expire before its last record"
    return records


@dataclass(frozen=True)
class Outcome:
    """What the reference makes of the traffic: rows by conversation, and windows at ``now_us``."""

    rows: dict[str, str]
    windows: str
    now_us: int
    last_ms: dict[str, int]


@lru_cache
def expected(seed: int) -> Outcome:
    """One pass over the traffic."""
    records = [oracle.Record(r.value, r.key, r.timestamp_ms) for r in traffic(seed)]
    outcome = oracle.evaluate(records, keyed=True)
    now_us = 1000 * traffic(seed)[-1].timestamp_ms
    rows = {str(json.loads(row)["conversation_id"]): row for row in outcome.rows}
    last_ms = {(r.key or b"").decode(errors="replace"): r.timestamp_ms for r in traffic(seed)}
    return Outcome(rows, outcome.windows(now_us), now_us, last_ms)


@dataclass
class System:
    """A group and its processes; ``seed`` says what lies in the topics."""

    seed: int
    cache_results: int = 1_000
    batch_records: int = 8
    ttl_ms: int = TTL_MS
    brokers: Brokers = field(default_factory=lambda: Brokers(TOPICS, PARTITIONS))
    store: MemoryStore = field(default_factory=MemoryStore)
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now_ms = traffic(self.seed)[0].timestamp_ms
        self.store_off_ms = 0
        self.breaches: list[str] = []  # rules that did not hold
        self._owners: dict[int, bytes] = {}
        self._went_back: set[int] = set()  # partitions, since they were last claimed
        self._offsets: dict[int, dict[str, int]] = {}  # as they are stored
        self._last_batch: dict[int, bytes] = {}
        self.seen: Counter[str] = Counter()
        self._past: MemorySnapshot | None = None
        self.store.clock = lambda: self.now_ms + self.store_off_ms
        self.brokers.on_commit = self._committed
        for number, record in enumerate(traffic(self.seed)):
            key = record.key or b""
            place = TopicPartition(record.stream, partition_for(key, PARTITIONS))
            self.brokers.append(place, key, record.value, record.timestamp_ms)
            if number % MARKED == 0:
                self.brokers.mark(place, record.timestamp_ms)

    # -- what happens ---------------------------------------------------------------------------

    def produce(self, entries: int) -> None:
        """So many more records and markers come, and time goes on as far."""
        self.now_ms = self.brokers.produce(entries) or self.now_ms

    async def start(self) -> Process:
        """A worker more, which is no member yet."""
        client, trouble = ScriptedConsumer(self.brokers), Trouble()
        health = Health(reasons={})
        clock = Clock(lambda: self.now_ms + process.clock_off_ms, lambda: self.now_ms / 1000)
        operations = Operations(CollectorRegistry(), TOPICS)
        options = PartitionOptions(
            IDENTITY,
            EngineConfig(),
            "k",
            {"k": b"secret"},
            DEFAULT_WINDOWS,
            ttl_ms=self.ttl_ms,
            batch_records=self.batch_records,
            now_ms=clock.now_ms,
            latest_ms=clock.latest_ms,
        )

        def seen(name: str, arguments: tuple[Any, ...], answer: Any) -> None:
            self._answered(client, name, arguments, answer)

        store: Any = Troubled(self.store, trouble, seen)
        letters: Any = Troubled(self.letters, trouble, seen)
        cache, names = ConversationCache(self.cache_results), SharedNames(store, options)

        def make_partition(number: int, token: bytes) -> StatePartition:
            return StatePartition(number, options, store, letters, cache, names, operations, token)

        live = ScriptedLive(
            ScriptedCluster(self.brokers, client),
            store,
            IDENTITY,
            make_partition,
            AtOnce(health, operations.redis_error),
            health,
            operations,
            clock,
        )
        process = Process(client, live, trouble, health)
        await live._group.join()
        self.processes.append(process)
        return process

    async def replace(self, process: Process) -> None:
        """One process is no more, and another one joins; the others do not know it yet."""
        self.processes.remove(process)
        others = list(self.processes)
        await self.start()
        self.rebalance(others)

    def rebalance(self, unaware: Collection[Process] = (), *, split: bool = False) -> None:
        """Share the partitions out among those that are there."""
        members = [process.client for process in self.processes]
        self.brokers.rebalance(members, [process.client for process in unaware], split=split)

    async def act(self, process: Process, what: str, kind: Kind | None = None, at: int = 0) -> None:
        """Let a worker read, commit or look after its partitions, in trouble at the ``at``-th call.

        In place of a worker that dies another one is started.
        """
        trouble, live = process.trouble, process.live
        trouble.kind, trouble.at, trouble.interrupt = kind, at, self.rebalance
        try:
            if what == "read":
                await live._turn()
            elif what == "commit":
                await live._commit()
            elif not live._group.changed:  # else a round begins with a take-over
                await live._look_after()
                self._probe(process)
                live._overdue = set(live._active)
                await live._expire()
        except Died as death:
            self.seen[f"died at {death}"] += 1
            await self.replace(process)
        finally:
            if kind is not None and trouble.kind is None:
                self.seen[kind] += 1
            trouble.kind = None
        assert not self.breaches, self.breaches

    @property
    def _held(self) -> dict[int, Any]:
        """What the store has of each partition."""
        return {number: held for (_, number), held in self.store._content.partitions.items()}

    def remember(self) -> None:
        """Keep the store's content, once all of it is there."""
        if len(self._held) == PARTITIONS:
            self._past = self.store.snapshot()

    def go_back(self) -> None:
        """The store fails over to what was remembered."""
        if self._past is not None:
            self.store.restore(self._past)
            self._went_back = set(range(PARTITIONS))
            self.seen["store went back"] += 1
            held = self._held
            self._owners = {n: partition.token for n, partition in held.items()}
            self._offsets = {n: partition.offsets for n, partition in held.items()}
            self._last_batch = {n: partition.batch_id for n, partition in held.items()}

    async def settle(self) -> None:
        """All troubles end; one worker reads what is left."""
        self.produce(10_000)
        if not self.processes:
            await self.start()
        del self.processes[1:]
        worker = self.processes[0]
        worker.clock_off_ms = self.store_off_ms = 0
        self.rebalance()
        worker.client.at_once = 1_000
        for _ in range(ROUNDS):
            await self.act(worker, "read")
            await self.act(worker, "look after")

    def _probe(self, process: Process) -> None:
        """Hear of the ends of the logs, as the worker does every other second."""
        live = process.live
        ends = {p: e for p, e in self.brokers.ends.items() if p.partition in live._active}
        live._lag.heard(ends, live._clock.now_ms())

    # -- what must hold -------------------------------------------------------------------------

    def _rule(self, holds: bool, what: str) -> None:
        """Note a breach; it is told when the worker is done, who might take it for a fault."""
        if not holds:
            self.breaches.append(what)

    def _answered(
        self, client: ScriptedConsumer, name: str, arguments: tuple[Any, ...], answer: Any
    ) -> None:
        if name == "claim":
            number, token = arguments[:2]
            self._rule(client.is_member_for(number), "a claim without membership")
            self._owners[number] = token
            self._offsets[number] = offsets(answer.positions)
            self._went_back.discard(number)
            self.seen["claim"] += 1
        if name == "write":
            self._wrote(arguments[0], type(answer))

    def _wrote(self, batch: BatchWrite, answer: type) -> None:
        number = batch.partition
        self.seen[answer.__name__] += 1
        self.seen["expired"] += sum(write.delete for write in batch.conversations)
        if self._owners.get(number) != batch.token:
            self._rule(answer is Fenced, "a write by somebody who is not the owner")
        elif number in self._went_back:
            self._rule(answer in (Written, Moved), "the owner was fenced")
        else:
            self._rule(answer is Written, "the owner's write was refused")
        if answer is Written and self._last_batch.get(number) != batch.batch_id:
            stored = self._offsets.setdefault(number, {})
            same = batch.expected.items() <= stored.items()
            self._rule(same, "a write on other offsets than it expects")
            stored |= offsets(batch.positions)
            self._last_batch[number] = batch.batch_id

    def _committed(self, commits: Commits) -> None:
        held = self._held
        for place, commit in commits.items():
            state = held.get(place.partition)
            if state is None:
                self._rule(commit.metadata == FRESH, "a commit without state, and without the note")
            elif place.partition not in self._went_back:
                stored = state.positions[place.topic].offset
                self._rule(commit.offset <= stored, "a commit ahead of the stored offset")

    async def check(self) -> None:
        """Rows, windows and letters are the reference's, and the audit finds no difference.

        Rows of conversations that may have expired may be missing.
        """
        outcome = expected(self.seed)
        left = {
            place: end
            for place, end in self.brokers.ends.items()
            if (await self.store.describe(place.partition)).positions[place.topic].offset != end
        }
        assert not left, "the state does not stand at the ends of the logs"
        export = await export_state(self.store, EngineConfig(), DEFAULT_WINDOWS, "last")
        windows = canonical(export.windows_document(outcome.now_us)) + "\n"
        assert windows == outcome.windows, "other windows than one pass gives"
        rows = {str(row["conversation_id"]): canonical(row) for row in export.rows}
        young_ms = self.now_ms - self.ttl_ms
        wanted = {k: row for k, row in outcome.rows.items() if outcome.last_ms[k] >= young_ms}
        assert rows == wanted, "other rows than one pass gives"
        letters = {letter.record.value for letter in self.letters.letters}
        invalid = {record.value for record in traffic(self.seed) if not record.valid}
        assert letters == invalid, "other dead letters than one pass gives"
        options = AuditOptions(EngineConfig(), DEFAULT_WINDOWS)
        found = await audit(self.store, options, _never)
        assert (found.differences, found.unreadable, found.busy) == ([], [], [])


async def _never() -> bool:
    return False
