"""An endpoint that takes events over HTTP as `stream-metrics serve` does, with faults.

It runs in a thread, on a port of its own, and can go away and come back there.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from deploy.local.process import free_port
from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.limits import Limits
from tests.endpoint import ThreadedServer

Take = Callable[[web.Request], Awaitable[web.Response]]
Fault = Callable[[web.Request, Take], Awaitable[web.Response]]
"""What a request meets: it may let the endpoint take the events."""

JSON_LINES: Final = "application/x-ndjson"


@dataclass
class EventsEndpoint:
    """What has been asked and accepted so far; each request meets the next of ``faults``."""

    token: str | None = None
    tls: ssl.SSLContext | None = None
    port: int = field(default_factory=free_port)
    faults: deque[Fault] = field(default_factory=deque)
    accepted: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[int] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    peers: set[Any] = field(default_factory=set)
    _server: ThreadedServer | None = None

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def ids(self) -> list[str]:
        """The ids of the accepted events, in order."""
        return [event["event_id"] for event in self.accepted]

    def start(self) -> None:
        """Listen, until ``stop``."""
        self._server = ThreadedServer(self.port, "/v1/events", self._meet, self.tls)
        self._server.start()

    def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    async def _meet(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        if self.faults:
            return await self.faults.popleft()(request, self._take)
        return await self._take(request)

    async def _take(self, request: web.Request) -> web.Response:
        if self.token is not None and (
            request.headers.get("Authorization") != f"Bearer {self.token}"
        ):
            return web.json_response({"error": "no or a wrong token"}, status=401)
        body = await request.read()
        assert request.content_type == JSON_LINES
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        self.bodies.append(len(body))
        refused, lines = [], body.split(b"\n")[:-1]
        for place, line in enumerate(lines, start=1):
            found = decode(line, limits=Limits())
            if isinstance(found, BadRecord):
                refused.append({"place": place, "reason": found.reason, "message": found.message})
            else:
                self.accepted.append(json.loads(line))
        accepted = len(lines) - len(refused)
        answer = {"accepted": accepted, "refused": refused}
        return web.json_response(answer, status=200 if accepted else 400)


@contextmanager
def events_endpoint(tls: ssl.SSLContext | None = None) -> Iterator[EventsEndpoint]:
    """An endpoint that listens."""
    found = EventsEndpoint(tls=tls)
    found.start()
    try:
        yield found
    finally:
        found.stop()


# --- faults ---------------------------------------------------------------------------------------


def answers(status: int, body: Any = None, **headers: str) -> Fault:
    """The request is answered so, and no event is accepted."""

    async def fault(request: web.Request, _: Take) -> web.Response:
        await request.read()
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, str):
            return web.Response(text=body, status=status, headers=told, content_type="text/html")
        return web.json_response(body, status=status, headers=told)

    return fault


async def takes(request: web.Request, take: Take) -> web.Response:
    """No fault."""
    return await take(request)


async def resets(request: web.Request, _: Take) -> web.Response:
    """The connection ends, and no event is accepted."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def loses_answer(request: web.Request, take: Take) -> web.Response:
    """Events are accepted, and the connection ends before the answer."""
    await take(request)
    return await resets(request, take)


async def never_answers(request: web.Request, _: Take) -> web.Response:
    """The events are read, and nothing is said until the client goes."""
    await request.read()
    while request.transport is not None:
        await asyncio.sleep(0.005)
    return web.Response()
