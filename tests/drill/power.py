"""What traffic can show at all: how far an incident moves a ratio, by what chance does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.drill.library import HEALTHY, Condition, Habits, Turns
from tests.drill.world import MINUTE, Agent, Libraries, harder

Reals = NDArray[np.float64]
MOST: Final = 0.9  # of the labels


class Ratio(NamedTuple):
    """A ratio of window sums, by the codes of its parts."""

    above: tuple[str, ...]
    below: tuple[str, ...]


def effect(shelf: Libraries, agent: Agent, condition: Condition, ratio: Ratio) -> float:
    """How far a condition moves the agent's ratio, in standard errors of one turn.

    Of ``n`` turns it is that many standard errors times the root of ``n``: a ratio of sums over
    turns has the variance of ``above - ratio * below``, by the mean of ``below`` squared.
    """
    usual, spread = _moments(shelf, agent, Condition(HEALTHY), ratio)
    then, _ = _moments(shelf, agent, condition, ratio)
    return abs(then - usual) / spread


def label_delay_minutes(shelf: Libraries, habits: Habits) -> int:
    """The whole minutes after which nine of ten of an agent's labels have come."""
    library = shelf.get(habits, Condition(HEALTHY))
    delays_us = (library.at - library.about)[library.labels]
    return int(np.quantile(delays_us, MOST)) // MINUTE


def _moments(
    shelf: Libraries, agent: Agent, condition: Condition, ratio: Ratio
) -> tuple[float, float]:
    """The ratio of very many turns, and its standard error of one."""
    above, below, weights = [], [], []
    for habits, share in (
        (agent.habits, 1 - agent.hard_share),
        (harder(agent.habits), agent.hard_share),
    ):
        library = shelf.get(habits, condition)
        above.append(_by_turn(library, ratio.above))
        below.append(_by_turn(library, ratio.below))
        weights.append(np.full(len(library), share / len(library)))
    up, down, weight = map(np.concatenate, (above, below, weights))
    mean = float(weight @ down)
    value = float(weight @ up) / mean
    return value, float(np.sqrt(weight @ (up - value * down) ** 2)) / mean


def _by_turn(library: Turns, codes: Iterable[str]) -> Reals:
    """What each turn of a library adds to these sums in the end."""
    columns = [library.codes.index(code) for code in codes if code in library.codes]
    sums = np.concatenate([[0], np.cumsum(library.deltas[:, columns].sum(axis=1))])
    return np.asarray(np.diff(sums[library.first]), np.float64)
