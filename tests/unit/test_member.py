"""One member of a consumer group over aiokafka, with a scripted client.

``tests/contract/test_source.py`` has what every source does.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    CorruptRecordException,
    GroupAuthorizationFailedError,
    GroupLoadInProgressError,
    KafkaConnectionError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from aiokafka.protocol.commit import OffsetFetchResponse_v3

from stream_metrics.clients.kafka.errors import FencedInstance, KafkaRefused
from stream_metrics.clients.kafka.records import record_with_headers
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import TopicsMissing
from stream_metrics.live.health import Health
from stream_metrics.live.kafka.cluster import Cluster, Group
from stream_metrics.live.kafka.group_source import KafkaSource
from stream_metrics.live.ports import Unavailable
from stream_metrics.live.worker.probe import PROBE_SECONDS
from stream_metrics.live.worker.source import (
    Commit,
    Fetched,
    PartitionId,
    RightsMissing,
    SourceUnavailable,
    TopicsUnavailable,
)
from tests.simulation.brokers import Brokers, ScriptedCluster, ScriptedConsumer
from tests.simulation.system import ImmediateRetry

FIRST, SECOND = PartitionId("events", 0), PartitionId("events", 1)
COMMITS = {FIRST: Commit(1)}


async def counts() -> dict[str, int]:
    """The expected partition counts of topics."""
    return {"events": 1}


def source_of(cluster: Cluster, health: Health, ask: Any = counts) -> KafkaSource:
    """A member that has not joined yet."""
    group = Group("group", ("events",), RangePartitionAssignor)
    retry = ImmediateRetry(health, lambda: None)
    source = KafkaSource(KafkaSettings(), cluster, group, ask, record_with_headers, retry, health)
    source.end_commit_within_seconds = source.slow_seconds = 0.01
    return source


class Slow(ScriptedConsumer):
    """A client whose commits wait until they are released."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.commits = 0

    async def commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """Wait, then commit."""
        self.commits += 1
        self.begun.set()
        await self.go_on.wait()
        await super().commit(offsets)


