"""Statistical power: the number of turns that distinguish an incident from chance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.drill.library import HEALTHY, Condition, Habits, Turns
from tests.drill.world import MINUTE, Agent, Libraries, harder

Reals = NDArray[np.float64]
MOST: Final = 0.9  # of the labels
STEPS: Final = 1_024  # of the grid on which what a turn adds lies
CHANCE: Final = 3.167e-5  # beyond four standard deviations, on one side
POWER: Final = 0.95


class Ratio(NamedTuple):
    """A ratio of window sums, by the codes of its parts."""

    above: tuple[str, ...]
    below: tuple[str, ...]


def change(shelf: Libraries, agent: Agent, condition: Condition, ratio: Ratio) -> float:
    """The agent's ratio under a condition, over very many turns, by its healthy one."""
    up, down, weight = _turns(shelf, agent, Condition(HEALTHY), ratio)
    then_up, then_down, then_weight = _turns(shelf, agent, condition, ratio)
    usual = float(weight @ up) / float(weight @ down)
    return float(then_weight @ then_up) / float(then_weight @ then_down) / usual


def tells(shelf: Libraries, agent: Agent, condition: Condition, ratio: Ratio, turns: int) -> bool:
    """Whether a test that knew the healthy condition would tell the other from so many turns.

    The test adds up ``above - usual * below`` over the turns, where ``usual`` is the healthy ratio.
    It calls so much as chance brings once in 31,600 healthy stretches (four standard deviations on
    one side) an incident; of 100 incidents it has to find 95. The distribution of the sum is worked
    out, not taken for a normal one: of a handful of turns it is none.
    """
    up, down, weight = _turns(shelf, agent, Condition(HEALTHY), ratio)
    if turns < 1:
        return False
    usual = float(weight @ up) / float(weight @ down)
    healthy = up - usual * down
    then_up, then_down, then_weight = _turns(shelf, agent, condition, ratio)
    return parts((healthy, weight), (then_up - usual * then_down, then_weight), turns)


def parts(before: tuple[Reals, Reals], after: tuple[Reals, Reals], turns: int) -> bool:
    """Whether the sum of so many turns tells two distributions, of values and weights, apart."""
    (healthy, weight), (then, then_weight) = before, after
    sign = 1.0 if float(then_weight @ then) > float(weight @ healthy) else -1.0
    low = float(min((sign * healthy).min(), (sign * then).min()))
    high = float(max((sign * healthy).max(), (sign * then).max()))
    step = (high - low) / STEPS
    if step == 0.0:
        return False
    by_chance = sum_of(grid_of(sign * healthy, weight, low, step), turns)
    in_trouble = sum_of(grid_of(sign * then, then_weight, low, step), turns)
    beyond = np.cumsum(by_chance[::-1])[::-1]
    critical = int(np.searchsorted(-beyond, -CHANCE))
    return float(in_trouble[critical:].sum()) >= POWER


def grid_of(values: Reals, weight: Reals, low: float, step: float) -> Reals:
    """The distribution on a grid; a value between two points is shared so that the mean stays."""
    at = np.clip((values - low) / step, 0, STEPS)
    below = np.minimum(np.floor(at).astype(int), STEPS - 1)
    upper = at - below
    grid = np.bincount(below, weight * (1 - upper), STEPS + 1)
    return np.asarray(grid + np.bincount(below + 1, weight * upper, STEPS + 1), np.float64)


def sum_of(grid: Reals, turns: int) -> Reals:
    """The distribution of the sum of so many independent turns, by the Fourier transform."""
    size = STEPS * turns + 1
    length = 1 << (size - 1).bit_length()
    found = np.fft.irfft(np.fft.rfft(grid, length) ** turns, length)[:size]
    return np.asarray(np.clip(found, 0, None), np.float64)


def label_delay_minutes(shelf: Libraries, habits: Habits) -> int:
    """The whole minutes after which nine of ten of an agent's labels have come."""
    library = shelf.get(habits, Condition(HEALTHY))
    delays_us = (library.at - library.about)[library.labels]
    return int(np.quantile(delays_us, MOST)) // MINUTE


def _turns(
    shelf: Libraries, agent: Agent, condition: Condition, ratio: Ratio
) -> tuple[Reals, Reals, Reals]:
    """By turn of the agent's libraries: what it adds above and below, and how often it comes."""
    above, below, weights = [], [], []
    for habits, share in (
        (agent.habits, 1 - agent.hard_share),
        (harder(agent.habits), agent.hard_share),
    ):
        library = shelf.get(habits, condition)
        above.append(_by_turn(library, ratio.above))
        below.append(_by_turn(library, ratio.below))
        weights.append(np.full(len(library), share / len(library)))
    return np.concatenate(above), np.concatenate(below), np.concatenate(weights)


def _by_turn(library: Turns, codes: Iterable[str]) -> Reals:
    """What each turn of a library adds to these sums in the end."""
    columns = [library.codes.index(code) for code in codes if code in library.codes]
    sums = np.concatenate([[0], np.cumsum(library.deltas[:, columns].sum(axis=1))])
    return np.asarray(np.diff(sums[library.first]), np.float64)
