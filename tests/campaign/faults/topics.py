"""Faults of the log itself: records that go before they are read, and topics made anew.

What was read stays in the state, also when Kafka has it no longer; ``kafka.on_offset_gap`` says
what becomes of the rest. The comparison is with a single pass over what the policy promises:

halt      nothing changes until somebody decides; then as one of the others
rebuild   what the topics hold now
continue  what was read before, and what can be read now
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final, Literal

from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from deploy.local.kafka.cluster import admin
from tests.campaign.faults.fault import Fault, Need
from tests.campaign.faults.workers import JOIN_SECONDS, SESSION_SECONDS, START_SECONDS
from tests.campaign.history import Span
from tests.campaign.watch import now
from tests.services.live import PARTITIONS

if TYPE_CHECKING:
    from tests.campaign.world import World

Policy = Literal["halt", "rebuild", "continue"]

STILL_SECONDS: Final = 0.6  # a write of a worker that was killed may still arrive
UNREAD_SHARE: Final = 0.03  # of the log, for the fault to take away from
FEW: Final = 20  # records at least that are to go
SEGMENT_MS: Final = "2000"  # of record time: every partition gets many segments
KEPT: Final = {"retention.ms": "-1"}
COMPACTED_SECONDS: Final = 2.0  # without a change: then the cleaner is done


class _WithoutWorkers(Fault):
    """What happens to a topic while no worker runs; then as many begin as there were."""

    needs = Need.PLAIN
    alone = True
    hold = (0.0, 2.0)
    wait_seconds = 2 * SESSION_SECONDS
    work_seconds = START_SECONDS + JOIN_SECONDS

    async def stop_workers(self, world: World) -> int:
        """Kill all workers; returns how many once the state stands still."""
        count = len(world.workers)
        for worker in list(world.workers):
            world.kill(worker)
        since = now()
        await world.until(
            lambda: world.watcher.still_for(STILL_SECONDS, since), "the state moves without workers"
        )
        return count

    async def send_unread(self, world: World) -> None:
        """Let some of the load come in that nobody reads, and hold the rest."""
        load = world.load
        load.open(load.sent / len(load.records) + UNREAD_SHARE)
        await world.until(lambda: load.at_limit, "the producer does not get on")
        await rest(world)


class StartMoved(_WithoutWorkers):
    """A partition's records are deleted beyond the offset that the state needs."""

    def __init__(self, policy: Policy) -> None:
        self.name = f"log_start_{policy}"
        self.first = self.may_go_back = policy == "rebuild"
        self._policy: Policy = policy

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        count = await self.stop_workers(world)
        await self.send_unread(world)
        topic, number = world.topics[0], rng.randrange(PARTITIONS)
        stored = world.watcher.offsets[topic, number]
        end = (await world.ends())[topic, number]
        assert end > stored + FEW, "nothing of the load is unread"
        first = rng.randint(stored + FEW, end - 1)
        await world.excuse([Span(topic, number, 0, first)])
        if self._policy == "rebuild":
            world.history.drop({number})
        else:
            await world.keep_aside({(topic, number): stored})
        place = TopicPartition(topic, number)
        async with admin(world.kafka.bootstrap_servers) as client:
            await client.delete_records({place: RecordsToDelete(before_offset=first)})
        # A broker that is killed soon afterwards has them again: it notes where a log starts once a
        # minute only. Whoever has read on does not go back for them.
        world.history.pass_over({(topic, number): first})
        world.load.release()
        await asyncio.sleep(hold_seconds)
        if self._policy == "halt":
            await self._halt(world, topic, number, count)
        last: Policy = "rebuild" if self._policy == "rebuild" else "continue"
        owners = world.watcher.owners_of(number)
        world.start_workers(count, last)
        world.expected_gaps.add((number, last))
        await world.until(
            lambda: (
                world.watcher.owners_of(number) > owners
                and world.watcher.offsets[topic, number] >= first
            ),
            f"nobody has taken partition {number} over from the gap",
        )

    async def _halt(self, world: World, topic: str, number: int, count: int) -> None:
        """Workers hold the partition and say why; then they are told to end."""
        before = dict(world.watcher.offsets)
        world.start_workers(count, "halt")
        world.expected_gaps.add((number, "halt"))

        async def held() -> bool:
            said = [await worker.readyz() for worker in world.workers]
            return any(f"partition-{number}" in body.get("reasons", {}) for _, body in said)

        await world.until(held, f"no worker says that it holds partition {number}")
        total = world.watcher.total
        await world.until_past(total + FEW)
        moved = [
            place
            for place, offset in world.watcher.offsets.items()
            if place[1] == number and offset != before[place]
        ]
        if moved:
            world.problems.append(f"{moved} moved though partition {number} was to be held")
        for worker in list(world.workers):
            await world.retire(worker)


