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
    """The process is no more."""


@dataclass(slots=True)
class Trouble:
    """What happens at the ``at``-th call from now on; ``interrupt`` is what a rebalance does.

    ``interrupted`` is the call just after which a rebalance came.
    """

    kind: Kind | None = None
    at: int = 0
    interrupt: Callable[[], None] = lambda: None
    interrupted: str = ""

    def due(self) -> Kind | None:
        """Whether it is this call's turn."""
        if self.kind is None:
            return None
        self.at -= 1
        if self.at >= 0:
            return None
        kind, self.kind = self.kind, None
        return kind


class Troubled:
    """Passes calls on to ``inner``, in ``trouble``; ``seen`` hears of every answer given there."""

    def __init__(
        self, inner: MemoryStore | MemoryDeadLetters, trouble: Trouble, seen: Seen
    ) -> None:
        self._inner = inner
        self._trouble = trouble
        self._seen = seen
        self._away: type[Exception] = StoreUnavailable
        if isinstance(inner, MemoryDeadLetters):
            self._away = DeadLettersUnavailable

    def __getattr__(self, name: str) -> Any:
        ask: Ask = getattr(self._inner, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            kind = self._trouble.due()
            if kind == "rebalance":
                self._trouble.interrupted = name
                self._trouble.interrupt()
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
