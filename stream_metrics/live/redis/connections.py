"""Connections that encode commands in C, and whose errors are always those of the client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import hiredis
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError

C = TypeVar("C", bound=AbstractConnection)


class OwnConnection:
    """A mixin for connection classes."""

    def pack_command(self, *arguments: Any) -> list[bytes]:
        """The command, encoded with hiredis; the client's asynchronous connections use Python.

        A name of two words, such as CONFIG GET, is two arguments.
        """
        name, *rest = arguments
        words = name.encode().split() if isinstance(name, str) else name.split()
        try:
            return [hiredis.pack_command((*words, *rest))]
        except TypeError:  # the client accepts more types, and names those that it rejects
            packed: list[bytes] = super().pack_command(*arguments)  # type: ignore[misc]
            return packed

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        """Send a command; raises the client's errors.

        The client expects ``OSError`` from a connection that was reset while nobody used it, but
        uvloop raises ``RuntimeError``. Only a Cluster's client meets it: the others look at a
        connection before they use it.
        """
        try:
            await super().send_packed_command(command, check_health)  # type: ignore[misc]
        except RuntimeError as error:
            raise ConnectionError(f"the connection is closed: {error}") from error


def connection_class(connections: type[C]) -> type[C]:
    """A subclass of a connection class with ``OwnConnection``."""
    return type(f"Own{connections.__name__}", (OwnConnection, connections), {})


def use_own_connections(client: Redis | RedisCluster) -> None:
    """Make a client that has not connected yet use ``OwnConnection``."""
    if isinstance(client, RedisCluster):
        places = client.connection_kwargs
        places["connection_class"] = connection_class(places["connection_class"])
    else:
        pool = client.connection_pool
        pool.connection_class = connection_class(pool.connection_class)
