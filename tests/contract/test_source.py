"""What the worker's loop relies on in every source: the simulation's and aiokafka's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from stream_metrics.clients.kafka.records import record_of
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events.record import Extent
from stream_metrics.live.health import Health
from stream_metrics.live.kafka.cluster import Group
from stream_metrics.live.kafka.group_source import KafkaSource
from stream_metrics.live.worker.inputs import CommittedSource
from stream_metrics.live.worker.source import Commit, Fetched, PartitionId
from tests.simulation.brokers import Brokers, Member, ScriptedCluster, ScriptedConsumer
from tests.simulation.sources import ScriptedSource
from tests.simulation.system import ImmediateRetry

TOPIC = "events"
FIRST, SECOND = PartitionId(TOPIC, 0), PartitionId(TOPIC, 1)
NOW_MS = 1_718_020_800_000

Make = Callable[[Brokers], tuple[Member, CommittedSource]]


def scripted(brokers: Brokers) -> tuple[Member, CommittedSource]:
    """The source of the simulation."""
    source = ScriptedSource(brokers)
    return source, source


def over_kafka(brokers: Brokers) -> tuple[Member, CommittedSource]:
    """The source over aiokafka, with a scripted client."""
    client, health = ScriptedConsumer(brokers), Health()

    async def counts() -> dict[str, int]:
        return dict.fromkeys(brokers.topics, brokers.partitions)

    return client, KafkaSource(
        KafkaSettings(topics=(TOPIC,)),
        ScriptedCluster(brokers, client),
        Group("group", (TOPIC,), RangePartitionAssignor),
        counts,
        partial(record_of, internal_topic=None),
        ImmediateRetry(health, lambda: None),
        health,
    )


EACH = pytest.mark.parametrize("make", [scripted, over_kafka])


def filled(*, partitions: int = 2, records: int = 3) -> Brokers:
    """Brokers with some records in each partition, and a transaction marker after them."""
    brokers = Brokers([TOPIC], partitions)
    for place in brokers.logs:
        for number in range(records):
            brokers.append(place, b"k", b"{}", NOW_MS + number)
        brokers.mark(place, NOW_MS)
    brokers.produce(partitions * (records + 1))
    return brokers


async def joined(make: Make, brokers: Brokers) -> tuple[Member, CommittedSource]:
    """The only member of the group, with its assignment."""
    member, source = make(brokers)
    await source.join()
    assert source.assignment is None
    brokers.rebalance([member])
    return member, source


def offsets(fetched: Fetched) -> dict[PartitionId, list[int]]:
    """The offsets of the fetched records."""
    return {place: [r.offset for r in records] for place, records in fetched.records.items()}


@EACH
async def test_a_rebalance_to_the_same_partitions_is_a_new_assignment(make: Make) -> None:
    """Another member may have owned the partitions meanwhile."""
    brokers = filled()
    member, source = await joined(make, brokers)
    before = source.assignment

    brokers.rebalance([member])

    assert before is not None
    assert source.assignment is not None
    assert source.assignment.places == before.places == {FIRST, SECOND}
    assert source.assignment is not before


@EACH
async def test_nothing_is_read_before_a_seek(make: Make) -> None:
    """This holds at first, after a rebalance, and after reading was stopped."""
    brokers = filled()
    member, source = await joined(make, brokers)
    assert offsets(await source.poll()) == {}

    assert source.read_from({FIRST: 1, SECOND: 0})
    source.stop_reading([SECOND])
    assert offsets(await source.poll()) == {FIRST: [1, 2]}

    brokers.rebalance([member])
    assert offsets(await source.poll()) == {}
    assert source.read_from({SECOND: 2})
    assert offsets(await source.poll()) == {SECOND: [2]}


@EACH
async def test_positions_include_transaction_markers(make: Make) -> None:
    """A marker after the last record is passed; a partition that is not read has no position."""
    _, source = await joined(make, filled())
    source.read_from({FIRST: 0})

    await source.poll()

    assert await source.passed([FIRST, SECOND]) == {FIRST: 4}


@EACH
async def test_a_revoked_partition_is_not_read(make: Make) -> None:
    """A take-over may continue after the group has reassigned partitions: it is not confirmed,
    nothing is read, and the new assignment stays."""
    brokers = filled()
    member, source = await joined(make, brokers)
    other, another = make(brokers)
    await another.join()
    brokers.rebalance([member, other])
    assignment = source.assignment

    assert not await source.confirm({SECOND: Commit(0)})
    assert not source.read_from({SECOND: 0})

    assert assignment is not None
    assert assignment.places == {FIRST}
    assert source.assignment is assignment
    assert offsets(await source.poll()) == {}


@EACH
async def test_a_member_of_an_older_generation_has_no_assignment(make: Make) -> None:
    """Its commit is refused, changes nothing, and leaves it without an assignment."""
    brokers = filled()
    member, source = await joined(make, brokers)
    brokers.rebalance([member], unaware=[member])

    assert not await source.confirm({FIRST: Commit(1)})
    assert source.assignment is None
    assert await source.committed([FIRST]) == {}

    member.notice()
    assert await source.confirm({FIRST: Commit(1)})


@EACH
async def test_commits_are_returned_with_their_metadata(make: Make) -> None:
    """Partitions that nobody owns are included; partitions without a commit are left out."""
    _, source = await joined(make, filled())

    await source.confirm({FIRST: Commit(2, "a note")})
    await source.commit_for_all({SECOND: Commit(0)})

    assert await source.committed([FIRST, SECOND, PartitionId(TOPIC, 7)]) == {
        FIRST: Commit(2, "a note"),
        SECOND: Commit(0),
    }


@EACH
async def test_a_seek_resets_the_acknowledged_commit(make: Make) -> None:
    """After a seek the next commit is sent, even if the same offset was acknowledged before."""
    _, source = await joined(make, filled())
    source.read_from({FIRST: 0, SECOND: 0})

    await source.commit({FIRST: Commit(1), SECOND: Commit(2)})
    source.read_from({FIRST: 0})

    assert source.acknowledged == {SECOND: Commit(2)}


@EACH
async def test_a_refused_commit_is_not_acknowledged(make: Make) -> None:
    """A commit is a hint: nothing else happens."""
    brokers = filled()
    member, source = await joined(make, brokers)
    brokers.rebalance([member], unaware=[member])
    assignment = source.assignment

    await source.commit({FIRST: Commit(1)})

    assert source.acknowledged == {}
    assert source.assignment is assignment


@EACH
async def test_extents_and_times_of_logs_are_returned(make: Make) -> None:
    """Start and end offsets, the first offset after a given time, and the timestamp there."""
    brokers = filled()
    brokers.firsts[TopicPartition(*FIRST)] = 1
    _, source = await joined(make, brokers)

    assert await source.partition_counts() == {TOPIC: 2}
    assert await source.extents([FIRST, SECOND]) == {FIRST: Extent(1, 4), SECOND: Extent(0, 4)}
    assert await source.ends([SECOND]) == {SECOND: 4}
    assert await source.ends([]) == {}
    since = {FIRST: NOW_MS + 2, SECOND: NOW_MS + 9}
    assert await source.first_since(since) == {FIRST: 2}
    assert await source.time_at(FIRST, Extent(1, 4)) == NOW_MS + 1
    assert await source.time_at(FIRST, Extent(3, 4)) is None


@EACH
async def test_an_open_transaction_hides_later_records(make: Make) -> None:
    """The end of such a log is not known."""
    brokers = filled()
    _, source = await joined(make, brokers)
    assert source.shows_all(FIRST)

    brokers.append(TopicPartition(*FIRST), b"k", b"{}", NOW_MS)

    assert not source.shows_all(FIRST)
    assert source.shows_all(SECOND)
