"""Faults of Redis with a replica, and of a Redis Cluster."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import Redis
from redis.crc import key_slot

from deploy.local.redis_cluster import whole
from tests.campaign.faults.fault import Fault, Need
from tests.campaign.faults.redis import ANSWER_SECONDS, BACKOFF_SECONDS, FEW
from tests.campaign.servers import ClusterRedis, SentinelRedis, leads
from tests.services.live import PARTITIONS

if TYPE_CHECKING:
    from tests.campaign.world import World

MOVED_AT_ONCE: Final = 200


class FailOver(Fault):
    """The master dies, and a lagging replica that lacks acknowledged writes is promoted."""

    name = "sentinel_failover"
    needs = Need.SENTINEL
    hold = (1.0, 4.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS
    may_go_back = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        servers = world.redis
        assert isinstance(servers, SentinelRedis)
        master, replica = await servers.roles()
        async with Redis.from_url(master.url) as client:
            await run(client, "ACL SETUSER", "copier", "off")
            await run(client, "CLIENT KILL", "TYPE", "replica")
        copied = world.watcher.total
        await asyncio.sleep(hold_seconds)
        await world.until_past(copied + FEW)
        master.kill9()
        await world.until(partial(leads, replica.url), "the replica was not promoted")
        await master.start()
        await world.until(servers.in_step, "neither server copies the other")


class MoveSlots(Fault):
    """Slots of state partitions move to another master key by key (MOVED, ASK, TRYAGAIN)."""

    name = "cluster_slots_move"
    needs = Need.CLUSTER
    hold = (1.0, 4.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        servers = world.redis
        assert isinstance(servers, ClusterRedis)
        clients = [Redis.from_url(server.url) for server in servers.servers]
        try:
            counts = range(PARTITIONS)
            tags = await world.watcher.tags(rng.sample(counts, 2))
            for tag in tags:
                await self._move(clients, key_slot(tag.encode()), rng, hold_seconds / len(tags))
        finally:
            for client in clients:
                await client.aclose()

    async def _move(
        self, clients: list[Redis], slot: int, rng: Random, hold_seconds: float
    ) -> None:
        ids = [(await run(client, "CLUSTER MYID")).decode() for client in clients]
        owners: list[Any] = await run(clients[0], "CLUSTER SLOTS")
        owner = next(o[2][2].decode() for o in owners if o[0] <= slot <= o[1])
        source = ids.index(owner)
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
        victim = rng.choice(servers.servers)
        victim.kill9()
        await asyncio.sleep(hold_seconds)
        await victim.start()
        for server in servers.servers:
            await world.until(partial(whole, server.url), "the Cluster is not whole again")


async def run(client: Redis, *command: str | bytes | int) -> Any:
    """Run a command without a client method, or one whose answer the client would convert."""
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    try:
        await connection.send_command(*str(command[0]).split(), *command[1:])
        return await connection.read_response()
    finally:
        await pool.release(connection)


FAULTS: Final[tuple[Fault, ...]] = (FailOver(), MoveSlots(), MasterDies())