class Shielding(Slow):
    """Like aiokafka, goes on with a commit whose caller is cancelled; then it fails."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self.failed = asyncio.Event()

    async def commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """Fails once it may go on."""
        request = asyncio.create_task(self._fail())
        request.add_done_callback(lambda _: self.failed.set())
        await asyncio.shield(request)

    async def _fail(self) -> None:
        self.begun.set()
        await self.go_on.wait()
        raise UnknownMemberIdError


class Away(ScriptedCluster):
    """Brokers that are unreachable at the first request."""

    reasons: Mapping[str, str]
    seen = ""

    async def check_rights(self) -> None:
        """Fail once."""
        if not self.seen:
            raise KafkaConnectionError("nobody there")
        self.seen = self.reasons["kafka"]

    async def explain(self, error: Exception) -> str:
        """Record and return the error."""
        self.seen = str(error)
        return self.seen


class Unseen(ScriptedConsumer):
    """Like aiokafka, asks on without an error while it does not see the topic."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self.sees = asyncio.Event()

    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends, once it sees the topic."""
        await self.sees.wait()
        return await super().end_offsets(places)


class Checked(ScriptedCluster):
    """A cluster whose client sees the topic once rights were checked, unless one is missing."""

    missing = ""

    async def lacking(self) -> str:
        """See ``Cluster``."""
        if not self.missing:
            self.client.sees.set()
        return self.missing


def filled(partitions: int = 1, records: int = 3) -> Brokers:
    """Brokers with some records in each partition."""
    brokers = Brokers(["events"], partitions)
    for place in brokers.logs:
        for _ in range(records):
            brokers.append(place, b"k", b"{}", 0)
    brokers.produce(partitions * records)
    return brokers


async def reading(client: ScriptedConsumer, brokers: Brokers) -> KafkaSource:
    """A member that reads all partitions from their first records."""
    source = source_of(ScriptedCluster(brokers, client), Health())
    await source.join()
    brokers.rebalance([client])
    assert source.assignment is not None
    assert source.read_from(dict.fromkeys(source.assignment.places, 0))
    return source


def offsets(fetched: Fetched) -> dict[PartitionId, list[int]]:
    """The offsets that were read."""
    return {place: [r.offset for r in records] for place, records in fetched.records.items()}


# -- the group


async def test_joining_is_retried_until_the_brokers_answer() -> None:
    """The reason explains the delay meanwhile."""
    brokers, health = Brokers(["events"], 1), Health()
    cluster = Away(brokers, ScriptedConsumer(brokers))
    cluster.reasons = health.reasons

    await source_of(cluster, health).join()

    assert "cannot connect: " in cluster.seen
    assert "nobody there" in cluster.seen
    assert health.reasons.keys() == {"assignment"}


async def test_a_late_refusal_does_not_revoke_a_later_assignment() -> None:
    """The group may have reassigned before the answer to a commit arrives."""
    brokers = Brokers(["events"], 1)
    client = Slow(brokers)
    source = await reading(client, brokers)
    brokers.rebalance([client], unaware=[client])
    confirmed = asyncio.create_task(source.confirm(COMMITS))
    await client.begun.wait()
    client.notice()
    assignment = source.assignment
    brokers.generation += 1  # so that the commit is refused
    client.go_on.set()

    assert not await confirmed

    assert assignment is not None
    assert source.assignment is assignment


async def test_callbacks_of_a_closed_client_are_ignored() -> None:
    """Its partitions are not those of the next client."""
    brokers = Brokers(["events"], 1)
    left, current = ScriptedConsumer(brokers), ScriptedConsumer(brokers)
    cluster = ScriptedCluster(brokers, left)
    source = source_of(cluster, Health())
    await source.join()
    cluster.client = current
    await source.leave()
    await source.join()
    brokers.rebalance([current])
    assignment = source.assignment

    brokers.rebalance([left])

    assert source.assignment is assignment


# -- commits


async def test_only_one_commit_is_in_flight() -> None:
    """While it is unanswered, no other one is sent, and nothing waits for it."""
    brokers = Brokers(["events"], 1)
    client = Slow(brokers)
    source = await reading(client, brokers)

    first = asyncio.create_task(source.commit(COMMITS))
    await client.begun.wait()
    await source.commit(COMMITS)
    assert client.commits == 1
    assert source.acknowledged == {}

    client.go_on.set()
    await first
    assert source.acknowledged == COMMITS


async def test_leaving_abandons_an_unanswered_commit() -> None:
    """It does not delay the end."""
    brokers = Brokers(["events"], 1)
    client = Slow(brokers)
    source = await reading(client, brokers)
    commit = asyncio.create_task(source.commit(COMMITS))
    await client.begun.wait()

    await source.leave()
    await commit

    assert source.assignment is None
    assert not brokers.commits


@pytest.mark.parametrize("which", ["commit", "confirm"])
async def test_an_abandoned_commit_that_fails_later_logs_nothing(which: str) -> None:
    """Asyncio logs an error that nobody retrieves."""
    logged: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: logged.append(context["message"]))
    brokers = Brokers(["events"], 1)
    client = Shielding(brokers)
    source = await reading(client, brokers)
    caller = asyncio.create_task(getattr(source, which)(COMMITS))
    await client.begun.wait()

    if which == "confirm":
        caller.cancel()
    await source.leave()
    await asyncio.wait({caller})
    client.go_on.set()
    await client.failed.wait()
    del caller
    await asyncio.sleep(0)
    gc.collect()

    assert logged == []


async def test_a_missing_answer_does_not_mean_that_there_is_no_commit() -> None:
    """An error about the whole group omits the partitions; a partition without a commit
    is listed."""
    brokers = Brokers(["events"], 2)
    client = ScriptedConsumer(brokers)
    source = await reading(client, brokers)
    await source.confirm({FIRST: Commit(7, "a note")})

    assert await source.committed([FIRST, SECOND]) == {FIRST: Commit(7, "a note")}

    async def nothing(*_: Any) -> dict[Any, Any]:
        return {}

    client.list_consumer_group_offsets = nothing  # type: ignore[assignment, method-assign]
    with pytest.raises(SourceUnavailable, match="do not tell the commits"):
        await source.committed([FIRST])


LOADING = GroupLoadInProgressError.errno


class Coordinated(AIOKafkaAdminClient):  # type: ignore[misc]
    """The library's client with this answer from the coordinator."""

    def __init__(self, answer: OffsetFetchResponse_v3) -> None:
        super().__init__(bootstrap_servers="nobody:1")
        self._answer = answer

    async def start(self) -> None:
        """Connect to nothing."""

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Any known node."""
        return 0

    async def _send_request(self, request: Any, node_id: int | None = None) -> Any:
        return self._answer


class CoordinatedCluster(ScriptedCluster):
    """Brokers with the library's admin clients."""

    answer: OffsetFetchResponse_v3

    def admin(self) -> Any:
        """See ``Cluster``."""
        return Coordinated(self.answer)


@pytest.mark.parametrize(
    "answer",
    [
        OffsetFetchResponse_v3(0, [], LOADING),
        OffsetFetchResponse_v3(0, [("events", [(0, -1, "", LOADING), (1, -1, "", LOADING)])], 0),
        OffsetFetchResponse_v3(0, [("events", [(0, -1, "", 0)])], 0),
    ],
    ids=["of the group", "of each partition", "of one partition alone"],
)
async def test_a_loading_coordinator_does_not_mean_a_new_group(
    answer: OffsetFetchResponse_v3,
) -> None:
    """Otherwise, if the store lost its state as well, the worker would start again without noticing
    the gap."""
    brokers = Brokers(["events"], 2)
    client = ScriptedConsumer(brokers)
    cluster = CoordinatedCluster(brokers, client)
    cluster.answer = answer
    source = source_of(cluster, Health())
    await source.join()

    with pytest.raises(SourceUnavailable):
        await source.committed([FIRST, SECOND])


