"""One process over a SQLite file, which dies, and whose disk fills, at any moment.

Clients send one record after the other, and send again what was not acknowledged.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from prometheus_client import CollectorRegistry

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.live.health import Health
from stream_metrics.live.layout import Identity
from stream_metrics.live.local.database import Database, FileUnavailable
from stream_metrics.live.local.letters import LocalDeadLetters
from stream_metrics.live.local.log import Entry, Log, Retention
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.local.tables import EVENTS, SPANS
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.kept_state import KeptState
from stream_metrics.live.worker.keying import KeyMonitor
from stream_metrics.live.worker.loop import Loop
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import LoopOptions, PartitionOptions
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.surroundings import Surroundings
from tests.faulty import Bug, BuggyDeduplicators
from tests.simulation.disk import ENDINGS, Disk, Ending, read_image, write_image
from tests.simulation.faults import Died
from tests.simulation.system import TTL_MS, ImmediateRetry, compare, expected, traffic

DAY_MS: Final = 86_400_000
IDENTITY: Final = Identity("group", 1, "fingerprint", {EVENTS: 1})
ALL_THAT_WAS_READ: Final = Retention({EVENTS: 0, SPANS: 0}, 1 << 40)
ROUNDS: Final = 10

Action = tuple[Any, ...]
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

    database: Database
    log: Log
    store: LocalStore
    loop: Loop


@dataclass
class LocalSystem:
    """A file in ``folder``, the process over it, and its clients."""

    seed: int
    folder: Path
    cache_results: int = 1_000
    batch_records: int = 8
    ttl_ms: int = TTL_MS
    poison: int = 0
    sent: int = 0
    clock_off_ms: int = 0
    acknowledged: dict[int, bytes] = field(default_factory=dict)  # values by offset

    def __post_init__(self) -> None:
        self.records = traffic(self.seed)
        self.now_ms = self.records[0].timestamp_ms
        self.disk = Disk(Random(self.seed))
        self.starts = 0
        self.process: Process

    # -- what happens ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Start a process over what the last one has left."""
        self.starts += 1
        path = self.folder / f"{self.starts}.db"
        if self.disk.image is not None:
            write_image(self.disk.image, path)
            self.disk.image = None
        self.disk.mend()
        database = await asyncio.to_thread(Database, path, connect=self.disk.connect)
        clock = Clock(lambda: self.now_ms + self.clock_off_ms, lambda: self.now_ms / 1000)
        store = LocalStore(database, clock=lambda: self.now_ms)
        letters = LocalDeadLetters(database)
        health, operations = Health(reasons={}), Operations(CollectorRegistry(), [EVENTS])
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
            worker="serve",
            dedups=BuggyDeduplicators(b"secret", Bug(ZeroDivisionError, at_pack=self._is_poison)),
        )
        cache, names = ConversationCache(self.cache_results), SharedNames(store, options)

        def make_partition(number: int, token: bytes) -> StatePartition:
            return StatePartition(number, options, store, letters, cache, names, operations, token)

        retry = ImmediateRetry(health, self.disk.mend)
        log = Log(database)
        source = LocalSource(log, "group", [EVENTS], retry, max_records=10, wait_seconds=0)
        await source.join()
        loop = Loop(
            source,
            KeptState(store, IDENTITY, make_partition),
            LoopOptions((EVENTS,)),
            Surroundings(retry, health, operations, clock, monotonic=lambda: 0.0),
            KeyMonitor(operations.keyed_differently, {}),
        )
        self.process = Process(database, log, store, loop)

    def _is_poison(self, results: int) -> bool:
        return 0 < results == self.poison

    async def act(
        self, what: str, ending: Ending | None = None, at: int = 0, count: int = 1
    ) -> None:
        """Let the process do something, with an ending at the ``at``-th transaction.

        After a death, the next process is started.
        """
        self.disk.ending, self.disk.at = ending, at
        try:
            await self._do(what, count)
        except Died:
            self.disk.seen[f"died in {what}"] += 1
        self.disk.mend()
        if self.disk.image is not None:
            await self.process.database.close()
            await self.start()

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
            self.disk.image = read_image(process.database.path)

    async def _send(self, count: int) -> None:
        """Send records at once, each in a request of its own, until all are acknowledged."""
        waiting = list(self.records[self.sent : self.sent + count])
        if not waiting:
            return
        self.now_ms = max(self.now_ms, waiting[-1].timestamp_ms)
        while waiting:
            requests = [
                self.process.log.append(
                    EVENTS, [Entry(record.key or b"", record.value)], record.timestamp_ms
                )
                for record in waiting
            ]
            answers = await asyncio.gather(*requests, return_exceptions=True)
            failed = []
            for record, answer in zip(waiting, answers, strict=True):
                if isinstance(answer, int):
                    assert answer not in self.acknowledged, "an offset was given twice"
                    self.acknowledged[answer] = record.value
                else:
                    assert isinstance(answer, FileUnavailable | Died), answer
                    failed.append(record)
            waiting = failed
            if self.disk.image is not None:
                self.disk.seen["died in send"] += 1
                await self.process.database.close()
                await self.start()
            self.disk.mend()
        self.sent += count

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
        log, store, database = self.process.log, self.process.store, self.process.database
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
    )
    system.disk.rng = rng
    drawn = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rng.randint(30, 90))
    return system, [(what, *_details(what, rng)) for what in drawn]


def _details(what: str, rng: Random) -> tuple[Any, ...]:
    if what == "clock":
        return (rng.randint(-3 * DAY_MS, 0),)
    ending = None if what == "kill" else rng.choice((*[None] * 6, *ENDINGS))
    return ending, rng.randint(0, 4), rng.randint(1, 20)


async def play(system: LocalSystem, actions: list[Action]) -> None:
    """Start, perform all actions, settle and compare; raises ``AssertionError``."""
    await system.start()
    for what, *details in actions:
        if what == "clock":
            [system.clock_off_ms] = details
        else:
            await system.act(what, *details)
    await system.settle()
    await system.check()
    await system.process.database.close()
