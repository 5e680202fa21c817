"""Connections to brokers that are reset while a request is written."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Coroutine
from threading import Event, Thread
from typing import Any

import uvloop
from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.metadata import MetadataRequest

import stream_metrics.clients.kafka.options  # noqa: F401 - what all clients are made with

SECONDS = 10


class Broker(Thread):
    """Answers the request for API versions, and resets the connection when it is told to."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.reset, self.done = Event(), Event()

    def run(self) -> None:
        """Serve one connection."""
        with self._listener, self._listener.accept()[0] as connection:
            request = connection.recv(4096)
            answer = request[8:12] + struct.pack(">hihhh", 0, 1, 3, 0, 1)
            connection.sendall(struct.pack(">i", len(answer)) + answer)
            self.reset.wait(SECONDS)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.done.set()


async def errors_after_a_reset(broker: Broker) -> set[str]:
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
    broker = Broker()
    broker.start()

    assert uvloop.run(errors_after_a_reset(broker)) == {"KafkaConnectionError"}
