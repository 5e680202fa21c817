"""A Redis Cluster as child processes on free loopback ports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, Self

from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError

from deploy.local.process import Served, ServerFailed
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until

NODE_TIMEOUT_MS = "1000"


class RedisCluster(Served):
    """Several masters that share the slots, each with so many replicas.

    ``servers`` has all nodes; the masters are the first ones at the start.
    """

    def __init__(
        self,
        folder: Path,
        *,
        masters: int = 3,
        replicas: int = 0,
        fsync: Literal["always", "everysec", "no"] = "always",
        options: Mapping[str, str] | None = None,
    ) -> None:
        ours = {"cluster-enabled": "yes", "cluster-node-timeout": NODE_TIMEOUT_MS}
        self.servers = [
            RedisServer(
                folder / f"redis-{number}", fsync=fsync, options={**(options or {}), **ours}
            )
            for number in range(masters * (1 + replicas))
        ]
        self._replicas = str(replicas)

    @property
    def url(self) -> str:
        """The address of one node, through which clients find the others."""
        return self.servers[0].url

    async def start(self) -> Self:
        """Start the nodes and give them their slots; returns when each sees all slots served."""
        for server in self.servers:
            await server.start()
        places = [f"127.0.0.1:{server.port}" for server in self.servers]
        process = await asyncio.create_subprocess_exec(
            "redis-cli", "--cluster", "create", *places,
            "--cluster-replicas", self._replicas, "--cluster-yes",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        if process.returncode != 0:
            raise ServerFailed(f"the Cluster could not be created:\n{said.decode()}")
        for server in self.servers:
            await wait_until(partial(whole, server.url), 30, "the Cluster is incomplete")
        return self

    async def stop(self) -> None:
        """SIGTERM to all nodes, SIGKILL to those still running after the deadline."""
        await asyncio.gather(*(server.stop() for server in self.servers))

    def kill9(self) -> None:
        """SIGKILL to all nodes; returns when they are gone."""
        for server in self.servers:
            server.kill9()

    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except BaseException:
            self.kill9()
            raise


async def whole(url: str) -> bool:
    """Whether this node sees all slots served; one that loads its data does not say."""
    try:
        async with Redis.from_url(url) as node:
            found = await node.cluster("INFO")
    except BusyLoadingError:
        return False
    return str(found["cluster_state"]) == "ok"
