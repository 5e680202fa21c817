"""Places for calls: of those that wait for one, who came into the sample first gets it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """So many places; whoever waits with the lowest number gets the next one."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._came = 0

    @asynccontextmanager
    async def held(self, order: int) -> AsyncIterator[None]:
        """Wait for a place, and keep it for as long as the context lasts."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(order)
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, order: int) -> None:
        given = asyncio.get_running_loop().create_future()
        self._came += 1
        heapq.heappush(self._waiting, (order, self._came, given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        """Give the place to who waits, or keep it free."""
        while self._waiting:
            *_, given = heapq.heappop(self._waiting)
            if not given.done():
                given.set_result(None)
                return
        self._free += 1
