"""Faults of the log: records that are deleted before they are read, and recreated topics.

Records that were read stay in the state after Kafka has deleted them; ``kafka.on_offset_gap``
decides about the others. The state is compared with a single pass over what the policy promises:

halt      nothing changes until an operator chooses one of the other policies
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

STILL_SECONDS: Final = 0.6  # a write of a killed worker may still arrive
UNREAD_SHARE: Final = 0.03  # of the log, from which the fault deletes
FEW: Final = 20  # minimum number of deleted records
SEGMENT_MS: Final = "2000"  # of record time: every partition gets many segments
KEPT: Final = {"retention.ms": "-1"}
COMPACTED_SECONDS: Final = 2.0  # without a change: then the cleaner is done


class _WithoutWorkers(Fault):
    """Changes a topic while no worker runs, then restarts as many workers as before."""

    needs = Need.PLAIN
    alone = True
    hold = (0.0, 2.0)
    wait_seconds = 2 * SESSION_SECONDS
    work_seconds = START_SECONDS + JOIN_SECONDS

    async def stop_workers(self, world: World) -> int:
        """Kill all workers, and return their number once the state no longer changes."""
        count = len(world.workers)
        for worker in list(world.workers):
            world.kill(worker)
        since = now()
        await world.until(
            lambda: world.watcher.still_for(STILL_SECONDS, since), "the state moves without workers"
        )
        return count

    async def send_unread(self, world: World) -> None:
        """Send some of the load while no worker reads, and hold the rest."""
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
        # A broker that is killed soon afterwards has the records again: it stores the start of the
        # log only once a minute. Workers that have read further do not go back.
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
        """Check that workers halt the partition and report why, then stop them."""
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
    """The topic of events is deleted, created again and filled in another order."""

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
    """Unread records are compacted, which leaves the last record of most conversations."""

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
        """Wait until compaction is complete."""
        left, since = unread, now()

        async def done() -> bool:
            nonlocal left, since
            found = await world.count(spans)
            if found != left:
                left, since = found, now()
            return left < unread and now() > since + COMPACTED_SECONDS

        await world.until(done, "the topic is not compacted")


async def rest(world: World) -> None:
    """Hold the load until everything sent was acknowledged."""
    world.load.hold()
    await world.until(lambda: world.load.at_rest, "the producer has no answers")


async def configure(world: World, topic: str, config: dict[str, str]) -> None:
    """Set this configuration of a topic, in addition to unlimited retention."""
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
