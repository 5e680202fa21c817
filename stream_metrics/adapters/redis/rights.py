"""What a Redis user must be allowed to do; ``docs/guides/security.md`` has it as a command."""

from __future__ import annotations

from typing import Final

from stream_metrics.adapters.redis.errors import WHOLE_COMMAND
from stream_metrics.adapters.redis.keys import PREFIX, Keys
from stream_metrics.adapters.redis.script import Client, Script

# Beside EVALSHA, EVAL and INFO, without which nothing here could be found out.
KEYED: Final = (
    "HDEL", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HSET", "TYPE", "UNLINK", "ZADD",
    "ZCARD", "ZRANGE", "ZREM",
)  # fmt: skip
WORKER: Final = (*KEYED, "TIME")

_RIGHTS: Final = Script("rights")


async def lacking(client: Client, keys: Keys, namespace: str) -> str:
    """Which rights of a worker the user lacks, as a sentence; empty if none.

    Raises what the client raises. A Redis before 7 does not tell: nothing is lacking there, and the
    worker finds out when it tries.
    """
    names = [keys.layout, keys.partition("0.0").meta]
    pairs = [(command, name) for name in names for command in WORKER]
    arguments = [part for command, name in pairs for part in (command.encode(), name)]
    denied = await _RIGHTS.send(client, [], arguments)
    await _RIGHTS.run(client, [], [])
    return _sentence({pairs[number - 1] for number in denied if number}, names, namespace)


def _sentence(found: set[tuple[str, bytes]], names: list[bytes], namespace: str) -> str:
    """What to say of commands that are denied on keys."""
    pattern = f"{PREFIX}:{namespace}:*"
    commands = [c for c in WORKER if all((c, name) in found for name in names)]
    if commands == list(KEYED):
        commands = []  # it is the keys; if nothing is allowed at all, it may be both
    nothing = len(commands) == len(WORKER)
    hidden = [
        name.decode()
        for name in names
        if nothing or any(command not in commands for command in _of(name, found))
    ]
    parts, grants = [], []
    if commands:
        parts.append(f"run {', '.join(commands)} on {pattern}")
        grants += [f"+{command.lower()}" for command in commands]
    if hidden:
        parts.append(f"use {', '.join(hidden)}")
        grants.append(f"~{pattern}")
    if not parts:
        return ""
    what = " and ".join(parts)
    return f"Redis does not let this user {what}; grant {' '.join(grants)} {WHOLE_COMMAND}"


def _of(name: bytes, found: set[tuple[str, bytes]]) -> list[str]:
    return [command for command, key in found if key == name]
