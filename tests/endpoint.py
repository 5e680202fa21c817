"""An HTTP server in a thread, on a port of its own, which can go away and come back there."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

Meet = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ThreadedServer:
    """Answers POST requests for ``path`` by ``meet``, while it is started."""

    def __init__(self, port: int, path: str, meet: Meet, tls: ssl.SSLContext | None = None) -> None:
        self._port, self._path, self._meet, self._tls = port, path, meet, tls
        self._stop: Callable[[], None] | None = None

    def start(self) -> None:
        """Listen, until ``stop``."""
        up = threading.Event()
        thread = threading.Thread(target=asyncio.run, args=(self._run(up),), daemon=True)
        thread.start()
        assert up.wait(60)
        stop = self._stop
        assert stop is not None

        def join() -> None:
            stop()
            thread.join(60)

        self._stop = join

    def stop(self) -> None:
        """Close the port and all connections."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    async def _run(self, up: threading.Event) -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post(self._path, self._meet)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port, ssl_context=self._tls).start()

        def stop() -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(stopped.set)

        self._stop = stop
        up.set()
        await stopped.wait()
        await runner.cleanup()
