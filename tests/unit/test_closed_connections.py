"""Connections to servers that are reset while a request is written."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import uvloop
from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.metadata import MetadataRequest
from redis.asyncio import Redis
from redis.exceptions import RedisError

import stream_metrics.clients.kafka.options  # noqa: F401 - what all clients are made with
from stream_metrics.live.redis.connect import RedisOptions, make_client

SECONDS = 10


class Server(Thread):
    """Answers requests by ``answer`` until one has ``last`` in it, then resets the connection when
    it is told to."""

    def __init__(self, answer: Callable[[bytes], bytes], last: bytes = b"") -> None:
        super().__init__(daemon=True)
        self._answer, self._last = answer, last
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.reset, self.done = Event(), Event()

    def run(self) -> None:
        """Serve one connection."""
        with self._listener, self._listener.accept()[0] as connection:
            request = b""
            while not request or self._last not in request:
                request = connection.recv(4096)
                connection.sendall(self._answer(request))
            self.reset.wait(SECONDS)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.done.set()


def api_versions(request: bytes) -> bytes:
    """A broker's answer to the request for API versions."""
    answer = request[8:12] + struct.pack(">hihhh", 0, 1, 3, 0, 1)
    return struct.pack(">i", len(answer)) + answer


def as_redis(request: bytes) -> bytes:
    """Redis's answer to any commands."""
    return b"+OK\r\n" * request.count(b"*")


async def errors_after_a_reset(broker: Server) -> set[str]:
    """The errors of requests that are written until the connection is known to be closed."""
    connection = AIOKafkaConnection("127.0.0.1", broker.port)
    await connection.connect()
    broker.reset.set()
    assert broker.done.wait(SECONDS)  # the event loop stands still, and hears of nothing
    errors = set()
    while "KafkaConnectionError" not in errors:
        try:
            answer: Coroutine[Any, Any, Any] = connection.send(MetadataRequest([]))
        except Exception as error:
            errors.add(type(error).__name__)
        else:
            answer.close()
        await asyncio.sleep(0)
    connection.close()
    return errors


def test_a_connection_that_uvloop_has_closed_raises_an_error_of_the_client() -> None:
    """Any other error ends the client's own tasks, so that a worker waits forever."""
    broker = Server(api_versions)
    broker.start()

    assert uvloop.run(errors_after_a_reset(broker)) == {"KafkaConnectionError"}


async def error_of_redis_after_a_reset(server: Server) -> str:
    """The error of a command on a connection that is known to be reset."""
    client, _ = make_client(RedisOptions(url=f"redis://127.0.0.1:{server.port}/0"))
    assert isinstance(client, Redis)
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    await connection.send_command("PING")
    await connection.read_response()
    server.reset.set()
    with suppress(RedisError):
        await connection.read_response(disconnect_on_error=False)
    try:
        await connection.send_command("PING")
    except Exception as error:
        return type(error).__name__
    finally:
        await connection.disconnect()
    return ""


def test_a_connection_that_uvloop_has_closed_raises_an_error_of_the_redis_client() -> None:
    """Any other error ends the worker. In a Cluster nothing else tells it of a connection that was
    reset while nobody used it."""
    server = Server(as_redis, b"PING")
    server.start()

    assert uvloop.run(error_of_redis_after_a_reset(server)) == "ConnectionError"
