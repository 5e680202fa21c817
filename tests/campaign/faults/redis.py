"""Faults of one Redis: killed, rolled back, read-only, full, slow."""

from __future__ import annotations

import asyncio
import shutil
from random import Random
from typing import TYPE_CHECKING, Final

from redis.asyncio import Redis

from deploy.local.process import free_port
from tests.campaign.faults.fault import Fault, Need

if TYPE_CHECKING:
    from tests.campaign.world import World

BACKOFF_SECONDS: Final = 2.0  # the longest pause between two tries
ANSWER_SECONDS: Final = 2.0  # the socket's time-out, of the call in flight
WRITES: Final = "appendonlydir"
FEW: Final = 20  # records at least that are to be lost


class Kill(Fault):
    """SIGKILL, and a restart from the append-only file, which has every acknowledged write."""

    name = "redis_kill"
    needs = Need.PLAIN
    hold = (0.5, 6.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS
    quick = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        server = world.plain_redis.server
        server.kill9()
        await asyncio.sleep(hold_seconds)
        await server.start()


class Loading(Fault):
    """SIGKILL, and a restart that loads its file slowly and answers LOADING meanwhile."""

    name = "redis_loading"
    needs = Need.PLAIN
    hold = (3.0, 10.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        server = world.plain_redis.server
        server.kill9()
        server.loads_for_seconds = hold_seconds
        try:
            await server.start(120)
        finally:
            server.loads_for_seconds = 0.0


class RollBack(Fault):
    """SIGKILL, and a restart from an older copy of its file."""

    name = "redis_rollback"
    needs = Need.PLAIN
    hold = (1.0, 4.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS
    may_go_back = True
    quick = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        server = world.plain_redis.server
        writes, copy = server.folder / WRITES, server.folder / "copy"
        await asyncio.to_thread(shutil.copytree, writes, copy)
        copied = world.watcher.total
        try:
            await asyncio.sleep(hold_seconds)
            await world.until_past(copied + FEW)
            server.kill9()
            await asyncio.to_thread(shutil.rmtree, writes)
            copy.rename(writes)
            await server.start()
        finally:
            shutil.rmtree(copy, ignore_errors=True)


class ReadOnly(Fault):
    """Redis becomes a replica without a master, refuses writes, and becomes a master again."""

    name = "redis_read_only"
    needs = Need.PLAIN
    hold = (1.0, 6.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS
    quick = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        async with Redis.from_url(world.plain_redis.server.url) as client:
            await client.replicaof("127.0.0.1", str(free_port()))
            try:
                await asyncio.sleep(hold_seconds)
            finally:
                await client.replicaof("NO", "ONE")


class Full(Fault):
    """Redis is out of memory, and refuses commands that may need more."""

    name = "redis_full"
    needs = Need.PLAIN
    hold = (1.0, 6.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS
    quick = True

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        async with Redis.from_url(world.plain_redis.server.url) as client:
            await client.config_set("maxmemory", "1mb")
            try:
                await asyncio.sleep(hold_seconds)
            finally:
                await client.config_set("maxmemory", "0")


class Slow(Fault):
    """Every answer is delayed by a second."""

    name = "redis_slow"
    needs = Need.PLAIN
    hold = (3.0, 10.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        proxy = world.plain_redis.proxy
        proxy.delay_seconds = 1.0
        try:
            await asyncio.sleep(hold_seconds)
        finally:
            proxy.delay_seconds = 0.0


class Paused(Fault):
    """SIGSTOP: connections stay open without answers; later everything sent is executed."""

    name = "redis_paused"
    needs = Need.PLAIN
    hold = (1.0, 10.0)
    wait_seconds = BACKOFF_SECONDS + ANSWER_SECONDS

    async def strike(self, world: World, hold_seconds: float, rng: Random) -> None:
        server = world.plain_redis.server
        server.pause()
        try:
            await asyncio.sleep(hold_seconds)
        finally:
            server.resume()


FAULTS: Final[tuple[Fault, ...]] = (
    Kill(),
    Loading(),
    RollBack(),
    ReadOnly(),
    Full(),
    Slow(),
    Paused(),
)
