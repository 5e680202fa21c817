"""A TCP proxy that can cut, stall and delay connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

Mode = Literal["open", "cut", "stall"]

CHUNK = 256 * 1024


@dataclass(eq=False)
class _Pair:
    """A client's connection and the one to its server; ``inode`` is the client's."""

    client: asyncio.StreamWriter
    inode: str
    server: asyncio.StreamWriter | None = None

    def reset(self) -> None:
        """Reset both connections."""
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()

    def close(self) -> None:
        """Close both connections after their buffers are sent."""
        for writer in (self.client, self.server):
            if writer is not None:
                writer.close()


class Proxy:
    """Listens on ``port`` and forwards to ``target``.

    ``open`` forwards; ``cut`` resets every connection, also new ones; ``stall`` accepts and
    forwards nothing. ``delay_seconds`` holds each piece of an answer back for that long.
    ``stall_at`` begins a stall with a request.
    """

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        self.port = port
        self.target = target
        self.delay_seconds = 0.0
        self._mode: Mode = "open"
        self._pid: int | None = None
        self._stalls_at: tuple[int, asyncio.Event] | None = None
        self._changed = asyncio.Event()
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    def set(self, mode: Mode, pid: int | None = None) -> None:
        """Change the mode, for existing connections as well.

        With ``pid`` the mode is only for that process, and others are forwarded.
        """
        self._mode, self._pid = mode, pid
        self._changed.set()
        self._changed = asyncio.Event()
        for pair in list(self._pairs):
            if self._mode_for(pair) == "cut":
                pair.reset()

    def stall_at(self, api_key: int) -> asyncio.Event:
        """Stall when a Kafka request of that kind arrives, and hold it; the event is set then."""
        held = asyncio.Event()
        self._stalls_at = api_key, held
        return held

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

    def _mode_for(self, pair: _Pair) -> Mode:
        if self._pid is None or self._mode == "open" or pair.inode in _sockets(self._pid):
            return self._mode
        return "open"

    async def _free(self, pair: _Pair) -> bool:
        """Wait while the pair is stalled; returns whether to forward."""
        while (mode := self._mode_for(pair)) == "stall":
            await self._changed.wait()
        return mode == "open"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = _Pair(writer, _inode(writer.get_extra_info("peername")[1], self.port))
        self._pairs.add(pair)
        pumps: list[asyncio.Task[None]] = []
        try:
            if not await self._free(pair):
                return
            back, pair.server = await asyncio.open_connection(*self.target, limit=CHUNK)
            pumps = [
                asyncio.create_task(self._pump(pair, reader, pair.server)),
                asyncio.create_task(self._pump(pair, back, writer)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            return
        finally:
            for pump in pumps:
                pump.cancel()
            if self._mode_for(pair) == "cut":
                pair.reset()
            pair.close()
            self._pairs.discard(pair)

    async def _pump(
        self,
        pair: _Pair,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                if sink is pair.server:
                    self._look_at(data)
                elif self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                if not await self._free(pair):
                    return
                sink.write(data)
                await sink.drain()

    def _look_at(self, data: bytes) -> None:
        """Stall if this is the request to stall at; requests sent together with it are missed."""
        if self._stalls_at is None:
            return
        api_key, held = self._stalls_at
        if data[:4] == (len(data) - 4).to_bytes(4) and data[4:6] == api_key.to_bytes(2):
            self._stalls_at = None
            self.set("stall")
            held.set()


def _inode(client_port: int, port: int) -> str:
    """The inode of the client's end of a loopback connection; empty if it is closed."""
    ends = [f"0100007F:{client_port:04X}", f"0100007F:{port:04X}"]
    for line in Path("/proc/net/tcp").read_text().splitlines():
        words = line.split()
        if words[1:3] == ends:
            return words[9]
    return ""


def _sockets(pid: int) -> set[str]:
    """The inodes of all open sockets of a process."""
    found = set()
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found
