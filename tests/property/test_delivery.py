"""The promise of docs/concepts/delivery.md holds under any sequence of faults.

A few seeds run by default; ``make test-all`` runs more, as its hypothesis profile says.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from aiokafka import TopicPartition
from msgspec import structs

from stream_metrics.live.worker import lag
from stream_metrics.live.worker.source import PartitionId
from tests.helpers import examples, rest_long
from tests.simulation.faults import KINDS
from tests.simulation.schedule import DAY_MS, play, system_of
from tests.simulation.sources import ScriptedSource
from tests.simulation.system import PARTITIONS, System

SEEDS = 25
MORE_SEEDS = examples(100)
SEEN_WITHIN = 50  # seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", rest_long(range(SEEDS + MORE_SEEDS), SEEDS))
def test_figures_are_those_of_one_pass_despite_faults(seed: int) -> None:
    """Crashes, rebalances, lost answers, rollbacks and wrong clocks occur in any order and mix."""
    system, actions = system_of(seed)

    asyncio.run(play(system, actions))


@pytest.mark.long
def test_the_schedules_cover_every_fault() -> None:
    """In a few seeds workers die at every call, writes are refused, and conversations expire."""
    seen: Counter[str] = Counter()
    for seed in range(SEEN_WITHIN):
        system, actions = system_of(seed)
        asyncio.run(play(system, actions))
        seen += system.seen

    calls = {"load", "write", "claim", "describe", "layout", "send", "by_age"}
    wanted = {"Written", "Fenced", "Moved", "expired", "store went back", *KINDS}
    assert wanted | {f"died at {call}" for call in calls} <= seen.keys()


async def test_only_a_partition_assigned_for_some_topics_is_halted() -> None:
    """It is not started, the worker reports why, and its other state partitions continue."""
    system = System(seed=1)
    worker = await system.start()
    system.rebalance()
    system.produce(100)
    worker.client.due.remove(TopicPartition("labels", 0))
    system.brokers.generation += 1
    worker.client.notice()

    await system.act(worker, "read")

    assert [partition.number for partition in worker.loop.partitions] == [1]
    assert worker.health.reasons["partition-0"] == "assigned for some of the input topics only"


async def test_reading_stops_when_partitions_are_added() -> None:
    """A conversation may continue on another partition. Workers keep exporting their state and
    report why they do not read, and no worker starts a state partition with a new number."""
    system = System(seed=1)
    worker = await system.start()
    system.rebalance()
    system.produce(60)
    await system.act(worker, "read")
    read = [(await system.store.describe(number)).positions for number in range(PARTITIONS)]

    system.brokers.add_partition()
    system.rebalance()
    system.produce(60)
    for what in ("read", "read", "look after", "read"):
        await system.act(worker, what)

    now = [(await system.store.describe(number)).positions for number in range(PARTITIONS)]
    assert now == read
    assert await system.store.partitions() == list(range(PARTITIONS))
    assert sorted(partition.number for partition in worker.loop.partitions) == [0, 1]
    assert "figures do not change" in worker.health.reasons["partitions"]


async def test_reading_pauses_while_the_worker_is_stopped() -> None:
    """Exported series stay, and reading resumes at the same offset afterwards."""
    system = System(seed=1)
    worker = await system.start()
    system.rebalance()
    system.produce(60)
    worker.state.stopped = "Redis is full"
    for _ in range(3):
        await system.act(worker, "read")
    waited = [(await system.store.describe(number)).positions for number in range(PARTITIONS)]
    shown = len(worker.loop.partitions)
    reason = worker.health.reasons.get("reading")
    worker.state.stopped = None
    await system.settle()

    assert {position.offset for held in waited for position in held.values()} == {0}
    assert (shown, reason, "reading" in worker.health.reasons) == (2, "Redis is full", False)
    await system.check()


async def reading_a_backlog(*, wild: bool) -> System:
    """A worker in a backlog of three days; if ``wild``, each log's first timestamp is now."""
    system = System(seed=1, ttl_ms=600_000)
    system.produce(1_000)
    system.now_ms += 3 * DAY_MS
    for log in system.brokers.logs.values():
        at = next(n for n, record in enumerate(log) if record is not None)
        first = log[at]
        if wild and first is not None:
            log[at] = structs.replace(first, timestamp_ms=system.now_ms)
    worker = await system.start()
    system.rebalance()
    source, places = worker.client, [PartitionId(*place) for place in system.brokers.logs]
    assert isinstance(source, ScriptedSource)
    source.max_records = 0
    await system.act(worker, "read")  # takes over
    shortest = min(system.brokers.ends.values())
    source.max_records = shortest // 4
    for source.only in 3 * places:
        await system.act(worker, "read")
        await system.act(worker, "look after")
    assert max((await source.passed(places)).values()) < shortest
    return system


async def test_one_wrong_timestamp_in_a_backlog_expires_nothing() -> None:
    """Unread records may belong to known conversations, even if one producer's clock is wrong."""
    system = await reading_a_backlog(wild=True)

    assert system.seen["expired"] == 0


async def test_conversations_expire_during_a_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once enough later records were read, older conversations expire, so that the store never has
    to hold a whole backlog."""
    monkeypatch.setattr(lag, "MIN_TIMESTAMPS", 5)

    system = await reading_a_backlog(wild=False)

    assert system.seen["expired"] > 0
