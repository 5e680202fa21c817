"""A server that is killed comes back with its data."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.asyncio import Redis

from deploy.local.servers import RedisServer
from deploy.local.stack import DEPLOY
from deploy.local.supervisor import Supervisor
from tests.helpers import wait_until

pytestmark = pytest.mark.service


async def test_a_redis_that_is_killed_has_every_write_again(tmp_path: Path) -> None:
    """With the configuration of the stack, what was acknowledged before SIGKILL is there
    afterwards, at the same address.
    """
    said: list[str] = []
    server = RedisServer(tmp_path, config=DEPLOY / "redis" / "redis.conf")
    async with Supervisor(said.append, 0.1) as supervisor:
        await supervisor.start("Redis", server)
        killed = server.pid
        async with Redis.from_url(server.url) as client:
            for number in range(1_000):
                await client.incrby("sum", number)
        server.kill9()
        await wait_until(lambda: "Redis is ready again" in said, 30, lambda: "\n".join(said))

        assert server.pid != killed
        async with Redis.from_url(server.url) as client:
            assert await client.get("sum") == b"499500"
    assert not server.running
