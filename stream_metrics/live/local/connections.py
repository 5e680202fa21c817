"""An HTTP server that bounds its connections, and the time that each may be silent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web

MAX_CONNECTIONS: Final = 1_000
SILENT_SECONDS: Final = 20.0  # between two requests, and before the headers of one are complete
LINGER_SECONDS: Final = 1.0  # for which the rest of a refused body is read, so that the answer is
STOP_SECONDS: Final = 5.0  # how long requests may take once the server stops

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class LimitedServer:
    """Serves ``app``. For each further connection, the one that is silent the longest is closed."""

    def __init__(
        self,
        app: web.Application,
        max_connections: int = MAX_CONNECTIONS,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._max_connections = max_connections
        self._busy: set[object] = set()
        app.middlewares.insert(0, _Busy(self._busy))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=silent_seconds,
            lingering_time=LINGER_SECONDS,
            shutdown_timeout=STOP_SECONDS,
        )
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; the port. Raises ``OSError``."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._protocol, host, port, ssl=tls, backlog=128
            )
        except OSError:
            await self._runner.cleanup()
            raise
        return cast(int, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Finish the requests, and close all connections."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _protocol(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        assert server is not None
        connections = server.connections  # in the order in which they came
        if len(connections) >= self._max_connections:
            silent = next((one for one in connections if one not in self._busy), None)
            if silent is None:
                return _Closed()
            silent.force_close()
        return server()


class _Busy:
    """An aiohttp middleware that keeps the set of connections whose requests are under way."""

    __middleware_version__ = 1  # marks a new-style middleware for aiohttp

    def __init__(self, busy: set[object]) -> None:
        self._busy = busy

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer the request."""
        self._busy.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._busy.discard(request.protocol)


class _Closed(asyncio.Protocol):
    """Closes its connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        cast(asyncio.Transport, transport).abort()
