"""The commands that a Redis user needs; ``docs/guides/security.md`` has them as an ACL rule."""

from __future__ import annotations

from typing import Final

from stream_metrics.live.redis.errors import WHOLE_COMMAND
from stream_metrics.live.redis.keys import PREFIX, Keys
from stream_metrics.live.redis.script import Client, Script

# In addition to EVALSHA, EVAL and INFO, without which this check cannot run.
KEY_COMMANDS: Final = (
    "HDEL", "HEXISTS", "HGET", "HGETALL", "HMGET", "HSET", "TYPE", "UNLINK", "ZADD", "ZCARD",
    "ZCOUNT", "ZRANGE", "ZREM",
)  # fmt: skip
WORKER_COMMANDS: Final = (*KEY_COMMANDS, "TIME")

_RIGHTS: Final = Script("rights")


async def describe_missing_rights(client: Client, keys: Keys, namespace: str) -> str:
    """A message that names the rights of a worker that the user lacks; empty if none.

    Raises the client's errors. Redis before 7 cannot tell: the message is empty then, and missing
    rights show when they are used.
    """
    names = [keys.layout, keys.partition("0.0").meta]
    pairs = [(command, name) for name in names for command in WORKER_COMMANDS]
    arguments = [part for command, name in pairs for part in (command.encode(), name)]
    denied = await _RIGHTS.send(client, [], arguments)
    await _RIGHTS.run(client, [], [])
    return _sentence({pairs[number - 1] for number in denied if number}, names, namespace)


def _sentence(found: set[tuple[str, bytes]], names: list[bytes], namespace: str) -> str:
    """The message for commands that are denied on keys."""
    pattern = f"{PREFIX}:{namespace}:*"
    commands = [c for c in WORKER_COMMANDS if all((c, name) in found for name in names)]
    if commands == list(KEY_COMMANDS):
        commands = []  # the keys are denied, not the commands
    nothing = len(commands) == len(WORKER_COMMANDS)
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
