"""Checks the configuration of Redis before a worker stores state in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import RedisCluster

from stream_metrics.live.ports import StoreRefused, StoreUnavailable
from stream_metrics.live.redis.errors import translate_error
from stream_metrics.live.redis.rights import describe_missing_rights
from stream_metrics.live.redis.store import RedisStore

Info = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and what to do about it; a warning unless ``fatal``."""

    message: str
    fatal: bool


async def check(store: RedisStore) -> list[Problem]:
    """The problems of all masters that ``store`` would write to; raises no Redis errors."""
    try:
        memory = await _info(store, "memory")
        persistence = await _info(store, "persistence")
        lacks = await describe_missing_rights(store.client, store.keys, store.namespace)
    except Exception as error:
        problem = translate_error(error)
        if isinstance(problem, (StoreUnavailable, StoreRefused)):
            return [Problem(str(problem), fatal=True)]
        raise
    problems = [Problem(lacks, fatal=True)] if lacks else []
    for node, info in memory.items():
        problems += _memory_problems(node, info)
    for node, info in persistence.items():
        if not info.get("aof_enabled"):
            problems.append(
                Problem(
                    f"{node} has no append-only file, so after a restart state goes back to the "
                    "last snapshot and Kafka is read again from there. Set `appendonly yes`",
                    fatal=False,
                )
            )
    return problems


async def memory_bytes(store: RedisStore) -> tuple[int, int]:
    """Used memory and ``maxmemory`` of all masters, in bytes; 0 means no limit.

    Raises ``StoreUnavailable``.
    """
    try:
        nodes = (await _info(store, "memory")).values()
    except Exception as error:
        raise translate_error(error) from error
    return (
        sum(int(info.get("used_memory", 0)) for info in nodes),
        sum(int(info.get("maxmemory", 0)) for info in nodes),
    )


async def max_memory_ratio(store: RedisStore) -> float:
    """Used memory over ``maxmemory``, of the fullest master; 0 if none has a limit.

    Raises ``StoreUnavailable``.
    """
    try:
        nodes = (await _info(store, "memory")).values()
    except Exception as error:
        raise translate_error(error) from error
    limited = [info for info in nodes if int(info.get("maxmemory", 0))]
    return max((int(n["used_memory"]) / int(n["maxmemory"]) for n in limited), default=0.0)


def _memory_problems(node: str, info: Info) -> list[Problem]:
    policy = info.get("maxmemory_policy", "unknown")
    if policy == "noeviction":
        return []
    message = (
        f"{node} has the maxmemory-policy {policy}, which deletes state when memory is full. "
        "Set `maxmemory-policy noeviction`, or start with `--force`"
    )
    return [Problem(message, fatal=True)]


async def _info(store: RedisStore, section: str) -> dict[str, Info]:
    """A section of INFO, by server."""
    client = store.client
    if isinstance(client, RedisCluster):
        await client.initialize()
        found: Any = await client.info(section, target_nodes=client.get_primaries())
        if (
            "maxmemory_policy" in found or "aof_enabled" in found
        ):  # the client returns one node's without its name
            return {"Redis": found}
        return dict(found)
    return {"Redis": await client.info(section)}
