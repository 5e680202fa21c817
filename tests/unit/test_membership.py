"""One member of a consumer group, over scripted brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata

from stream_metrics.adapters.health import Health
from stream_metrics.adapters.kafka.cluster import Cluster, Group
from stream_metrics.adapters.kafka.membership import Membership
from tests.simulation.brokers import Brokers, ScriptedCluster, ScriptedConsumer
from tests.simulation.system import AtOnce

PLACE = TopicPartition("events", 0)
OFFSETS = {PLACE: OffsetAndMetadata(1, "")}


def member_of(cluster: Cluster, health: Health) -> Membership:
    """A member that has not joined yet."""

    async def fit() -> None:
        """The topics are as they should be."""

    group = Group("group", ("events",), RangePartitionAssignor)
    return Membership(cluster, group, fit, AtOnce(health, lambda: None), health)


class Slow(ScriptedConsumer):
    """A client whose commits wait until they are told to go on."""

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


class Away(ScriptedCluster):
    """Brokers that are away when they are first asked."""

    reasons: Mapping[str, str]
    seen = ""

    async def check_rights(self) -> None:
        """Fail once."""
        if not self.seen:
            raise KafkaConnectionError("nobody there")
        self.seen = self.reasons["kafka"]

    async def explain(self, error: Exception) -> str:
        """The error, which is noted."""
        self.seen = str(error)
        return self.seen


async def reading(client: ScriptedConsumer, brokers: Brokers) -> Membership:
    """A member that knows what is its own."""
    member = member_of(ScriptedCluster(brokers, client), Health())
    await member.join()
    brokers.rebalance([client])
    member.looking()
    return member


async def test_joining_goes_on_until_the_brokers_answer() -> None:
    """The reason says meanwhile why it takes so long."""
    brokers, health = Brokers(["events"], 1), Health()
    cluster = Away(brokers, ScriptedConsumer(brokers))
    cluster.reasons = health.reasons
    member = member_of(cluster, health)

    await member.join()

    assert "cannot connect: " in cluster.seen
    assert "nobody there" in cluster.seen
    assert health.reasons.keys() == {"assignment"}


async def test_only_one_commit_is_on_its_way() -> None:
    """While the brokers take their time another one is not sent, nor waited for."""
    brokers = Brokers(["events"], 1)
    client = Slow(brokers)
    member = await reading(client, brokers)

    first = asyncio.create_task(member.commit(OFFSETS))
    await client.begun.wait()
    await member.commit(OFFSETS)
    assert client.commits == 1
    assert member.commits.news({PLACE: 1})

    client.go_on.set()
    await first
    assert not member.commits.news({PLACE: 1})


async def test_leaving_gives_up_a_commit_that_gets_no_answer() -> None:
    """It does not hold up the end."""
    brokers = Brokers(["events"], 1)
    client = Slow(brokers)
    member = await reading(client, brokers)
    commit = asyncio.create_task(member.commit(OFFSETS))
    await client.begun.wait()

    await member.leave()
    await commit

    assert not member.joined
    assert not brokers.commits


async def test_a_client_that_was_left_is_not_heard() -> None:
    """What it says of its partitions is nothing to those of the next client."""
    brokers = Brokers(["events"], 1)
    left, current = ScriptedConsumer(brokers), ScriptedConsumer(brokers)
    cluster = ScriptedCluster(brokers, left)
    member = member_of(cluster, Health())
    await member.join()
    cluster.client = current
    await member.join_anew()
    brokers.rebalance([current])
    member.looking()

    brokers.rebalance([left])

    assert not member.changed


async def test_what_was_taken_back_is_not_looked_at() -> None:
    """Whoever wants to look again waits for the group where it is about to say what is ours."""
    brokers = Brokers(["events"], 1)
    member = member_of(ScriptedCluster(brokers, ScriptedConsumer(brokers)), Health())
    await member.join()
    member.revoked()

    member.look_again()

    assert member.changed
    assert not member.due
