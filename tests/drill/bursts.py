"""Worlds in which the turns of an agent depend on each other.

In the other worlds, the generator draws each turn by itself. Here, questions come in bursts of one
kind: turns that follow each other are the same turn again, with the same results, labels and
decisions of gate and router, until another kind of question comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.random import Generator

from tests.drill.library import Numbers
from tests.drill.world import MINUTE, Agent, Incident, Libraries, Placed, place

LENGTH: Final = 4  # turns of a burst, on average


def place_bursts(
    agent: Agent, incidents: Sequence[Incident], minutes: int, rng: Generator, shelf: Libraries
) -> Placed:
    """The agent's turns as ``place`` places them, but in bursts of the same turn."""
    return place(agent, incidents, minutes, cast("Generator", _Bursts(rng)), shelf)


class _Bursts:
    """Random numbers, but that turns of a library are drawn in bursts."""

    def __init__(self, rng: Generator) -> None:
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)

    def integers(self, low: int, high: int, size: int) -> Numbers:
        """Numbers of a library's turns in the order of time, or moments that are left as drawn."""
        drawn = self._rng.integers(low, high, size)
        if high >= MINUTE:
            return drawn
        begins = self._rng.random(size) < 1 / LENGTH
        first = np.maximum.accumulate(np.where(begins, np.arange(size), 0))
        return np.asarray(drawn[first])
