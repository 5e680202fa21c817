"""Waits for external conditions by polling, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.002
LONGEST_PAUSE_SECONDS = 0.05


class DeadlinePassed(AssertionError):
    """A condition did not become true in time."""


@overload
async def wait_until(
    predicate: Callable[[], Awaitable[T]],
    deadline_seconds: float,
    message: str | Callable[[], str],
) -> T: ...
@overload
async def wait_until(
    predicate: Callable[[], T],
    deadline_seconds: float,
    message: str | Callable[[], str],
) -> T: ...
async def wait_until(
    predicate: Callable[[], T] | Callable[[], Awaitable[T]],
    deadline_seconds: float,
    message: str | Callable[[], str],
) -> T:
    """Poll until ``predicate`` returns a true value, and return that value.

    ``predicate`` may be a function or a coroutine function; its errors are raised. ``message`` says
    what did not happen; a function is called only at the deadline.
    """
    ends = time.monotonic() + deadline_seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        found = predicate()
        value: T = await found if inspect.isawaitable(found) else found
        if value:
            return value
        if time.monotonic() >= ends:
            said = message if isinstance(message, str) else message()
            raise DeadlinePassed(f"{said} (waited {deadline_seconds:g} s; last: {value!r})")
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
