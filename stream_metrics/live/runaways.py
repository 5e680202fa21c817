"""Turns that run away: those that have very many iterations, and go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from stream_metrics.core.engine.state import Turn

MANY_ITERATIONS: Final = 50
STILL_MS: Final = 300_000
"""A turn without an iteration for so long has stopped."""
MOST: Final = 1_000  # turns that are remembered


class RunawayTurn(NamedTuple):
    """A turn with many iterations, under the label of its agent (or release).

    ``last_ms`` is when its latest iteration came.
    """

    agent: str
    conversation_id: str
    turn: int
    iterations: int
    last_ms: int


def iterations_of(turn: Turn) -> int:
    """How many iterations with a search a turn has; beyond a limit, each search counts as one."""
    return len(turn.counted) + (turn.left_out[0] if turn.left_out is not None else 0)


class RunawayTurns:
    """The turns that had many iterations when a worker read their latest one.

    After a restart, a turn is known again from its next iteration on.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._turns: dict[tuple[str, int], RunawayTurn] = {}

    def note(self, turns: Iterable[RunawayTurn]) -> None:
        """Note turns that have had another iteration."""
        for one in turns:
            key = (one.conversation_id, one.turn)
            self._turns.pop(key, None)
            self._turns[key] = one
            if len(self._turns) > MOST:
                del self._turns[next(iter(self._turns))]

    def forget(self, conversation_id: str) -> None:
        """Drop the turns of a conversation that was erased."""
        self._turns = {key: one for key, one in self._turns.items() if key[0] != conversation_id}

    def going_on(self) -> list[RunawayTurn]:
        """The turns that have had an iteration lately, the longest first."""
        return going_on(tuple(self._turns.values()), self._now_ms())


def going_on(turns: Iterable[RunawayTurn], now_ms: int) -> list[RunawayTurn]:
    """Those of the turns that have had an iteration lately, the longest first; each once."""
    found = {(one.conversation_id, one.turn): one for one in turns}
    return sorted(
        (one for one in found.values() if one.last_ms > now_ms - STILL_MS), key=longest_first
    )


def longest_first(turn: RunawayTurn) -> tuple[int, str, int]:
    """The order in which turns are told."""
    return -turn.iterations, turn.conversation_id, turn.turn
