"""The input topics as the copying group reads them, over scripted brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    KafkaConnectionError,
    KafkaError,
    OffsetOutOfRangeError,
)
from prometheus_client import CollectorRegistry

from stream_metrics.cli.runtime import REPARTITION, REPARTITION_WAITING
from stream_metrics.clients.kafka.errors import UnreadableBatch
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events import Limits
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.record import Record
from stream_metrics.live.health import Health
from stream_metrics.live.kafka.repartition import input_source
from stream_metrics.live.memory import MemoryDeadLetters
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.inputs import ASK_SECONDS, CommittedInputs, InputOptions
from stream_metrics.live.worker.repartition import Repartitioner, route
from stream_metrics.live.worker.retry import ComponentReasons
from stream_metrics.live.worker.watchdog import ROUNDS, Watchdog
from tests.simulation.brokers import Brokers, ScriptedCluster, ScriptedConsumer
from tests.simulation.system import ImmediateRetry

NOW_MS = 1_718_020_800_000
TOPIC = "events"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class Copying:
    """A worker that copies, with its results."""

    def __init__(self, brokers: Brokers, **settings: Any) -> None:
        self.brokers = brokers
        self.client = ScriptedConsumer(brokers)
        self.health = Health(reasons={})
        self.copied: list[tuple[int, int]] = []
        reasons = ComponentReasons(REPARTITION, self.health)
        retry = ImmediateRetry(reasons, lambda: None)
        chosen = KafkaSettings(topics=brokers.topics, repartition_topic="internal", **settings)
        cluster = ScriptedCluster(brokers, self.client)
        self._seconds = 0.0
        self.inputs = CommittedInputs(
            input_source(chosen, cluster, retry, reasons),
            InputOptions("internal", chosen.on_offset_gap, chosen.start),
            retry,
            reasons,
            Operations(CollectorRegistry(), brokers.topics),
            Clock(lambda: NOW_MS),
            monotonic=lambda: self._seconds,
        )
        self._repartitioner = Repartitioner(
            self.inputs, self, MemoryDeadLetters(), partial(route, limits=Limits()), retry, self
        )

    async def turn(self, rounds: int = 1) -> None:
        """Run some rounds, each with answers from the brokers."""
        for _ in range(rounds):
            self._seconds += ASK_SECONDS
            await self._repartitioner.turn()

    async def send(self, records: Sequence[Record]) -> None:
        """See ``Internal``."""
        for record in records:
            assert record.origin is not None
            self.copied.append((record.origin.partition, record.origin.offset))

    def bad_records(self, counts: Counter[str]) -> None:
        """Ignore."""

    def bug(self, bug: Bug) -> None:
        """Ignore."""

    def repartitioned(self, counts: Counter[str]) -> None:
        """Ignore."""

    def committed(self, place: TopicPartition) -> int:
        """The committed offset of the group."""
        return int(self.brokers.commits[place].offset)


def fill(brokers: Brokers, place: TopicPartition, records: int) -> None:
    """Produce some records at the end of a partition."""
    for n in range(records):
        brokers.append(place, b"k", b'{"conversation_id": "c"}', NOW_MS + n)
    brokers.produce(records)


async def copying(brokers: Brokers, **settings: Any) -> Copying:
    """The group's only worker, before its first round."""
    made = Copying(brokers, **settings)
    await made.turn()
    brokers.rebalance([made.client])
    return made


def unreadable() -> UnreadableBatch:
    """The error for a batch that is too large."""
    return UnreadableBatch(TOPIC, 1, 1, "is larger than 5 bytes decompressed")


@pytest.mark.parametrize("error", [unreadable(), CorruptRecordException("CRC")], ids=repr)
async def test_an_error_of_one_partition_loses_nothing_of_another(error: KafkaError) -> None:
    """Records of other partitions that the client had fetched are fetched again, and no commit
    skips them."""
    brokers = Brokers([TOPIC], 2)
    fill(brokers, FIRST, 3)
    fill(brokers, SECOND, 2)
    brokers.unreadable[SECOND] = (1, error)
    worker = await copying(brokers)

    await worker.turn()
    assert brokers.commits[FIRST].offset <= len(worker.copied)

    del brokers.unreadable[SECOND]
    await worker.turn(2)
    fill(brokers, FIRST, 2)
    await worker.turn()

    assert [offset for number, offset in worker.copied if number == 0] == [0, 1, 2, 3, 4]
    assert worker.committed(FIRST) == 5


