"""Lua scripts that ship with the package, run by digest and sent whole only where unknown."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError

Client = Redis | RedisCluster


class Script:
    """One file of ``scripts/``, behind what all have in common."""

    def __init__(self, name: str) -> None:
        folder = files(__package__).joinpath("scripts")
        parts = [folder.joinpath(f"{part}.lua").read_bytes() for part in ("common", name)]
        self.text = b"".join(parts)
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest()

    async def send(
        self, client: Client, keys: Sequence[bytes], arguments: Sequence[bytes | int]
    ) -> Any:
        """The script's answer; its text is sent whole."""
        return await client.execute_command("EVAL", self.text, len(keys), *keys, *arguments)

    async def run(
        self, client: Client, keys: Sequence[bytes], arguments: Sequence[bytes | int]
    ) -> Any:
        """The script's answer; after a restart of the server the text is sent once more."""
        try:
            return await client.execute_command("EVALSHA", self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.send(client, keys, arguments)
