"""A TCP proxy that can cut, stall and slow down what passes through it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self

Mode = Literal["open", "cut", "stall"]

CHUNK = 256 * 1024


@dataclass(eq=False)
class _Pair:
    """One client's connection and the one to the server behind it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None

    def reset(self) -> None:
        """End both at once, without the usual farewell."""
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()

    def close(self) -> None:
        """End both once what was written has gone out."""
        for writer in (self.client, self.server):
            if writer is not None:
                writer.close()


class Proxy:
    """Listens on ``port`` and forwards to ``target``.

    ``open`` forwards; ``cut`` resets every connection, also new ones; ``stall`` accepts and
    forwards nothing. ``delay_seconds`` holds each piece of an answer back for that long.
    """

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        self.port = port
        self.target = target
        self.delay_seconds = 0.0
        self._mode: Mode = "open"
        self._opened = asyncio.Event()
        self._opened.set()
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """``host:port`` for those who come through here."""
        return f"127.0.0.1:{self.port}"

    @property
    def mode(self) -> Mode:
        """What it does now."""
        return self._mode

    def set(self, mode: Mode) -> None:
        """Change what it does, for connections that are there as well."""
        self._mode = mode
        if mode == "stall":
            self._opened.clear()
        else:
            self._opened.set()
        if mode == "cut":
            for pair in list(self._pairs):
                pair.reset()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=CHUNK)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pair in list(self._pairs):
            pair.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = _Pair(writer)
        self._pairs.add(pair)
        pumps: list[asyncio.Task[None]] = []
        try:
            if self._mode == "cut":
                return
            await self._opened.wait()
            back, pair.server = await asyncio.open_connection(*self.target, limit=CHUNK)
            pumps = [
                asyncio.create_task(self._pump(reader, pair.server, lambda: 0.0)),
                asyncio.create_task(self._pump(back, writer, lambda: self.delay_seconds)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            return
        finally:
            for pump in pumps:
                pump.cancel()
            if self._mode == "cut":
                pair.reset()
            pair.close()
            self._pairs.discard(pair)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        delay: Callable[[], float],
    ) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                if seconds := delay():
                    await asyncio.sleep(seconds)
                await self._opened.wait()
                if self._mode == "cut":
                    return
                sink.write(data)
                await sink.drain()