async def test_a_batch_that_cannot_be_decompressed_halts_only_its_partition() -> None:
    """The reason names its partition, nothing after it is committed, and the others are copied."""
    brokers = Brokers([TOPIC], 2)
    fill(brokers, FIRST, 3)
    fill(brokers, SECOND, 2)
    brokers.unreadable[SECOND] = (1, unreadable())
    worker = await copying(brokers)

    await worker.turn(3)
    fill(brokers, FIRST, 1)
    await worker.turn()

    assert worker.health.reasons == {f"{REPARTITION}_{TOPIC}-1": unreadable().message}
    assert worker.health.ready
    assert worker.committed(FIRST) == 4
    assert SECOND not in brokers.commits or worker.committed(SECOND) <= 1
    assert [offset for number, offset in worker.copied if number == 0] == [0, 1, 2, 3]
    assert not any(worker.inputs.status(frozenset()).behind.values()), "it is held, not stuck"


async def test_records_that_cannot_be_fetched_trigger_the_watchdog() -> None:
    """A wrong checksum has its own reason, which is no wait for Kafka.

    The watchdog sees the lag and considers copying stuck until the records come.
    """
    brokers = Brokers([TOPIC], 1)
    worker = await copying(brokers)
    await worker.turn(2)
    fill(brokers, FIRST, 2)
    brokers.unreadable[FIRST] = (0, CorruptRecordException("CRC"))
    watchdog = Watchdog(60.0)

    def look(now: float) -> str | None:
        waiting = REPARTITION_WAITING & worker.health.reasons.keys()
        return watchdog.check(now, worker.inputs.status(waiting))

    await worker.turn()
    assert look(0.0) is None
    await worker.turn(ROUNDS)
    assert "no progress" in str(look(61.0))
    assert "CorruptRecordException" in worker.health.reasons[f"{REPARTITION}_fetch"]

    brokers.unreadable.clear()
    await worker.turn()
    assert look(62.0) is None
    assert worker.health.reasons == {}
    assert worker.copied == [(0, 0), (0, 1)]


async def test_a_new_group_starts_at_the_ends_of_the_logs() -> None:
    """With `kafka.start` latest, records older than the group are not copied."""
    brokers = Brokers([TOPIC], 2)
    fill(brokers, FIRST, 3)
    worker = await copying(brokers, start="latest")
    await worker.turn(2)
    fill(brokers, FIRST, 1)
    fill(brokers, SECOND, 1)
    await worker.turn()

    assert worker.copied == [(0, 3), (1, 0)]


async def test_added_partitions_are_copied_from_their_first_record() -> None:
    """A group that started at the ends reads a partition added later from its start, including
    records from before it saw the partition, also after a restart."""
    brokers = Brokers([TOPIC], 1)
    fill(brokers, FIRST, 3)
    worker = await copying(brokers, start="latest")
    await worker.turn(2)
    brokers.add_partition()
    fill(brokers, SECOND, 2)

    brokers.rebalance([worker.client])
    await worker.turn(2)
    assert worker.copied == [(1, 0), (1, 1)]
    fill(brokers, SECOND, 1)
    again = Copying(brokers, start="latest")
    await again.turn()
    brokers.rebalance([again.client])
    await again.turn(2)
    assert again.copied == [(1, 2)]


async def test_members_of_a_new_group_share_one_start() -> None:
    """One member determines it for all.

    A later one neither skips newer records nor starts earlier.
    """
    brokers = Brokers([TOPIC], 2)
    fill(brokers, SECOND, 3)
    early, late = Copying(brokers, start="latest"), Copying(brokers, start="latest")
    for member in (early, late):
        await member.turn()
    brokers.rebalance([early.client, late.client])

    await late.turn(3)
    assert not brokers.commits, "the first partition is not its own"
    await early.turn()
    fill(brokers, SECOND, 2)
    await late.turn(2)

    assert late.copied == [(1, 3), (1, 4)]
    assert late.health.reasons == {}


async def test_partitions_revoked_while_starts_are_determined_are_not_copied() -> None:
    """If brokers become unreachable and a rebalance begins, nothing is read until it has ended."""
    brokers = Brokers([TOPIC], 2)
    fill(brokers, FIRST, 3)
    worker = Copying(brokers)
    await worker.turn()
    brokers.rebalance([worker.client])
    client: Any = worker.client
    ends = client.end_offsets

    async def fails_once(places: Any) -> Any:
        client.end_offsets = ends
        client.revoke()
        raise KafkaConnectionError

    client.end_offsets = fails_once

    await worker.turn()

    assert worker.copied == []
    assert brokers.commits == {}


async def test_an_offset_that_stays_out_of_range_is_reported() -> None:
    """If the log's bounds contradict the broker's error, the reason names it, and each round
    pauses."""
    brokers = Brokers([TOPIC], 2)
    fill(brokers, FIRST, 3)
    worker = await copying(brokers)

    async def refuses(**_: Any) -> Any:
        raise OffsetOutOfRangeError({FIRST: 0})

    client: Any = worker.client
    client.getmany = refuses

    await worker.turn(2)

    assert "OffsetOutOfRangeError" in worker.health.reasons[f"{REPARTITION}_fetch"]
