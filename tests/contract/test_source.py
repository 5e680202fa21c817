"""What the worker's loop relies on in every source: the simulation's, aiokafka's and a file's.

Only the first two share their logs with other members of a group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from stream_metrics.clients.kafka.records import record_of
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events.record import Extent
from stream_metrics.live.health import Health
from stream_metrics.live.kafka.cluster import Group
from stream_metrics.live.kafka.group_source import KafkaSource
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.log import Entry, Log
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.tables import TOPICS
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


def filled(*, partitions: int = 2, records: int = 3, marked: bool = True) -> Brokers:
    """Brokers with some records in each partition, and after them the marker of a transaction."""
    brokers = Brokers([TOPIC], partitions)
    for place in brokers.logs:
        for number in range(records):
            brokers.append(place, b"k", b"{}", NOW_MS + number)
        if marked:
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


class Reading(NamedTuple):
    """A source that was assigned two logs, each with three records."""

    source: CommittedSource
    first: PartitionId
    second: PartitionId


@pytest_asyncio.fixture(params=["scripted", "over_kafka", "in_a_file"])
async def reading(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reading]:
    """Each kind of source."""
    if request.param != "in_a_file":
        make = scripted if request.param == "scripted" else over_kafka
        _, source = await joined(make, filled(marked=False))
        yield Reading(source, FIRST, SECOND)
        return
    database = Database(tmp_path / "log.db")
    log = Log(database)
    for topic in TOPICS:
        for number in range(3):
            await log.append(topic, [Entry(b"k", b"{}")], NOW_MS + number)
    retry = ImmediateRetry(Health(), lambda: None)
    local = LocalSource(log, "group", TOPICS, retry, wait_seconds=0, hand_over=True)
    await local.join()
    yield Reading(local, *(PartitionId(topic, 0) for topic in TOPICS))
    await database.close()


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


async def test_nothing_is_read_before_a_seek(reading: Reading) -> None:
    """This holds at first, and after reading was stopped."""
    source, first, second = reading
    assert offsets(await source.poll()) == {}

    assert source.read_from({first: 1, second: 0})
    source.stop_reading([second])
    assert offsets(await source.poll()) == {first: [1, 2]}

    source.stop_reading([first])
    assert source.read_from({second: 2})
    assert offsets(await source.poll()) == {second: [2]}


async def test_positions_are_those_after_the_last_record(reading: Reading) -> None:
    """A log that is not read has none."""
    source, first, second = reading
    source.read_from({first: 0})

    await source.poll()

    assert await source.passed([first, second]) == {first: 3}


@EACH
async def test_nothing_is_read_after_a_rebalance(make: Make) -> None:
    """The state may have been read further by another member."""
    brokers = filled()
    member, source = await joined(make, brokers)
    source.read_from({FIRST: 0})

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


async def test_commits_are_returned_with_their_metadata(reading: Reading) -> None:
    """Partitions that nobody owns are included; partitions without a commit are left out."""
    source, first, second = reading
    await source.confirm({first: Commit(2, "a note")})
    assert await source.committed([first, second]) == {first: Commit(2, "a note")}

    await source.commit_for_all({second: Commit(0)})

    assert await source.committed([first, second, PartitionId(first.topic, 7)]) == {
        first: Commit(2, "a note"),
        second: Commit(0),
    }


async def test_a_seek_resets_the_acknowledged_commit(reading: Reading) -> None:
    """After a seek the next commit is sent, even if the same offset was acknowledged before."""
    source, first, second = reading
    source.read_from({first: 0, second: 0})

    await source.commit({first: Commit(1), second: Commit(2)})
    source.read_from({first: 0})

    assert source.acknowledged == {second: Commit(2)}


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


async def test_extents_and_times_of_logs_are_returned(reading: Reading) -> None:
    """Start and end offsets, the first offset after a given time, and the timestamp there."""
    source, first, second = reading

    assert await source.extents([first, second]) == dict.fromkeys((first, second), Extent(0, 3))
    assert await source.ends([second]) == {second: 3}
    assert await source.ends([]) == {}
    assert await source.first_since({first: NOW_MS + 2, second: NOW_MS + 9}) == {first: 2}
    assert await source.time_at(first, Extent(1, 3)) == NOW_MS + 1
    assert await source.time_at(first, Extent(3, 3)) is None
    assert source.shows_all(first)


@EACH
async def test_a_log_may_begin_later(make: Make) -> None:
    """Records were deleted, and a transaction's marker has neither time nor content."""
    brokers = filled()
    brokers.firsts[TopicPartition(*FIRST)] = 1
    _, source = await joined(make, brokers)

    assert await source.partition_counts() == {TOPIC: 2}
    assert await source.extents([FIRST, SECOND]) == {FIRST: Extent(1, 4), SECOND: Extent(0, 4)}
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
