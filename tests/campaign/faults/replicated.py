"""Faults of Redis with replicas: behind Sentinel, or in a Cluster."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import Redis
from redis.crc import key_slot

from tests.campaign.faults.fault import Fault, Need
from tests.campaign.faults.redis import ANSWER_SECONDS, BACKOFF_SECONDS, FEW
from tests.campaign.servers import ClusterRedis, ReplicatedRedis, leads
from tests.services.live import PARTITIONS

if TYPE_CHECKING:
    from tests.campaign.world import World

MOVED_AT_ONCE: Final = 200


class FailOver(Fault):
    """A master dies, and its lagging replica, which lacks acknowledged writes, is promoted."""

    hold = (1.0, 4.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS
    may_go_back = True

    def __init__(self, name: str, needs: Need) -> None:
        self.name, self.needs = name, needs

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        servers, watcher = world.redis, world.watcher
        assert isinstance(servers, ReplicatedRedis)
        state, number = await watcher.newest(), rng.randrange(PARTITIONS)
        master = await servers.master_of(key_slot(state.places[number].encode()))
        replica = await servers.replica_of(master)
        async with Redis.from_url(replica.url) as client:
            await client.config_set("masterauth", "of another master")
            await run(client, "CLIENT KILL", "TYPE", "master")
        copied = watcher.passed(state, number)
        await asyncio.sleep(hold_seconds)

        def is_ahead() -> bool:
            world.load.trickle()
            return watcher.passed(state, number) > copied + FEW

        await world.until(is_ahead, f"nobody writes to partition {number}")
        async with Redis.from_url(replica.url) as client:
            await client.config_set("cluster-replica-no-failover", "no")
        master.kill9()
        await world.until(partial(leads, replica.url), "the replica was not promoted")
        async with Redis.from_url(replica.url) as client:  # Sentinel has closed the one before
            await client.config_set("cluster-replica-no-failover", "yes")
            await client.config_set("masterauth", "")
        await master.start()
        await world.until(servers.in_step, "not every master has a copy")


class MoveSlots(Fault):
    """Slots of state partitions move to another master key by key (MOVED, ASK, TRYAGAIN)."""

    name = "cluster_slots_move"
    needs = Need.CLUSTER
    hold = (1.0, 4.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        servers = world.redis
        assert isinstance(servers, ClusterRedis)
        masters = await servers.masters()
        clients = [Redis.from_url(server.url) for server in masters]
        try:
            tags = await world.watcher.tags(rng.sample(range(PARTITIONS), 2))
            for slot in [key_slot(tag.encode()) for tag in tags]:
                source = masters.index(await servers.master_of(slot))
                await self._move(clients, source, slot, rng, hold_seconds / len(tags))
        finally:
            for client in clients:
                await client.aclose()

    async def _move(
        self, clients: list[Redis], source: int, slot: int, rng: Random, hold_seconds: float
    ) -> None:
        ids = [(await run(client, "CLUSTER MYID")).decode() for client in clients]
        target = rng.choice([n for n in range(len(clients)) if n != source])
        old, new = clients[source], clients[target]
        port = new.connection_pool.connection_kwargs["port"]
        await run(new, "CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
        await run(old, "CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
        await asyncio.sleep(hold_seconds / 2)
        while keys := await run(old, "CLUSTER GETKEYSINSLOT", slot, MOVED_AT_ONCE):
            await run(old, "MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)
            await asyncio.sleep(hold_seconds / 20)
        for client in (new, old, *clients):
            await run(client, "CLUSTER SETSLOT", slot, "NODE", ids[target])


class MasterDies(Fault):
    """One of three masters is killed, and restarts with all acknowledged writes."""

    name = "cluster_master_kill"
    needs = Need.CLUSTER
    hold = (0.5, 6.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        servers = world.redis
        assert isinstance(servers, ClusterRedis)
        victim = rng.choice(await servers.masters())
        victim.kill9()
        await asyncio.sleep(hold_seconds)
        await victim.start()
        await world.until(servers.in_step, "the Cluster is not whole again")


async def run(client: Redis, *command: str | bytes | int) -> Any:
    """Run a command without a client method, or one whose answer the client would convert."""
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    try:
        await connection.send_command(*str(command[0]).split(), *command[1:])
        return await connection.read_response()
    finally:
        await pool.release(connection)


FAIL_OVERS: Final = (
    FailOver("sentinel_failover", Need.SENTINEL),
    FailOver("cluster_failover", Need.CLUSTER),
)
FAULTS: Final[tuple[Fault, ...]] = (*FAIL_OVERS, MoveSlots(), MasterDies())
