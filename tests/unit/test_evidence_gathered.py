"""Evidence over a group: what is told, from when on, by whom, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.local.waiting import wait_until
from stream_metrics.core.alerts.minutes import MARKS
from stream_metrics.core.alerts.standing import Gathered
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.page.evidence import Evidence, OthersMinutes
from stream_metrics.live.page.group import OwnedPartitions, StateSource
from stream_metrics.live.ports import Position, StoreUnavailable
from stream_metrics.live.prometheus.evidence import EvidenceGauges
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests.drill.gather import IN_USE
from tests.gathered import of_the_log, searches, values
from tests.property.test_partition import TOPIC, once, options
from tests.unit.test_state_partition import NOON_S

MINUTES = 220  # usual after three hours; then results repeat
START = NOON_S // 60
NOW = START + MINUTES - 1
NOW_MS = 60_000 * (NOW + 1)
PARTITIONS = 3
EVENTS = tuple(searches(START, MINUTES))


@lru_cache(maxsize=1)
def sent() -> tuple[tuple[int, Record], ...]:
    """Records of a log, with their partitions."""
    rng, offsets, found = Random(5), [0] * PARTITIONS, []
    for event in EVENTS:
        place = rng.randrange(PARTITIONS)
        value, key = json.dumps(event).encode(), event["conversation_id"].encode()
        time_ms = 1_000 * event["occurred_at"]
        found.append((place, Record(value, key, time_ms, TOPIC, 0, offsets[place])))
        offsets[place] += 1
    return tuple(found)


class AskedStore(MemoryStore):
    """A store that records what is read of minutes, and can be unreachable."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = lambda: 1_000  # stands still
        self.read: list[tuple[int, str | None]] = []
        self.gone = False

    async def partitions(self) -> list[int]:
        """Raise if it is unreachable."""
        if self.gone:
            raise StoreUnavailable("the store does not answer")
        return await super().partitions()

    async def buckets(
        self, partition: int, window: str | None = None
    ) -> dict[tuple[str, int, str], bytes]:
        """Record the call."""
        if window != MARKS:
            self.read.append((partition, window))
        return await super().buckets(partition, window)


@dataclass
class Worker:
    """One that owns some partitions of a store."""

    store: AskedStore
    owned: dict[int, StatePartition] = field(default_factory=dict)
    now_ms: int = NOW_MS
    behind_ms: dict[int, int | None] = field(default_factory=dict)
    total: int = PARTITIONS
    held_bytes: int = 1 << 20
    seconds: float = 0.0
    evidence: Evidence = field(init=False)
    gauges: EvidenceGauges = field(init=False)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.gauges = EvidenceGauges(self.registry, "agent")
        numbers = self.numbers
        self.evidence = Evidence(
            lambda: {number: one.minutes for number, one in self.owned.items()},
            numbers,
            lambda: self.now_ms,
            IN_USE,
            others=OthersMinutes(
                lambda: StateSource(self.store, EngineConfig(), total=self.total),
                numbers,
                lambda: self.now_ms,
                held_bytes=self.held_bytes,
            ),
            clock=lambda: self.seconds,
            watch_seconds=0.01,
        )

    def numbers(self) -> OwnedPartitions:
        """What it owns."""
        return OwnedPartitions(sorted(self.owned), self.total, self.behind_ms)

    async def own(self, *numbers: int) -> Worker:
        """Take partitions over."""
        for number in numbers:
            shared = replace(options(), worker=f"worker of {number}")
            self.owned[number] = partition = StatePartition(
                number, shared, self.store, MemoryDeadLetters(), ConversationCache(1_000),
                SharedNames(self.store, shared), NoTelemetry(),
                b"token %d %d" % (number, id(self)),
            )  # fmt: skip
            start = {TOPIC: Position(0)}
            partition.adopt(await self.store.claim(number, partition.token, start))
        return self

    async def take(self, records: Iterable[tuple[int, Record]]) -> None:
        """Read records of the partitions that it owns."""
        for number, one in self.owned.items():
            await one.process([record for place, record in records if place == number], once)

    async def beat(self, behind_ms: int | None = 0) -> None:
        """Send a heartbeat for each partition."""
        for one in self.owned.values():
            await one.beat(once, behind_ms)

    async def told(self) -> Gathered | None:
        """What it tells after another look."""
        self.seconds += 100
        await self.evidence.read()
        return self.evidence.gathered

    def exported(self) -> dict[tuple[str, ...], float]:
        """The samples of its gauges, by name and values of labels."""
        return {
            (sample.name.removeprefix("streammetrics_"), *sample.labels.values()): sample.value
            for family in self.registry.collect()
            for sample in family.samples
        }


