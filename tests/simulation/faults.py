"""A store and dead letters that fail, die or are interrupted at a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import DeadLettersUnavailable, StoreUnavailable

Kind = Literal["refused", "answer lost", "dies before", "dies after", "rebalance"]
KINDS: Final[tuple[Kind, ...]] = (
    "refused", "answer lost", "dies before", "dies after", "rebalance",
)  # fmt: skip

Ask = Callable[..., Awaitable[Any]]
Seen = Callable[[str, tuple[Any, ...], Any], None]


class Died(Exception):
    """The process has ended."""


@dataclass(slots=True)
class Fault:
    """The fault at the ``at``-th call from now on; ``interrupt`` performs a rebalance.

    ``interrupted`` is the call just after which a rebalance came.
    """

    kind: Kind | None = None
    at: int = 0
    interrupt: Callable[[], None] = lambda: None
    interrupted: str = ""

    def due(self) -> Kind | None:
        """The fault of this call, or None."""
        if self.kind is None:
            return None
        self.at -= 1
        if self.at >= 0:
            return None
        kind, self.kind = self.kind, None
        return kind


class FaultInjector:
    """Passes calls on to ``inner`` with ``fault``; ``seen`` receives every answer of ``inner``."""

    def __init__(self, inner: MemoryStore | MemoryDeadLetters, fault: Fault, seen: Seen) -> None:
        self._inner = inner
        self._fault = fault
        self._seen = seen
        self._away: type[Exception] = StoreUnavailable
        if isinstance(inner, MemoryDeadLetters):
            self._away = DeadLettersUnavailable

    def __getattr__(self, name: str) -> Any:
        ask: Ask = getattr(self._inner, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            kind = self._fault.due()
            if kind == "rebalance":
                self._fault.interrupted = name
                self._fault.interrupt()
            if kind == "dies before":
                raise Died(name)
            if kind == "refused":
                raise self._away(name)
            answer = await ask(*arguments, **options)
            self._seen(name, arguments, answer)
            if kind == "dies after":
                raise Died(name)
            if kind == "answer lost":
                raise self._away(name)
            return answer

        return call
