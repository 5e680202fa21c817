"""Clients with an instance id on real servers: assignments after topics have changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError

from deploy.local.kafka.cluster import Kafka
from stream_metrics.clients.kafka.errors import KafkaRefused
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.live.kafka.cluster import Cluster, Group
from tests.helpers import rest_long, wait_until

pytestmark = pytest.mark.service

PARTITIONS = 3
SESSION_MS = 300_000  # nobody waits for its end
SOON = 30
NAMES = ("worker-1", "worker-2", "worker-3")


class Counting(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener that counts the assignments of a member."""

    def __init__(self) -> None:
        self.times = 0

    def on_partitions_revoked(self, revoked: object) -> None:
        """See ``ConsumerRebalanceListener``."""

    def on_partitions_assigned(self, assigned: object) -> None:
        """See ``ConsumerRebalanceListener``."""
        self.times += 1


class Members:
    """Members of one group, by instance id."""

    def __init__(self, kafka: Kafka, group: str, stack: AsyncExitStack) -> None:
        self.kafka = kafka
        self.group = group
        self.clients: dict[str | None, AIOKafkaConsumer] = {}
        self.heard: dict[str | None, Counting] = {}
        stack.push_async_callback(self.stop_all)

    async def start(self, name: str | None, topics: Sequence[str]) -> None:
        """Start or restart a member."""
        if name in self.clients:
            await self.clients.pop(name).stop()
        settings = KafkaSettings(
            bootstrap_servers=self.kafka.bootstrap_servers,
            group_instance_id=name,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=200,
        )
        group = Group(self.group, topics, RoundRobinPartitionAssignor)
        client = self.clients[name] = Cluster(settings).consumer(group)
        await client.start()
        self.heard[name] = Counting()
        client.subscribe(list(topics), listener=self.heard[name])

    async def stop_all(self) -> None:
        """Stop all running members."""
        while self.clients:
            await self.clients.popitem()[1].stop()

    async def share(self, counts: dict[str, int]) -> None:
        """Wait until each partition is assigned to one member, and each member has one."""
        places = sorted(TopicPartition(topic, n) for topic in counts for n in range(counts[topic]))

        def shared() -> bool:
            shares = [client.assignment() for client in self.clients.values()]
            return all(shares) and sorted(place for share in shares for place in share) == places

        await wait_until(
            shared, SOON, lambda: str({n: c.assignment() for n, c in self.clients.items()})
        )


@pytest.mark.parametrize("change", rest_long(["more partitions", "more topics", "fewer topics"]))
@pytest.mark.parametrize("nameless", rest_long([False, True]))
async def test_what_has_changed_is_shared_out_anew(
    kafka: Kafka, change: str, nameless: bool
) -> None:
    """While all are started again in turn, the first while nobody else sees more partitions; also
    where a member without a name shares out."""
    group = f"turns-{change.replace(' ', '-')}-{nameless}-{os.getpid()}"
    before = {f"{group}-{name}": PARTITIONS for name in ("a", "b")}
    for topic in (*before, f"{group}-c"):
        await kafka.create_topic(topic, PARTITIONS)
    async with AsyncExitStack() as stack:
        members = Members(kafka, group, stack)
        names = [None, *NAMES] if nameless else list(NAMES)
        for name in names:
            await members.start(name, list(before))
            await members.share(before)

        after = await changed(kafka, group, change, before)
        for name in names:
            await members.start(name, list(after))

        await members.share(after)


async def changed(kafka: Kafka, group: str, change: str, counts: dict[str, int]) -> dict[str, int]:
    """The topics and their partition counts after the change."""
    if change == "more topics":
        return {**counts, f"{group}-c": PARTITIONS}
    await kafka.add_partitions(f"{group}-a", PARTITIONS + 1)
    if change == "fewer topics":
        return {f"{group}-a": PARTITIONS + 1}
    return {**counts, f"{group}-a": PARTITIONS + 1}


async def test_nothing_is_shared_out_anew_where_nothing_has_changed(kafka: Kafka) -> None:
    """Each member gets its partitions back, and the others are not called."""
    group = f"still-{os.getpid()}"
    counts = {f"{group}-a": PARTITIONS}
    await kafka.create_topic(f"{group}-a", PARTITIONS)
    async with AsyncExitStack() as stack:
        members = Members(kafka, group, stack)
        for name in NAMES:
            await members.start(name, list(counts))
        await members.share(counts)
        for name in NAMES:
            had = members.clients[name].assignment()
            heard = {other: members.heard[other].times for other in NAMES if other != name}

            await members.start(name, list(counts))
            await members.share(counts)

            assert members.clients[name].assignment() == had
            assert {other: members.heard[other].times for other in heard} == heard


async def alone(kafka: Kafka, name: str, stack: AsyncExitStack) -> tuple[Members, dict[str, int]]:
    """A group with the only member ``worker``, which has the topic; also its partition count."""
    group = f"{name}-{os.getpid()}"
    counts = {f"{group}-a": PARTITIONS}
    await kafka.create_topic(f"{group}-a", PARTITIONS)
    members = Members(kafka, group, stack)
    await members.start("worker", list(counts))
    await members.share(counts)
    return members, counts


async def test_a_commit_while_a_member_joins_anew_is_no_other_workers_doing(kafka: Kafka) -> None:
    """It fails as without an instance id, and the member gets its partitions back."""
    async with AsyncExitStack() as stack:
        members, counts = await alone(kafka, "late", stack)
        client = members.clients["worker"]

        client._coordinator.reset_generation()  # as when a coordinator does not know the member
        with pytest.raises(CommitFailedError):
            await client.commit(dict.fromkeys(client.assignment(), 0))

        await wait_until(lambda: members.heard["worker"].times > 1, SOON, "not joined again")
        await members.share(counts)
        await client.commit(dict.fromkeys(client.assignment(), 0))


async def test_brokers_that_are_too_old_are_named_as_the_cause(kafka: Kafka) -> None:
    """The error says that they lack the request versions of 2.2."""
    async with AsyncExitStack() as stack:
        members, _ = await alone(kafka, "old", stack)
        client = members.clients["worker"]
        for connection in client._client._conns.values():
            connection._versions = {**connection._versions, 8: (0, 6), 12: (0, 2)}

        with pytest.raises(KafkaRefused, match=r"group_instance_id.* brokers 2\.3 or later"):
            await client.commit(dict.fromkeys(client.assignment(), 0))
