"""Keeps child processes running: one that ends is started again, unless it keeps ending."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from deploy.local.process import ChildProcess, ServerFailed

MOST_ENDS: Final = 5
WITHIN_SECONDS: Final = 60.0
FIRST_PAUSE_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.2
SHOWN_LINES: Final = 5
LAST_LINES: Final = 20


class Ends:
    """When one process has ended, and so whether it is started again."""

    def __init__(self, first_pause_seconds: float = FIRST_PAUSE_SECONDS) -> None:
        self._first_pause_seconds = first_pause_seconds
        self._recent: list[float] = []

    def pause(self, now: float) -> float | None:
        """Note an end at ``now``, in seconds of any clock that never goes back.

        Returns the seconds until the next start, which double with each end of the last minute.
        None gives the process up: this was its fifth end within a minute.
        """
        self._recent = [one for one in self._recent if now - one < WITHIN_SECONDS]
        self._recent.append(now)
        if len(self._recent) >= MOST_ENDS:
            return None
        return self._first_pause_seconds * 2.0 ** (len(self._recent) - 1)


class Supervisor:
    """Starts processes, starts them again when they end, and stops them.

    An async context manager: at its end, the process that was started last is stopped first.
    ``say`` is called with lines about what ends and starts. When a process is given up, ``failed``
    has a ``ServerFailed`` with the end of its log.
    """

    def __init__(
        self, say: Callable[[str], None], first_pause_seconds: float = FIRST_PAUSE_SECONDS
    ) -> None:
        self._say = say
        self._first_pause_seconds = first_pause_seconds
        self._stopping = AsyncExitStack()
        self._watching: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        if not self.failed.cancel():
            self.failed.exception()  # asyncio reports an error that nobody has looked at
        await self._stopping.aclose()

    async def start(self, name: str, child: ChildProcess) -> None:
        """Start a process; returns once it answers, and raises the errors of this first start."""
        self._stopping.push_async_callback(child.stop)
        await child.start()
        self._say(f"  started: {name}")
        task = asyncio.create_task(self._watch(name, child))
        task.add_done_callback(self._fail)
        self._watching.append(task)

    def _fail(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.failed.done():
            return
        error = task.exception()
        if error is not None:
            self.failed.set_exception(error)

    async def _watch(self, name: str, child: ChildProcess) -> None:
        ends = Ends(self._first_pause_seconds)
        while True:
            while child.running:
                await asyncio.sleep(LOOK_SECONDS)
            await self._start_again(name, child, ends.pause(time.monotonic()))

    async def _start_again(self, name: str, child: ChildProcess, pause: float | None) -> None:
        code = child.exit_code
        how = f"{name}, process {child.pid}, {_ended(code)}"
        if code in child.final_codes:
            raise ServerFailed(f"{how}: it cannot run like this. {_log(child, LAST_LINES)}")
        if pause is None:
            often = f"{MOST_ENDS} times within {WITHIN_SECONDS:.0f} s"
            raise ServerFailed(f"{how}. It ended {often}. {_log(child, LAST_LINES)}")
        self._say(f"{how}. {_log(child, SHOWN_LINES)}")
        self._say(f"{name} starts again in {pause:g} s")
        await asyncio.sleep(pause)
        await child.prepare()
        child.launch()
        self._say(f"{name} is started again: process {child.pid}")
        while child.running:
            if await child.ready():
                self._say(f"{name} is ready again")
                return
            await asyncio.sleep(LOOK_SECONDS)


def _log(child: ChildProcess, most: int) -> str:
    """The last lines of a log that are not blank."""
    lines = [line for line in child.log_tail().splitlines() if line.strip()]
    return "\n".join(["The end of its log:", *(f"  {line}" for line in lines[-most:])])


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with exit code {code}"
