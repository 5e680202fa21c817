"""Faults of brokers, topics and producers."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from deploy.local.kafka.cluster import KafkaBroker, admin
from tests.campaign.faults.fault import Fault, Need
from tests.campaign.faults.workers import JOIN_SECONDS, SESSION_SECONDS
from tests.services.live import PARTITIONS

if TYPE_CHECKING:
    from tests.campaign.world import World

RECONNECT_SECONDS: Final = 3.0
TRANSACTIONS: Final = 6
TRANSACTION_RECORDS: Final = 20


class Restart(Fault):
    """The only broker is killed and restarted."""

    name = "broker_kill"
    needs = Need.PLAIN
    hold = (0.5, 8.0)
    wait_seconds = SESSION_SECONDS
    work_seconds = JOIN_SECONDS + RECONNECT_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        broker = world.kafka.brokers[0]
        await self._end(broker)
        await asyncio.sleep(hold_seconds)
        await broker.start()

    async def _end(self, broker: KafkaBroker) -> None:
        broker.kill9()


class OrderlyRestart(Restart):
    """The only broker is stopped and restarted."""

    name = "broker_restart"

    async def _end(self, broker: KafkaBroker) -> None:
        await broker.stop()


class LeaderMoves(Fault):
    """One of three brokers is killed, its partitions get new leaders, and it is restarted."""

    name = "broker_leader_moves"
    needs = Need.THREE_BROKERS
    hold = (4.0, 12.0)
    wait_seconds = SESSION_SECONDS
    work_seconds = JOIN_SECONDS + RECONNECT_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        broker = rng.choice(world.kafka.brokers)
        broker.kill9()
        await asyncio.sleep(hold_seconds)
        await broker.start()


class CutOff(Fault):
    """One of three brokers hangs, with its connections open."""

    name = "broker_stall"
    needs = Need.THREE_BROKERS
    hold = (4.0, 12.0)
    wait_seconds = SESSION_SECONDS + 40.0  # clients wait for an answer for as long as they are told
    work_seconds = 2 * JOIN_SECONDS + RECONNECT_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        broker = rng.choice(world.kafka.brokers)
        broker.pause()
        try:
            await asyncio.sleep(hold_seconds)
        finally:
            broker.resume()


class LettersFull(Fault):
    """The dead-letter topics accept no record of any size."""

    name = "letters_full"
    hold = (2.0, 8.0)
    wait_seconds = 6.0  # the call in flight, and the longest pause

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        await most_bytes(world, "1")
        try:
            await asyncio.sleep(hold_seconds)
        finally:
            await most_bytes(world, "1048588")


class LettersMissing(Fault):
    """The dead-letter topics are deleted, and created again later."""

    name = "letters_missing"
    hold = (2.0, 8.0)
    wait_seconds = 8.0

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        topics = [f"{topic}.dlq" for topic in world.topics]
        for worker in world.workers:
            worker.pause()  # so that no dead letter is written between reading and deletion
        try:
            world.lost_letters |= await world.dead_letters()
            for topic in topics:
                await world.kafka.delete_topic(topic)
        finally:
            for worker in world.workers:
                worker.resume()
        await asyncio.sleep(hold_seconds)
        for topic in topics:
            await world.kafka.create_topic(topic, PARTITIONS)


class AbortedTransactions(Fault):
    """Transactions among the load: one aborts, with conversations of its own, the next commits."""

    name = "aborted_transactions"
    hold = (1.0, 5.0)
    work_seconds = 5.0
    quick = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=world.kafka.bootstrap_servers,
            transactional_id=f"campaign-{rng.random()}",
        )
        records = [r for r in world.load.records if r.valid]
        await producer.start()
        try:
            for _ in range(TRANSACTIONS):
                for commits in (False, True):
                    await producer.begin_transaction()
                    for record in rng.sample(records, TRANSACTION_RECORDS):
                        key, value = record.key or b"", record.value
                        if not commits:  # the same event, in a conversation that is never committed
                            value = value.replace(key, b"aborted-" + key)
                            key = b"aborted-" + key
                        await producer.send(
                            world.topics[0 if record.stream == "events" else 1],
                            value,
                            key=key,
                            timestamp_ms=record.timestamp_ms,
                        )
                    if commits:
                        await producer.commit_transaction()
                    else:
                        await producer.flush()
                        await producer.abort_transaction()
                await asyncio.sleep(hold_seconds / TRANSACTIONS)
        finally:
            await producer.stop()


async def most_bytes(world: World, limit: str) -> None:
    """Set the maximum batch size of the dead-letter topics."""
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, f"{topic}.dlq", {"max.message.bytes": limit})
        for topic in world.topics
    ]
    async with admin(world.kafka.bootstrap_servers) as client:
        await client.alter_configs(resources)


FAULTS: Final[tuple[Fault, ...]] = (
    Restart(),
    OrderlyRestart(),
    LeaderMoves(),
    CutOff(),
    LettersFull(),
    LettersMissing(),
    AbortedTransactions(),
)
