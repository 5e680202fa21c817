"""Lua scripts of the package, run by digest, and sent in full only if the server lacks them.

redis-py's ``register_script`` would then run ``SCRIPT LOAD``: a further right and round trip, which
in a cluster needs every primary, where ``EVAL`` needs that of the keys only.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError

Client = Redis | RedisCluster


class Script:
    """One file of ``scripts/``, preceded by ``common.lua``."""

    def __init__(self, name: str) -> None:
        folder = files(__package__).joinpath("scripts")
        parts = [folder.joinpath(f"{part}.lua").read_bytes() for part in ("common", name)]
        self.text = b"".join(parts)
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest()

    async def send(
        self, client: Client, keys: Sequence[bytes], arguments: Sequence[bytes | int]
    ) -> Any:
        """Run the script by its text (EVAL); returns its reply."""
        return await client.execute_command("EVAL", self.text, len(keys), *keys, *arguments)

    async def run(
        self, client: Client, keys: Sequence[bytes], arguments: Sequence[bytes | int]
    ) -> Any:
        """Run the script by its digest (EVALSHA), or by its text if the server does not have it."""
        try:
            return await client.execute_command("EVALSHA", self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.send(client, keys, arguments)
