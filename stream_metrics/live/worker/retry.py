"""Retries calls with capped exponential backoff, and reports why on ``/readyz``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from stream_metrics.live.ports import StoreUnavailable, Unavailable

T = TypeVar("T")


class Retry(Protocol):
    """Repeats a call while it raises ``Unavailable``."""

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of ``call`` once it succeeds."""
        ...


class Reasons(Protocol):
    """Receives the reasons why the worker is not ready, or what it holds until somebody decides."""

    def set(self, reason: str, why: str) -> None: ...
    def hold(self, reason: str, why: str) -> None: ...
    def clear(self, reason: str) -> None: ...
    def beat(self) -> None: ...


class ComponentReasons:
    """Prefixes the reasons of a component that runs beside the worker's loop with its name."""

    def __init__(self, name: str, reasons: Reasons) -> None:
        self._name = name
        self._reasons = reasons

    def set(self, reason: str, why: str) -> None:
        """See ``Reasons``."""
        self._reasons.set(f"{self._name}_{reason}", why)

    def hold(self, reason: str, why: str) -> None:
        """See ``Reasons``."""
        self._reasons.hold(f"{self._name}_{reason}", why)

    def clear(self, reason: str) -> None:
        """See ``Reasons``."""
        self._reasons.clear(f"{self._name}_{reason}")

    def beat(self) -> None:
        """Ignored: progress of a component does not show that the loop is alive."""


class Stopped(Exception):
    """The worker was stopped while it waited."""


class RetryPolicy:
    """Repeats a call until it succeeds; meanwhile ``reasons`` says what it waits for.

    ``on_error`` is called for every failure of the store. The delay starts at twice
    ``first_seconds`` and doubles up to ``cap_seconds``. After ``stop``, a running call has
    ``grace_seconds`` to finish. ``waiting`` has the reasons of the calls that are being retried.
    """

    def __init__(
        self,
        reasons: Reasons,
        on_error: Callable[[], None],
        *,
        first_seconds: float = 0.05,
        cap_seconds: float = 2.0,
        grace_seconds: float = 5.0,
    ) -> None:
        self._reasons = reasons
        self._on_error = on_error
        self._first = first_seconds
        self._cap = cap_seconds
        self._grace = grace_seconds
        self._stopping = asyncio.Event()
        self.waiting: set[str] = set()

    def stop(self) -> None:
        """Make every wait raise ``Stopped``."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopping.is_set()

    async def rounds(self, turn: Callable[[], Awaitable[object]]) -> None:
        """Call ``turn`` repeatedly until ``stop``."""
        with suppress(Stopped):
            while not self.stopping:
                await turn()

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of ``call`` once it succeeds; raises ``Stopped``."""
        failures = 0
        waiting: str | None = None
        while True:
            try:
                result = await self._call_unless_stopped(call)
            except Unavailable as error:
                if waiting not in (None, error.reason):
                    self._clear(waiting)
                waiting, reason = error.reason, str(error)
                if isinstance(error, StoreUnavailable):
                    self._on_error()
            except Stopped:
                raise  # keep the reason until the process ends
            except BaseException:
                self._clear(waiting)
                raise
            else:
                self._clear(waiting)
                return result
            self.waiting.add(waiting)
            self._reasons.set(waiting, reason)
            self._reasons.beat()
            failures += 1
            await self.pause(min(self._cap, self._first * 2 ** min(failures, 10)))

    def _clear(self, waiting: str | None) -> None:
        if waiting is not None:
            self.waiting.discard(waiting)
            self._reasons.clear(waiting)

    async def _call_unless_stopped(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of ``call``; raises ``Stopped`` some seconds after ``stop``."""
        work = asyncio.ensure_future(call())
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await asyncio.wait({work}, timeout=self._grace)
            if not work.done():
                raise Stopped
            return work.result()
        finally:
            stop.cancel()
            if not work.done():
                work.cancel()

    async def pause(self, seconds: float) -> None:
        """Wait for half of ``seconds`` to all of them, at random; raises ``Stopped``."""
        delay = seconds * (0.5 + random.random() / 2)  # noqa: S311 - jitter, no secret
        try:
            await asyncio.wait_for(self._stopping.wait(), delay)
        except TimeoutError:
            return
        raise Stopped
