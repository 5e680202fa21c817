"""A store whose calls count down to a crash of the process, before or after a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from stream_metrics.live.ports import StateStore

GENERATORS = frozenset({"conversations"})


class Crash(BaseException):
    """The process dies here: nothing may catch it as if it were an error."""


class Fuse:
    """Dies when it has been passed ``left`` times; never if that is None."""

    def __init__(self, left: int | None = None) -> None:
        self.left = left

    def passing(self, place: str) -> None:
        """Count, and die if it is time."""
        if self.left == 0:
            raise Crash(place)
        if self.left is not None:
            self.left -= 1


class Fused:
    """A store in the hands of a process with a fuse."""

    def __init__(self, store: StateStore, fuse: Fuse) -> None:
        self._store = store
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        """Any other call passes the fuse before and after it; a listing before it alone."""
        method = getattr(self._store, name)
        if name in GENERATORS:
            self._fuse.passing(f"before {name}")
            return method
        return fused(name, method, self._fuse)


def fused(
    name: str, method: Callable[..., Awaitable[Any]], fuse: Fuse
) -> Callable[..., Awaitable[Any]]:
    """The same call, by a process that may die."""

    async def call(*arguments: Any, **options: Any) -> Any:
        fuse.passing(f"before {name}")
        result = await method(*arguments, **options)
        fuse.passing(f"after {name}")
        return result

    return call
