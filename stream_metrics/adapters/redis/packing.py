"""Commands packed in C: the client's asynchronous connections do that in Python, byte by byte."""

from __future__ import annotations

from typing import Any, TypeVar

import hiredis
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import AbstractConnection

C = TypeVar("C", bound=AbstractConnection)


class Packing:
    """What a class of connections gets before its own methods."""

    def pack_command(self, *arguments: Any) -> list[bytes]:
        """The command as it is sent; a name of two words, such as CONFIG GET, is two arguments."""
        name, *rest = arguments
        words = name.encode().split() if isinstance(name, str) else name.split()
        try:
            return [hiredis.pack_command((*words, *rest))]
        except TypeError:  # the client takes some types more, and says which it does not take
            packed: list[bytes] = super().pack_command(*arguments)  # type: ignore[misc]
            return packed


def packing(connections: type[C]) -> type[C]:
    """A class of the same connections that packs so."""
    return type(f"Packing{connections.__name__}", (Packing, connections), {})


def pack_in_c(client: Redis | RedisCluster) -> None:
    """Let a client that has not connected yet pack so."""
    if isinstance(client, RedisCluster):
        places = client.connection_kwargs
        places["connection_class"] = packing(places["connection_class"])
    else:
        pool = client.connection_pool
        pool.connection_class = packing(pool.connection_class)
