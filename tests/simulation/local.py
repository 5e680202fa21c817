"""One process over a SQLite file: its log of events and its state; see ``on_disk``."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from prometheus_client import CollectorRegistry

from stream_metrics.core.events.decode import BadRecord
from stream_metrics.lab.traffic import TrafficRecord
from stream_metrics.live.health import Health
from stream_metrics.live.layout import Identity
from stream_metrics.live.local.database import FileUnavailable
from stream_metrics.live.local.letters import LocalDeadLetters
from stream_metrics.live.local.log import Entry, Log, Retention
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.local.tables import EVENTS, SPANS
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.worker.ahead import AheadDecoder, Decoded
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.kept_state import KeptState
from stream_metrics.live.worker.keying import KeyMonitor
from stream_metrics.live.worker.loop import Loop
from stream_metrics.live.worker.options import LoopOptions
from stream_metrics.live.worker.surroundings import Surroundings
from tests.simulation.disk import ENDINGS, read_image
from tests.simulation.on_disk import Action, OnDisk
from tests.simulation.system import TTL_MS, ImmediateRetry, Keeping, compare, expected, traffic

DAY_MS: Final = 86_400_000
IDENTITY: Final = Identity("group", 1, "fingerprint", {EVENTS: 1})
ALL_THAT_WAS_READ: Final = Retention({EVENTS: 0, SPANS: 0}, 1 << 40)
ROUNDS: Final = 10

WEIGHTS: Final = {
    "send": 8,
    "read": 10,
    "look after": 4,
    "commit": 2,
    "trim": 2,
    "kill": 2,
    "clock": 1,
}


@dataclass
class Process:
    """The process that has the file open."""

    log: Log
    store: LocalStore
    loop: Loop


@dataclass
class LocalSystem(OnDisk, Keeping):
    """See ``OnDisk``; clients send one record after the other, which ``decodes`` decodes for the
    loop, too."""

    decodes: bool = False
    sent: int = 0
    clock_off_ms: int = 0
    acknowledged: dict[int, bytes] = field(default_factory=dict)  # values by offset

    def __post_init__(self) -> None:
        super().__post_init__()
        self.records = traffic(self.seed)
        self.now_ms = self.records[0].timestamp_ms
        self.process: Process

    # -- what happens ---------------------------------------------------------------------------

    async def _begin(self) -> None:
        database = self.database
        clock = Clock(lambda: self.now_ms + self.clock_off_ms, lambda: self.now_ms / 1000)
        store = LocalStore(database, clock=lambda: self.now_ms)
        letters = LocalDeadLetters(database)
        health, operations = Health(reasons={}), Operations(CollectorRegistry(), [EVENTS])
        partitions = self.partitions(IDENTITY, clock, store, letters, operations)
        retry = ImmediateRetry(health, self.disk.mend)
        log = Log(database)
        source = LocalSource(
            log, "group", [EVENTS], retry, max_records=10, wait_seconds=0, hand_over=True
        )
        await source.join()
        loop = Loop(
            source,
            KeptState(store, IDENTITY, partitions),
            LoopOptions((EVENTS,)),
            Surroundings(retry, health, operations, clock, monotonic=lambda: 0.0),
            KeyMonitor(operations.keyed_differently, {}),
        )
        self.process = Process(log, store, loop)

    async def _do(self, what: str, count: int) -> None:
        process = self.process
        if what == "send":
            await self._send(count)
        elif what == "read":
            await process.loop.turn()
        elif what == "commit":
            await process.loop.commit()
        elif what == "look after":
            await process.loop.check()
            await process.loop.probe.ask()
            await process.loop.expire()
        elif what == "trim":
            with suppress(FileUnavailable):  # it is tried again later
                await process.log.trim(ALL_THAT_WAS_READ, self.now_ms + 1)
        elif what == "kill":
            self.disk.image = read_image(self.database.path)
        elif what == "clock":
            self.clock_off_ms = count

    async def _send(self, count: int) -> None:
        waiting = self.records[self.sent : self.sent + count]
        if not waiting:
            return
        self.now_ms = max(self.now_ms, waiting[-1].timestamp_ms)

        def store(record: TrafficRecord) -> Awaitable[int]:
            entry = Entry(record.key or b"", record.value, None, self._decoded(record))
            return self.process.log.append(EVENTS, [entry], record.timestamp_ms)

        def stored(record: TrafficRecord, offset: int) -> None:
            assert offset not in self.acknowledged, "an offset was given twice"
            self.acknowledged[offset] = record.value

        await self._until_stored(waiting, store, stored)
        self.sent += count

    def _decoded(self, record: TrafficRecord) -> Decoded | None:
        """The event as a receiver decodes it, of a record whose key is that of its event."""
        found = AheadDecoder(self.options).decode(record.value, record.timestamp_ms)
        if not self.decodes or isinstance(found, BadRecord):
            return None
        return found if found.event.conversation_id.encode() == record.key else None

    async def settle(self) -> None:
        """End all faults; the process reads the remaining records."""
        self.clock_off_ms = 0
        await self.act("send", count=len(self.records))
        for _ in range(len(self.records)):
            await self.act("read")
            await self.act("look after")
            if not any(self.process.loop.status(frozenset()).behind.values()):
                break
        for _ in range(ROUNDS):
            await self.act("look after")

    # -- what must hold -------------------------------------------------------------------------

    async def check(self) -> None:
        """All is read and what one pass gives, and what was acknowledged is there, once."""
        log, store, database = self.process.log, self.process.store, self.database
        extent = (await log.extents([EVENTS]))[EVENTS]
        position = (await store.describe(0)).positions[EVENTS]
        assert position.offset == extent.end, "the state does not stand at the end of the log"
        held = {r.offset: r.value for r in (await log.read({EVENTS: 0}, 1 << 20, 1 << 40))[EVENTS]}
        assert list(held) == list(range(extent.first, extent.end)), "the log has holes"
        missing = {
            offset
            for offset, value in self.acknowledged.items()
            if offset >= extent.first and held.get(offset) != value
        }
        assert not missing, "an acknowledged record is missing"
        rows = await database.read(
            lambda at: at.execute('SELECT "offset", value FROM letters').fetchall()
        )
        assert len({offset for offset, _ in rows}) == len(rows), "two letters about one record"
        letters = {value for _, value in rows}
        outcome = expected(self.seed, self.poison)
        await compare(store, letters, outcome, self.now_ms - self.ttl_ms)


def system_of(seed: int, folder: Path) -> tuple[LocalSystem, list[Action]]:
    """A system and the actions to perform on it; the same for the same seed."""
    rng = Random(seed)
    system = LocalSystem(
        seed=rng.randint(1, 3),
        folder=folder,
        cache_results=rng.choice((0, 60, 1_000)),
        batch_records=rng.choice((1, 8, 100)),
        ttl_ms=rng.choice((TTL_MS, DAY_MS)),
        poison=8 if seed % 4 == 0 else 0,
        decodes=seed % 3 > 0,
    )
    system.disk.rng = rng
    drawn = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rng.randint(30, 90))
    return system, [(what, *_details(what, rng)) for what in drawn]


def _details(what: str, rng: Random) -> tuple[Any, ...]:
    if what == "clock":
        return None, 0, rng.randint(-3 * DAY_MS, 0)
    ending = None if what == "kill" else rng.choice((*[None] * 6, *ENDINGS))
    return ending, rng.randint(0, 4), rng.randint(1, 20)