class MadeAnew(_WithoutWorkers):
    """The topic of events is deleted, made again and filled again, in another order."""

    name = "topic_made_anew"
    first = True
    may_go_back = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        topic = world.topics[0]
        await rest(world)
        count = await self.stop_workers(world)
        for name in (topic, f"{topic}.dlq"):
            await world.kafka.delete_topic(name)
        await asyncio.sleep(hold_seconds)
        await world.kafka.create_topic(f"{topic}.dlq", PARTITIONS)
        await world.kafka.create_topic(topic, PARTITIONS, KEPT)
        world.forget_letters(topic)
        world.history.drop(set(range(PARTITIONS)))
        owners = {number: world.watcher.owners_of(number) for number in range(PARTITIONS)}
        filled_first = rng.random() < 0.5  # else workers find the topic shorter than their state
        if filled_first:
            await world.load.send_again("events", rng)
        world.start_workers(count, "rebuild")
        world.expected_gaps |= {(number, "rebuild") for number in range(PARTITIONS)}
        if not filled_first:
            await world.load.send_again("events", rng)
        world.extra = sum((await world.ends()).values()) - world.load.sent
        world.load.release()
        await world.until(
            lambda: all(world.watcher.owners_of(n) > before for n, before in owners.items()),
            "not every partition was taken over anew",
        )


class Compacted(_WithoutWorkers):
    """What was not read yet is compacted: of most conversations the last record is left."""

    name = "compaction_gaps"

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        topic = world.topics[0]
        await rest(world)
        await configure(world, topic, {"segment.ms": SEGMENT_MS})
        world.load.release()
        count = await self.stop_workers(world)
        await self.send_unread(world)
        offsets = world.watcher.offsets
        places = {(topic, number): offsets[topic, number] for number in range(PARTITIONS)}
        await world.keep_aside(places)
        ends = await world.ends()
        spans = [Span(*place, offset, ends[place]) for place, offset in places.items()]
        await world.excuse(spans)
        unread = await world.count(spans)
        await configure(
            world, topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        )
        await self._settled(world, spans, unread)
        await configure(world, topic, {})
        left = await world.count(spans)
        if left >= unread - FEW:
            world.problems.append(f"compaction has left {left} of {unread} records")
        world.compacted.append((spans, left))
        world.load.release()
        await asyncio.sleep(hold_seconds)
        world.start_workers(count)

    async def _settled(self, world: World, spans: list[Span], unread: int) -> None:
        """Wait until compaction has done what it can."""
        left, since = unread, now()

        async def done() -> bool:
            nonlocal left, since
            found = await world.count(spans)
            if found != left:
                left, since = found, now()
            return left < unread and now() > since + COMPACTED_SECONDS

        await world.until(done, "the topic is not compacted")


async def rest(world: World) -> None:
    """Hold the load until everything sent was answered."""
    world.load.hold()
    await world.until(lambda: world.load.at_rest, "the producer has no answers")


async def configure(world: World, topic: str, config: dict[str, str]) -> None:
    """Give a topic this configuration, beside that it keeps its records."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {**KEPT, **config})
    async with admin(world.kafka.bootstrap_servers) as client:
        await client.alter_configs([resource])


FAULTS: Final[tuple[Fault, ...]] = (
    StartMoved("continue"),
    StartMoved("rebuild"),
    StartMoved("halt"),
    MadeAnew(),
    Compacted(),
)