async def group(*, behind_ms: int | None = 0, **changes: Any) -> tuple[Worker, Worker]:
    """Two workers that have read everything; the first owns partition 0."""
    store = AskedStore()
    one = await Worker(store, **changes).own(0)
    two = await Worker(store, **changes).own(1, 2)
    for worker in (one, two):
        await worker.take(sent())
    await two.beat(behind_ms)
    return one, two


async def test_evidence_is_that_of_all_records_of_the_log() -> None:
    """Whatever partition they are in, and whoever owns it; an agent that repeats itself shows."""
    one, two = await group()

    told = [await worker.told() for worker in (one, two)]

    expected = values(of_the_log(EVENTS, NOW))
    assert [gathered and gathered.minute for gathered in told] == [NOW, NOW]
    assert [values(gathered.stands) for gathered in told if gathered] == [expected, expected]
    assert expected["first", "srr"][0][1] > 1 > expected["second", "srr"][0][0]


@pytest.mark.parametrize("seed", range(3))
async def test_partitions_may_be_read_in_any_order(seed: int) -> None:
    """And in parts, with restarts and other owners in between, and looks at what is there."""
    rng, store = Random(seed), AskedStore()
    left = {number: [r for r in sent() if r[0] == number] for number in range(PARTITIONS)}
    reader = await Worker(store).own(0)
    while any(left.values()):
        number = rng.choice([n for n, records in left.items() if records])
        taken, left[number] = left[number][:60], left[number][60:]
        worker = reader if number in reader.owned else await Worker(store).own(number)
        await worker.take(taken)
        await worker.beat()
        if rng.random() < 0.3:
            await reader.told()
        if rng.random() < 0.3:
            reader = await Worker(store).own(0, *(n for n in reader.owned if rng.random() < 0.5))
    for number in range(1, PARTITIONS):
        if number not in reader.owned:
            await (await Worker(store).own(number)).beat()
    reader.now_ms += 60_000  # a minute is told of once

    told = await reader.told()

    assert told is not None
    assert values(told.stands) == values(of_the_log(EVENTS, told.minute))


async def test_whoever_takes_partition_0_over_tells_the_same() -> None:
    """It has nothing but the state; there is nothing else to be lost with a worker."""
    one, two = await group()
    before = await one.told()

    after = await (await Worker(two.store).own(0, 1, 2)).told()

    assert before is not None
    assert after is not None
    assert values(after.stands) == values(before.stands)


async def test_only_the_owner_of_partition_0_exports() -> None:
    """And whoever is not any more stops."""
    one, two = await group()
    first = 0

    async def run(worker: Worker) -> None:
        await worker.evidence.run(worker.gauges, lambda: first in worker.owned)

    running = [asyncio.create_task(run(worker)) for worker in (one, two)]
    await wait_until(lambda: one.exported(), 30, "nothing is exported")
    exported = one.exported()
    assert two.exported() == {}
    assert exported["evidence_timestamp_seconds",] == NOW_MS / 1000
    stands = of_the_log(EVENTS, NOW)["first"]["srr"]
    assert stands.evidence is not None
    assert exported["evidence", "first", "srr", "up", "small"] == stands.evidence[0]
    assert exported["evidence", "first", "srr", "up", "large"] == stands.evidence[1]
    assert exported["arrived_ratio", "first", "srr"] == stands.ratio
    assert exported["evidence", "first", "results", "down", "small"] >= 0

    first = 1
    await wait_until(lambda: two.exported() and not one.exported(), 30, "the gauge does not move")
    assert two.exported() == exported
    for task in running:
        task.cancel()


