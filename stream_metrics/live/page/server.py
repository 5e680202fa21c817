"""The routes of the page: ``/`` and its assets, ``/api/state``, ``/api/stream``, ``/api/worst``.

They are routes of the application that serves ``/metrics``, with the same access control. The
stream consists of server-sent events, each a whole document, so that a client may miss some.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.resources
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web

from stream_metrics.core.engine.codec import UnknownSchema
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.events.bugs import Bug
from stream_metrics.live.auth import Handler
from stream_metrics.live.page.board import Board, View
from stream_metrics.live.page.operations import SAMPLE_SECONDS
from stream_metrics.live.page.worst import TooManyRequests, WorstConversations
from stream_metrics.live.ports import StoreRefused, StoreUnavailable

MAX_STREAMS: Final = 20
WRITE_SECONDS: Final = 10.0  # after which a client that does not read is disconnected
MAX_NAME_LENGTH: Final = 64  # of an agent or a release
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
HOME: Final = "page.html"
_JSON: Final = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _Asset:
    name: str
    content_type: str
    body: bytes
    tag: str


class PageServer:
    """Serves the page; at most ``max_streams`` clients get a stream, and others poll."""

    def __init__(
        self,
        board: Board,
        worst: WorstConversations,
        *,
        max_streams: int = MAX_STREAMS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._board = board
        self._worst = worst
        self._max_streams = max_streams
        self._write_seconds = write_seconds
        self._open: set[asyncio.Transport] = set()
        self._stopped = asyncio.Event()
        self._sampling: asyncio.Task[None] | None = None

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application, with their startup and shutdown handlers."""
        add_assets(app)
        app.router.add_get("/", _serve(next(one for one in _assets() if one.name == HOME)))
        app.router.add_get("/api/state", self._state)
        app.router.add_get("/api/stream", self._stream)
        app.router.add_get("/api/worst", self._worst_conversations)
        app.on_startup.append(self._start)
        app.on_shutdown.append(self._shut_down)

    async def _start(self, _: web.Application) -> None:
        self._sampling = asyncio.create_task(self._sample())

    async def _sample(self) -> None:
        while not self._stopped.is_set():
            self._board.sample()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), SAMPLE_SECONDS)

    async def _shut_down(self, _: web.Application) -> None:
        self._stopped.set()
        for transport in tuple(self._open):  # does not wait for clients that do not read
            transport.abort()
        if self._sampling is not None:
            await self._sampling
        self._board.close()
        self._worst.close()

    # -- routes ---------------------------------------------------------------------------------

    def _view(self, request: web.Request) -> View:
        """The requested view; answers 400 for invalid parameters."""
        agent = request.query.get("agent") or None
        try:
            if agent is not None and len(agent) > MAX_NAME_LENGTH:
                raise ValueError(f"an agent's name has at most {MAX_NAME_LENGTH} characters")
            return self._board.view(request.query.get("window"), agent)
        except ValueError as error:
            raise web.HTTPBadRequest(
                text=json.dumps({"error": str(error)}), content_type="application/json"
            ) from error

    async def _state(self, request: web.Request) -> web.Response:
        return _json(200, await self._board.document(self._view(request)))

    async def _worst_conversations(self, request: web.Request) -> web.Response:
        view = self._view(request)
        try:
            return _json(200, await self._worst.document(view))
        except TooManyRequests as error:
            return _error(503, str(error))
        except (StoreUnavailable, StoreRefused) as error:
            return _error(503, f"the state cannot be read now: {error}")
        except DamagedState as error:
            return _error(503, f"the state is damaged: {error}")
        except UnknownSchema as error:
            return _error(503, str(error))
        except Exception as error:
            bug = Bug.of(error)
            self._board.inputs.on_bug(bug)
            return _error(500, f"a bug, of which the worker's log has more: {bug.kind}")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        view = self._view(request)
        transport = request.transport
        if len(self._open) >= self._max_streams or self._stopped.is_set() or transport is None:
            return _error(503, f"{self._max_streams} pages are open already; this one asks instead")
        response = web.StreamResponse(
            headers={
                **HEADERS,
                hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8",
                hdrs.CACHE_CONTROL: "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        self._open.add(transport)
        try:
            await response.prepare(request)
            await self._send(response, view)
        except (TimeoutError, ConnectionError):
            transport.abort()  # does not wait for unsent data
        finally:
            self._open.discard(transport)
        return response

    async def _send(self, response: web.StreamResponse, view: View) -> None:
        """Send documents at intervals; a slow client gets fewer of them, without a backlog."""
        while not self._stopped.is_set():
            document = await self._board.document(view)
            async with asyncio.timeout(self._write_seconds):
                await response.write(b"data: " + document + b"\n\n")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), self._board.interval_seconds)


def add_assets(app: web.Application) -> None:
    """Add the style sheets, scripts and pictures of pages to an application."""
    for asset in _assets():
        if asset.name != HOME:
            app.router.add_get(f"/{asset.name}", _serve(asset))


def _assets() -> list[_Asset]:
    """Every file of ``static``."""
    found = []
    for file in (importlib.resources.files("stream_metrics.live.page") / "static").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
            found.append(_Asset(file.name, kind, body, tag))
    return found


def _serve(asset: _Asset) -> Handler:
    async def serve(request: web.Request) -> web.StreamResponse:
        headers = {**HEADERS, hdrs.CACHE_CONTROL: "no-cache", hdrs.ETAG: asset.tag}
        if asset.tag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
            return web.Response(status=304, headers=headers)
        headers[hdrs.CONTENT_TYPE] = asset.content_type
        return web.Response(body=asset.body, headers=headers)

    return serve


def _json(status: int, body: bytes) -> web.Response:
    headers = {**HEADERS, hdrs.CONTENT_TYPE: _JSON, hdrs.CACHE_CONTROL: "no-store"}
    if status == 503:
        headers[hdrs.RETRY_AFTER] = "5"
    return web.Response(status=status, body=body, headers=headers)


def _error(status: int, message: str) -> web.Response:
    return _json(status, json.dumps({"error": message}).encode())
