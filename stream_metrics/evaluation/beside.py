"""What can be computed beside the rest: in other processes, where there are some."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")


class Begin(Protocol):
    """Begins a call; what it gives back waits for the result, and raises what the call raises."""

    def __call__(self, call: Callable[..., _T], *arguments: Any) -> Callable[[], _T]: ...


def here(call: Callable[..., _T], *arguments: Any) -> Callable[[], _T]:
    """Begins nothing: the call is made in this process when its result is asked for.

    >>> here(max, 1, 2)()
    2
    """
    return partial(call, *arguments)
