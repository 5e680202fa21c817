"""Calls that may be computed in another process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")


class Submit(Protocol):
    """Submits a call and returns a function that waits for its result or raises its exception."""

    def __call__(self, call: Callable[..., _T], *arguments: Any) -> Callable[[], _T]: ...


def deferred(call: Callable[..., _T], *arguments: Any) -> Callable[[], _T]:
    """Defer the call: this process makes it when the result is requested.

    >>> deferred(max, 1, 2)()
    2
    """
    return partial(call, *arguments)
