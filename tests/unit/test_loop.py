"""The worker's loop over scripted brokers: what it exports, releases and halts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from aiokafka import TopicPartition
from msgspec import structs

from stream_metrics.clients.kafka.errors import UnreadableBatch
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.ports import PartitionState, Position
from tests.simulation.system import PARTITIONS, TOPICS, Process, System


def numbers(process: Process) -> list[int]:
    """The partitions whose windows a worker shows."""
    return sorted(partition.number for partition in process.loop.partitions)


async def taken_away() -> tuple[System, Process, Process]:
    """A system, a worker that does not know yet that another has all, and that other."""
    system = System(seed=3)
    before = await system.start()
    system.rebalance()
    system.produce(20)
    await system.act(before, "read")
    owner = await system.start()
    system.brokers.rebalance([owner.client], unaware=[before.client])
    await system.act(owner, "read")
    assert len(owner.loop.partitions) == PARTITIONS
    return system, before, owner


async def test_a_fenced_worker_exports_no_partition_that_others_may_own() -> None:
    """One refused write shows that the group has reassigned its partitions; its windows are
    exported again only after the brokers have confirmed ownership."""
    system, before, owner = await taken_away()

    for _ in range(50):
        system.produce(1)
        await before.loop.turn()
        if len(before.loop.partitions) < PARTITIONS:
            break

    assert before.loop.partitions == []
    assert len(owner.loop.partitions) == PARTITIONS
    assert not system.breaches


async def test_a_fenced_worker_continues_with_its_own_partitions() -> None:
    """Once the brokers have answered, it exports and reads them."""
    system, before, owner = await taken_away()
    system.produce(20)
    await before.loop.turn()

    system.rebalance()
    for process in (before, owner, before, owner):
        await system.act(process, "read")

    shown = [number for process in (before, owner) for number in numbers(process)]
    assert sorted(shown) == list(range(PARTITIONS))
    assert numbers(before)
    assert not system.breaches


@pytest.mark.parametrize("over_kafka", [False, True])
async def test_a_worker_that_may_not_read_exports_what_it_has(over_kafka: bool) -> None:
    """It reads nothing, even from new partitions, and gives the reason; afterwards it continues,
    and its figures are those of one pass."""
    system = System(seed=3, over_kafka=over_kafka)
    worker = await system.start()
    system.rebalance()
    system.produce(100)
    await system.act(worker, "read")
    before = [partition.positions for partition in worker.loop.partitions]

    worker.state.stopped = "no room"
    await system.act(worker, "read")
    await system.act(worker, "look after")
    system.rebalance()
    await system.act(worker, "read")
    assert numbers(worker) == list(range(PARTITIONS))
    assert [partition.positions for partition in worker.loop.partitions] == before
    assert worker.health.reasons["reading"] == "no room"

    worker.state.stopped = None
    await system.settle()
    await system.check()
    assert worker.health.reasons == {}


async def reading(*, over_kafka: bool = False) -> tuple[System, Process]:
    """A worker that has read some records of every log."""
    system = System(seed=3, over_kafka=over_kafka)
    worker = await system.start()
    system.rebalance()
    system.produce(60)
    for _ in range(10):
        await system.act(worker, "read")
    return system, worker


async def test_an_unreadable_batch_halts_only_its_partition() -> None:
    """The reason says why; the others continue, and a rebalance tries it again."""
    system, worker = await reading(over_kafka=True)
    place = TopicPartition(TOPICS[0], 0)
    error = UnreadableBatch(place.topic, 0, system.brokers.ends[place], "is too large")
    system.brokers.unreadable[place] = system.brokers.ends[place], error
    system.produce(1_000)
    worker.client.max_records = 1_000
    for _ in range(3):
        await system.act(worker, "read")
        await system.act(worker, "look after")

    assert numbers(worker) == [1]
    assert worker.health.reasons == {"partition-0": error.message}
    assert worker.health.ready
    offsets = (await system.store.describe(1)).positions
    assert all(offsets[t].offset == system.brokers.ends[TopicPartition(t, 1)] for t in TOPICS)

    system.brokers.unreadable.clear()
    await system.settle()
    await system.check()
    assert worker.health.reasons == {}


@pytest.mark.parametrize("over_kafka", [False, True])
async def test_a_recreated_topic_halts_the_partition(over_kafka: bool) -> None:
    """It has as many records as before.

    A new owner reads the last one again, sees that it differs, and changes nothing until an
    operator decides.
    """
    system, worker = await reading(over_kafka=over_kafka)
    before = (await system.store.describe(0)).positions
    [topic] = [topic for topic in TOPICS[:1] if before[topic].last_digest]
    log = system.brokers.logs[TopicPartition(topic, 0)]
    last = log[before[topic].offset - 1]
    assert last is not None
    log[before[topic].offset - 1] = structs.replace(last, value=b"{}")

    system.rebalance()
    for _ in range(3):
        await system.act(worker, "read")
        await system.act(worker, "look after")

    assert numbers(worker) == [1]
    assert "is not the one that was read there" in worker.health.reasons["partition-0"]
    assert (await system.store.describe(0)).positions == before
    assert not worker.loop.status(frozenset()).behind.get((0, topic)), "it is held, not stuck"


async def test_deleted_records_halt_the_partition() -> None:
    """The log begins after the offset that the state needs, and the policy is to halt."""
    system, worker = await reading()
    system.produce(1_000)
    place = TopicPartition(TOPICS[0], 0)
    system.brokers.firsts[place] = system.brokers.ends[place]

    system.rebalance()
    await system.act(worker, "read")

    assert numbers(worker) == [1]
    assert "records were deleted before they were read" in worker.health.reasons["partition-0"]


class DamagedOnceClaimed(MemoryStore):
    """A store in which partition 0 is damaged right after somebody has claimed it."""

    damaged = False

    async def claim(
        self, partition: int, token: bytes, start: Mapping[str, Position]
    ) -> PartitionState:
        """See ``StateStore.claim``."""
        state = await super().claim(partition, token, start)
        self.damaged = self.damaged or partition == 0
        return state

    async def describe(self, partition: int) -> PartitionState:
        """See ``StateStore.describe``."""
        if self.damaged and partition == 0:
            raise DamagedState("offsets")
        return await super().describe(partition)


async def test_damage_during_a_take_over_halts_only_its_partition() -> None:
    """The worker goes on with the others, even if the damage comes after the claim."""
    system = System(seed=3, store=DamagedOnceClaimed())
    worker = await system.start()
    system.rebalance()
    system.produce(20)

    await system.act(worker, "read")

    assert numbers(worker) == [1]
    assert "its state in Redis is damaged" in worker.health.reasons["partition-0"]
