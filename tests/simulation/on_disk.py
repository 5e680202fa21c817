"""A process over a SQLite file, which dies, and whose disk fills, at any moment.

Clients send again what was not acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from stream_metrics.live.local.database import Database, FileUnavailable
from tests.simulation.disk import Disk, Ending, write_image
from tests.simulation.faults import Died

T = TypeVar("T")
Action = tuple[Any, ...]


@dataclass
class OnDisk:
    """A file in ``folder``, the process over it, and its clients."""

    seed: int
    folder: Path

    def __post_init__(self) -> None:
        self.disk = Disk(Random(self.seed))
        self.starts = 0
        self.database: Database

    async def start(self) -> None:
        """Start a process over what the last one has left."""
        self.starts += 1
        path = self.folder / f"{self.starts}.db"
        if self.disk.image is not None:
            write_image(self.disk.image, path)
            self.disk.image = None
        self.disk.mend()
        self.database = await asyncio.to_thread(Database, path, connect=self.disk.connect)
        await self._begin()

    async def act(
        self, what: str, ending: Ending | None = None, at: int = 0, count: int = 1
    ) -> None:
        """Let something happen, with an ending at the ``at``-th transaction.

        After a death, the next process is started.
        """
        self.disk.ending, self.disk.at = ending, at
        try:
            await self._do(what, count)
        except Died:
            self.disk.seen[f"died in {what}"] += 1
        self.disk.mend()
        await self._start_again()

    async def _start_again(self) -> None:
        if self.disk.image is not None:
            await self.database.close()
            await self.start()

    async def _until_stored(
        self,
        left: Sequence[T],
        store: Callable[[T], Awaitable[object]],
        stored: Callable[[T, Any], None] = lambda *_: None,
    ) -> None:
        """Store all at once, each in a request of its own, and again what was not acknowledged.

        ``stored`` is called with each and its answer.
        """
        while left:
            answers = await asyncio.gather(*map(store, left), return_exceptions=True)
            failed = []
            for one, answer in zip(left, answers, strict=True):
                if isinstance(answer, BaseException):
                    assert isinstance(answer, FileUnavailable | Died), answer
                    failed.append(one)
                else:
                    stored(one, answer)
            if self.disk.image is not None:
                self.disk.seen["died in send"] += 1
            await self._start_again()
            self.disk.mend()
            left = failed

    async def _begin(self) -> None:
        """Make the process over ``database``."""
        raise NotImplementedError

    async def _do(self, what: str, count: int) -> None:
        """Let the process do something."""
        raise NotImplementedError

    async def settle(self) -> None:
        """End all faults; the process reads what is left."""
        raise NotImplementedError

    async def check(self) -> None:
        """Raise ``AssertionError`` unless all is read, and what one pass gives."""
        raise NotImplementedError

    async def play(self, actions: Sequence[Action]) -> None:
        """Start, perform all actions, settle and compare; raises ``AssertionError``."""
        await self.start()
        for action in actions:
            await self.act(*action)
        await self.settle()
        await self.check()
        await self.database.close()