async def test_a_minute_is_told_once_all_partitions_are_read_up_to_its_end() -> None:
    """A lag of half a minute holds it back; more than two minutes do not, but are told."""
    one, two = await group(behind_ms=30_000)
    told = await one.told()
    assert told is not None
    assert (told.minute, told.late) == (NOW - 1, ())
    assert values(told.stands) == values(of_the_log(EVENTS, NOW - 1))

    one.now_ms += 60_000
    one.behind_ms[0] = 600_000
    await two.beat(0)
    told = await one.told()
    assert told is not None
    assert (told.minute, told.late) == (NOW + 1, (0,))


async def test_a_partition_without_a_living_worker_does_not_hold_minutes_back() -> None:
    """What was read of it counts, and the others go on."""
    one, two = await group()
    two.store.clock = lambda: int(1e15)  # the last heartbeat was long ago

    told = await one.told()

    assert told is not None
    assert (told.minute, told.late) == (NOW, (1, 2))
    assert values(told.stands) == values(of_the_log(EVENTS, NOW))


async def test_hours_that_have_not_changed_are_not_read_again() -> None:
    """A worker asks once a minute for what all of them read."""
    one, two = await group()
    await one.told()
    assert {number for number, _ in two.store.read} == {1, 2}
    assert len(two.store.read) == 2 * 4  # hours

    two.store.read.clear()
    number, record = next(one for one in reversed(sent()) if one[0] == 1)
    new = json.loads(record.value or b"") | {"event_id": "new", "conversation_id": "new"}
    value, offset = json.dumps(new).encode(), record.offset + 1
    await two.take([(number, Record(value, b"new", record.timestamp_ms, TOPIC, 0, offset))])
    one.now_ms += 60_000
    await one.told()

    assert [place for place, _ in two.store.read] == [1]


async def test_without_all_partitions_nothing_is_told() -> None:
    """Why is known, and what was told before stands with the time that it is of."""
    store = AskedStore()
    one = await Worker(store).own(0)
    assert await one.told() is None
    assert one.evidence.problem == "partitions 1-2: not read yet"

    two = await Worker(store).own(1, 2)
    await two.beat()
    told = await one.told()
    assert told is not None

    store.gone = True
    one.now_ms += 600_000
    assert await one.told() is told
    assert one.evidence.problem == "the store does not answer"


async def test_minutes_that_do_not_fit_are_refused() -> None:
    """Nothing is told of some of them only."""
    one, _ = await group(held_bytes=1_000)

    assert await one.told() is None
    assert one.evidence.problem.endswith(": minutes of arrival take more than 1,000 bytes")


async def test_a_worker_that_knows_no_lag_tells_nothing_yet() -> None:
    """It may have hours to read; of others it is taken that they do."""
    one, _ = await group(behind_ms=None)
    one.behind_ms[0] = None

    assert await one.told() is None
    assert one.evidence.problem == "it is not known yet how many records are left to read"


async def test_a_clock_that_is_set_back_does_not_keep_evidence_as_it_was() -> None:
    """It would stand still until the clock is there again, with a time that looks new."""
    one, _ = await group()
    one.now_ms += 3_600_000
    told = await one.told()
    assert told is not None
    assert told.minute == NOW + 60

    one.now_ms = NOW_MS
    told = await one.told()

    assert told is not None
    assert (told.minute, values(told.stands)) == (NOW, values(of_the_log(EVENTS, NOW)))