async def test_a_group_without_commits_is_new() -> None:
    """The answer lists each partition without an offset."""
    brokers = Brokers(["events"], 2)
    cluster = CoordinatedCluster(brokers, ScriptedConsumer(brokers))
    partitions = [(0, -1, "", 0), (1, -1, "", 0)]
    cluster.answer = OffsetFetchResponse_v3(0, [("events", partitions)], 0)
    source = source_of(cluster, Health())
    await source.join()

    assert await source.committed([FIRST, SECOND]) == {}


# -- reading


async def test_a_record_that_is_too_large_is_not_skipped() -> None:
    """The client skips it; the source reports its partition and reads the others."""
    brokers = filled(2)
    client = ScriptedConsumer(brokers)
    error = RecordTooLargeError("%s=%s is too large for %s", TopicPartition(*SECOND), 1, 100)
    brokers.unreadable[TopicPartition(*SECOND)] = 1, error
    source = await reading(client, brokers)

    [(place, why)] = (await source.poll()).unreadable.items()
    source.stop_reading([place])

    assert place == SECOND
    assert "max_partition_fetch_bytes" in why
    assert offsets(await source.poll()) == {FIRST: [0, 1, 2]}


async def test_an_error_loses_no_records_of_other_partitions() -> None:
    """The client seeks back to the last returned record."""
    brokers = filled(2)
    client = ScriptedConsumer(brokers)
    source = await reading(client, brokers)
    client.max_records = 2
    assert offsets(await source.poll()) == {FIRST: [0, 1]}
    client.max_records = 10
    brokers.unreadable[TopicPartition(*SECOND)] = 1, CorruptRecordException("CRC")

    assert await source.poll() == Fetched()
    brokers.unreadable.clear()

    assert offsets(await source.poll()) == {FIRST: [2], SECOND: [0, 1, 2]}


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KafkaConnectionError("away"), SourceUnavailable),
        (OSError("away"), SourceUnavailable),
        (TopicAuthorizationFailedError("events"), RightsMissing),
        (GroupAuthorizationFailedError("group"), RightsMissing),
        (FencedInstance("group", "worker-1"), FencedInstance),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
async def test_errors_of_brokers_are_distinguished(
    error: Exception, raised: type[Exception]
) -> None:
    """Timeouts and missing rights are waited for; being replaced is not."""
    brokers = Brokers(["events"], 1)
    client = ScriptedConsumer(brokers)
    source = await reading(client, brokers)

    async def fails(_: Any) -> Any:
        raise error

    client.end_offsets = fails  # type: ignore[assignment, method-assign]

    with pytest.raises(raised) as found:
        await source.ends([FIRST])
    assert isinstance(found.value, Unavailable) == (raised is not FencedInstance)


async def test_a_running_worker_waits_for_a_deleted_topic() -> None:
    """At the start the worker refuses it."""
    brokers = Brokers(["events"], 1)

    async def missing() -> dict[str, int]:
        raise TopicsMissing("input topics do not exist: events")

    source = source_of(ScriptedCluster(brokers, ScriptedConsumer(brokers)), Health(), missing)

    with pytest.raises(TopicsMissing):
        await source.join()
    with pytest.raises(TopicsUnavailable, match="do not exist"):
        await source.partition_counts()


async def test_a_running_worker_whose_topic_is_hidden_names_the_right() -> None:
    """A topic that it may not describe is not called deleted."""
    brokers = Brokers(["events"], 1)

    async def hidden() -> dict[str, int]:
        raise KafkaRefused("the user lacks DESCRIBE topic events")

    source = source_of(ScriptedCluster(brokers, ScriptedConsumer(brokers)), Health(), hidden)

    with pytest.raises(RightsMissing, match="DESCRIBE topic events"):
        await source.partition_counts()


async def test_a_client_that_sees_no_topic_for_want_of_a_right_is_not_waited_for() -> None:
    """The missing right is named within the time after which brokers would be called silent."""
    brokers = filled()
    cluster = Checked(brokers, Unseen(brokers))
    cluster.missing = "the user lacks READ topic events"
    source = source_of(cluster, Health())
    await source.join()

    with pytest.raises(RightsMissing, match="READ topic events"):
        async with asyncio.timeout(PROBE_SECONDS):
            await source.ends([FIRST])


async def test_a_slow_answer_is_waited_for_if_no_right_is_missing() -> None:
    """Rights are checked meanwhile, and the answer counts when it comes."""
    brokers = filled()
    source = source_of(Checked(brokers, Unseen(brokers)), Health())
    await source.join()

    async with asyncio.timeout(PROBE_SECONDS):
        assert await source.ends([FIRST]) == {FIRST: 3}
