"""Encodes commands with hiredis, in C; the client's asynchronous connections do it in Python."""

from __future__ import annotations

from typing import Any, TypeVar

import hiredis
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import AbstractConnection

C = TypeVar("C", bound=AbstractConnection)


class HiredisPacking:
    """A mixin for connection classes that encodes commands with hiredis."""

    def pack_command(self, *arguments: Any) -> list[bytes]:
        """The encoded command; a name of two words, such as CONFIG GET, is two arguments."""
        name, *rest = arguments
        words = name.encode().split() if isinstance(name, str) else name.split()
        try:
            return [hiredis.pack_command((*words, *rest))]
        except TypeError:  # the client accepts more types, and names those that it rejects
            packed: list[bytes] = super().pack_command(*arguments)  # type: ignore[misc]
            return packed


def packing_class(connections: type[C]) -> type[C]:
    """A subclass of a connection class with ``HiredisPacking``."""
    return type(f"Packing{connections.__name__}", (HiredisPacking, connections), {})


def use_hiredis_packing(client: Redis | RedisCluster) -> None:
    """Make a client that has not connected yet encode commands with hiredis."""
    if isinstance(client, RedisCluster):
        places = client.connection_kwargs
        places["connection_class"] = packing_class(places["connection_class"])
    else:
        pool = client.connection_pool
        pool.connection_class = packing_class(pool.connection_class)
