"""The labeller: its labels are delayed, mostly right, and sometimes revised."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from stream_metrics.lab.traffic.writing import LabelSet

_SECOND = 1_000_000
_LABELLED = 0.95
_RIGHT = 0.85
_ROUTING_LABELLED = 0.3
_GATE_LABELLED = 0.4


class LabelTargets(NamedTuple):
    """The results, routes and gate decision of an iteration that may be labelled."""

    iteration: int
    gains: Sequence[tuple[str, int]]
    """Handles of results with their true gains."""
    routed: Sequence[tuple[str, str]]
    """Searches with the best route."""
    search_needed: bool


class Labeller:
    """Labels the iterations of one turn in order."""

    __slots__ = ("_last_us", "_median", "_rng", "given")

    def __init__(self, rng: Random, median_seconds: float, start_us: int) -> None:
        self._rng = rng
        self._median = median_seconds
        self._last_us = start_us
        self.given: list[tuple[str, int]] = []

    def when(self, iteration_us: int, late: float) -> int:
        """The time of an iteration's labels, after those of earlier iterations.

        With probability ``late``, they are delayed by a further 15 to 45 minutes.
        """
        chance = self._rng.random
        spread = 3.0 ** (chance() + chance() + chance() - 1.5)
        seconds = self._median * spread
        if late and chance() < late:
            seconds += 900 + 1_800 * chance()
        at_us = max(self._last_us + _SECOND // 5, iteration_us + int(seconds * _SECOND))
        self._last_us = at_us
        return at_us

    def claim(self, at_us: int) -> bool:
        """Reserve ``at_us`` for labels; returns False if earlier labels are still due then."""
        if at_us < self._last_us:
            return False
        self._last_us = at_us
        return True

    def judge(self, work: LabelTargets) -> LabelSet | None:
        """The labels of one iteration; None if nothing is labelled."""
        chance = self._rng.random
        gains = []
        for handle, hidden in work.gains:
            draw = chance()
            if draw < _LABELLED:
                gains.append((handle, hidden if draw < _LABELLED * _RIGHT else self._near(hidden)))
        self.given += gains
        routing = [pair for pair in work.routed if chance() < _ROUTING_LABELLED]
        gate = [(work.iteration, work.search_needed)] if chance() < _GATE_LABELLED else []
        if not (gains or routing or gate):
            return None
        return LabelSet(gains, routing, gate)

    def revise(self) -> LabelSet | None:
        """Revise one to three labels: another gain or, one time in four, a withdrawal."""
        if not self.given:
            return None
        chance = self._rng.random
        changed: dict[str, int | None] = {}
        for _ in range(1 + int(chance() * 3)):
            handle, gain = self.given[int(chance() * len(self.given))]
            changed[handle] = None if chance() < 0.25 else self._near(gain)
        return LabelSet(tuple(changed.items()), labeller="reviewer")

    def _near(self, gain: int) -> int:
        """A gain one step away."""
        if gain == 0:
            return 1
        if gain == 4:
            return 3
        return gain + 1 if self._rng.random() < 0.5 else gain - 1
