"""The servers of a round: brokers behind proxies, and Redis alone, behind Sentinel or in a Cluster.

``inside`` settings and options lead to the servers themselves, ``outside`` settings by the proxies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ConnectionError, RedisError

from deploy.local.install import FAKETIME, REDIS, library, program
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import ChildProcess, free_port
from deploy.local.redis_cluster import RedisCluster, whole
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.live.redis.connect import RedisOptions
from tests.campaign.clock import Clock
from tests.campaign.proxy import Proxy

# Without rewrites the append-only file can be copied while it is written.
ONLY_APPEND: Final = {"auto-aof-rewrite-percentage": "0"}
SERVICE: Final = "state"
DOWN_AFTER_MS: Final = 3_000  # long enough not to fail over on a busy machine

# A replica is promoted only where a fault asks for it, and then however old its copy is.
UNTIL_ASKED: Final = {"cluster-replica-no-failover": "yes", "cluster-replica-validity-factor": "0"}


class Brokers:
    """Kafka, and a proxy before each broker."""

    def __init__(self, folder: Path, count: int) -> None:
        doors = [(free_port(), free_port()) for _ in range(count)]
        self.kafka = Kafka(
            folder,
            brokers=count,
            properties={"log.cleaner.backoff.ms": "300"},  # compacts as soon as there is something
            outside=[(f"127.0.0.1:{inner}", f"127.0.0.1:{outer}") for inner, outer in doors],
        )
        self.proxies = [Proxy(outer, ("127.0.0.1", inner)) for inner, outer in doors]

    async def start(self, running: AsyncExitStack) -> None:
        """Start all; ``running`` stops them."""
        for proxy in self.proxies:
            await running.enter_async_context(proxy)
        running.callback(self.kafka.kill9)
        await self.kafka.start()

    @property
    def outside(self) -> str:
        """Where workers connect."""
        return ",".join(proxy.address for proxy in self.proxies)


class StateServers:
    """The Redis servers of a round."""

    proxy: Proxy

    def options(self, namespace: str) -> RedisOptions:
        """How to look at the state without a proxy."""
        raise NotImplementedError

    def inside(self) -> dict[str, str]:
        """Settings of commands."""
        raise NotImplementedError

    def outside(self) -> dict[str, str]:
        """Settings of workers."""
        return self.inside()

    async def start(self, running: AsyncExitStack) -> None:
        """Start all; ``running`` stops them."""
        raise NotImplementedError


class TroubledRedis(RedisServer):
    """A server that can load its file slowly and have a wrong clock.

    ``loads_for_seconds`` is for the next start. ``clock`` is the file that libfaketime reads how
    wrong the clock is from; the monotonic clock stays right.
    """

    loads_for_seconds: float = 0.0

    def __init__(self, folder: Path, *, has_clock: bool) -> None:
        super().__init__(folder, options=ONLY_APPEND)
        self.clock = Clock(folder / "clock")
        self._has_clock = has_clock

    async def prepare(self) -> None:
        """Have a clock file before the process looks for it."""
        self.clock.set(0)

    def command(self) -> list[str]:
        """The usual command; where loading is to take long, with a pause after each write."""
        if not self.loads_for_seconds:
            return super().command()
        writes = sum(path.read_bytes().count(b"\n*") for path in self.folder.glob("*/*.aof"))
        pause = max(1, int(1e6 * self.loads_for_seconds / max(1, writes)))
        slow = ["--key-load-delay", str(pause), "--loading-process-events-interval-bytes", "1024"]
        return [*super().command(), *slow]

    def environment(self) -> Mapping[str, str]:
        """The clock's settings."""
        if not self._has_clock:
            return {}
        return {
            # jemalloc asks for the time while libfaketime allocates to find it: not with libc's
            "LD_PRELOAD": f"{library(FAKETIME)} libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self.clock.file),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


class PlainRedis(StateServers):
    """One server behind a proxy."""

    def __init__(self, folder: Path, *, has_clock: bool = False) -> None:
        self.server = TroubledRedis(folder / "redis", has_clock=has_clock)
        self.proxy = Proxy(free_port(), ("127.0.0.1", self.server.port))

    def options(self, namespace: str) -> RedisOptions:
        return RedisOptions(url=self.server.url, namespace=namespace, socket_timeout_seconds=1)

    def inside(self) -> dict[str, str]:
        return {"STREAM_METRICS_REDIS__URL": self.server.url}

    def outside(self) -> dict[str, str]:
        return {"STREAM_METRICS_REDIS__URL": f"redis://{self.proxy.address}/0"}

    async def start(self, running: AsyncExitStack) -> None:
        await running.enter_async_context(self.proxy)
        running.callback(self.server.kill9)
        await self.server.start()


class SentinelProcess(ChildProcess):
    """A single Sentinel with short time-outs."""

    name = "sentinel"

    def __init__(self, folder: Path, master: RedisServer) -> None:
        super().__init__(folder)
        self.port = free_port()
        self._master = master

    async def prepare(self) -> None:
        """Write its configuration, which it rewrites itself."""
        (self.folder / "sentinel.conf").write_text(
            f"port {self.port}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._master.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 6000\n"
        )

    def command(self) -> list[str]:
        """``redis-server sentinel.conf --sentinel``."""
        return [program(REDIS), "sentinel.conf", "--sentinel"]

    async def ready(self) -> bool:
        """Whether it knows master and replica."""
        found: Any = None
        with suppress(RedisError, OSError):
            async with Redis(port=self.port) as client:
                found = await client.sentinel_slaves(SERVICE)
        return bool(found)


class ReplicatedRedis(StateServers):
    """Masters with a replica each."""

    servers: list[RedisServer]

    async def master_of(self, slot: int) -> RedisServer:
        """The master that serves a slot."""
        raise NotImplementedError

    async def replica_of(self, master: RedisServer) -> RedisServer:
        """The replica of a master."""
        for server in self.servers:
            if (await replication(server.url)).get("master_port") == master.port:
                return server
        raise AssertionError(f"the master at {master.url} has no replica")

    async def in_step(self) -> bool:
        """Whether half of the servers copy the others, whichever of them lead now."""
        linked = [await linked_at(server.url) for server in self.servers]
        return sum(linked) == len(self.servers) // 2


class SentinelRedis(ReplicatedRedis):
    """A master, a replica, and a Sentinel that promotes the replica when the master is down."""

    def __init__(self, folder: Path) -> None:
        options = {**ONLY_APPEND, "repl-diskless-sync-delay": "0"}
        self.servers = [
            RedisServer(folder / f"redis-{number}", options=options) for number in range(2)
        ]
        self.sentinel = SentinelProcess(folder / "sentinel", self.servers[0])

    def options(self, namespace: str) -> RedisOptions:
        return RedisOptions(
            namespace=namespace,
            sentinels=(f"127.0.0.1:{self.sentinel.port}",),
            sentinel_service=SERVICE,
            socket_timeout_seconds=1,
        )

    def inside(self) -> dict[str, str]:
        return {
            "STREAM_METRICS_REDIS__SENTINELS": json.dumps([f"127.0.0.1:{self.sentinel.port}"]),
            "STREAM_METRICS_REDIS__SENTINEL_SERVICE": SERVICE,
        }

    async def start(self, running: AsyncExitStack) -> None:
        for server in self.servers:
            running.callback(server.kill9)
            await server.start()
        master, replica = self.servers
        async with Redis.from_url(replica.url) as client:
            await client.replicaof("127.0.0.1", str(master.port))
        await wait_until(partial(linked_at, replica.url), 30, "the replica does not copy")
        running.callback(self.sentinel.kill9)
        await self.sentinel.start()

    async def master_of(self, slot: int) -> RedisServer:
        """The only master."""
        first, second = self.servers
        return first if await leads(first.url) else second


class ClusterRedis(ReplicatedRedis):
    """Three masters with a replica each."""

    def __init__(self, folder: Path) -> None:
        options = {**ONLY_APPEND, **UNTIL_ASKED, "repl-diskless-sync-delay": "0"}
        self._cluster = RedisCluster(folder, replicas=1, options=options)
        self.servers = self._cluster.servers

    def options(self, namespace: str) -> RedisOptions:
        return RedisOptions(
            url=self._cluster.url, namespace=namespace, cluster=True, socket_timeout_seconds=1
        )

    def inside(self) -> dict[str, str]:
        return {
            "STREAM_METRICS_REDIS__URL": self._cluster.url,
            "STREAM_METRICS_REDIS__CLUSTER": "true",
        }

    async def start(self, running: AsyncExitStack) -> None:
        running.callback(self._cluster.kill9)
        await self._cluster.start()
        await wait_until(self.in_step, 30, "the replicas do not copy")

    async def in_step(self) -> bool:
        """Whether each master has its copy, and all nodes see all slots served."""
        served = [await whole(server.url) for server in self.servers]
        return all(served) and await super().in_step()

    async def masters(self) -> list[RedisServer]:
        """The masters as they are now."""
        return [server for server in self.servers if await leads(server.url)]

    async def master_of(self, slot: int) -> RedisServer:
        [leader, *_] = await self.masters()
        async with Redis.from_url(leader.url) as client:
            ranges = await client.cluster("SLOTS")
        [port] = [nodes[0][1] for first, last, *nodes in ranges if first <= slot <= last]
        return next(server for server in self.servers if server.port == port)


async def linked_at(url: str) -> bool:
    """Whether this server is a replica in step with its master."""
    return (await replication(url)).get("master_link_status") == "up"


async def leads(url: str) -> bool:
    """Whether this server is a master."""
    return (await replication(url)).get("role") == "master"


async def replication(url: str) -> dict[str, Any]:
    """What a server says of it; nothing while it gets another role, and cuts us off."""
    try:
        async with Redis.from_url(url) as client:
            found: dict[str, Any] = await client.info("replication")
    except ConnectionError:
        return {}
    return found
