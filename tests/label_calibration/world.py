"""Worlds of conversations with true grades, and with those of a model that judges them.

A world has many conversations, whose ratio is the true value; a sample of them is drawn at random.
Results of a conversation are alike: each conversation has its own share of good results, and the
model its own error rates in it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_metrics.core.metrics.label_sums import SEARCH_UNITS, SUMS, in_units

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FIGURES: Final = ("sre", "gain", "ndcg@10")
CONVERSATIONS: Final = 20_000
DEPTH: Final = 10
JUDGED_ALIKE: Final = 0.1
"""How alike the model's errors are in a conversation (intraclass correlation)."""


class World(NamedTuple):
    """What conversations are like.

    Attributes:
        good: The share of results that people call good.
        alike: How alike results of a conversation are (intraclass correlation).
        turns: The mean number of turns of a conversation.
        kappa: Cohen's kappa of the model and people, over results.
        bias: How much more of the results the model calls good than people do. Where ``kappa``
            does not allow it, the largest that it allows.
        drift: The bias begins in the middle; before it there is none.
    """

    good: float = 0.4
    alike: float = 0.1
    turns: float = 2.0
    kappa: float = 0.65
    bias: float = 0.1
    drift: bool = False


class Errors(NamedTuple):
    """How often a model calls a bad result good, and a good one bad, and its bias by that."""

    bad_called_good: float
    good_called_bad: float
    bias: float


class Pool(NamedTuple):
    """The conversations of a world: by figure their base, and their numerators by both sources."""

    base: dict[str, Ints]
    people: dict[str, Ints]
    model: dict[str, Ints]

    def true(self, figure: str) -> float:
        """The true value: the ratio over all conversations."""
        return in_units(figure, "y", int(self.people[figure].sum())) / int(self.base[figure].sum())

    def products(self, figure: str) -> dict[str, Ints]:
        """Of each conversation, what it adds to each sum."""
        values = {
            "n": np.ones_like(self.base[figure]),
            "b": self.base[figure],
            "y": self.people[figure],
            "f": self.model[figure],
        }
        return {
            name: values[name[0]] * (values[name[1]] if len(name) == 2 else 1)
            for name in SUMS["both"]
        }


def errors(good: float, kappa: float, bias: float) -> Errors:
    """The errors of a model with this kappa, and with this bias as far as kappa allows.

    The rates of both errors differ by the bias, and their sum is what kappa leaves: ``1 - kappa``
    of the disagreement by chance.
    """
    low, high = 0.0, 1.0
    for _ in range(60):  # the largest part of the bias whose error rates are not negative
        part = (low + high) / 2
        called = good + part * bias
        apart = (1 - kappa) * (good * (1 - called) + called * (1 - good))
        if 0 < called < 1 and apart >= abs(part * bias):
            low = part
        else:
            high = part
    found = low * bias
    called = good + found
    apart = (1 - kappa) * (good * (1 - called) + called * (1 - good))
    return Errors((apart + found) / 2 / (1 - good), (apart - found) / 2 / good, found)


def pool(world: World, generator: np.random.Generator) -> Pool:
    """The conversations of a world."""
    turns = 1 + generator.poisson(world.turns - 1, CONVERSATIONS)
    searches = turns + generator.poisson(turns)
    of = np.repeat(np.arange(CONVERSATIONS), searches)
    results = np.minimum(1 + generator.poisson(7, of.size), 2 * DEPTH)
    shares = _alike(generator, np.full(CONVERSATIONS, world.good), world.alike)
    missed, excused = _error_rates(world, generator)
    there = np.arange(2 * DEPTH) < results[:, None]
    good = there & (generator.random(there.shape) < shares[of, None])
    wrong = np.where(good, missed[of, None], excused[of, None])
    called = there & (good ^ (generator.random(there.shape) < wrong))
    grades = np.where(good, _grades(generator, there.shape), 0)
    again = np.where(generator.random(there.shape) < 0.7, grades, 0)
    judged = np.where(called, np.where(again > 0, again, _grades(generator, there.shape)), 0)

    def by_conversation(values: npt.NDArray[np.generic]) -> Ints:
        return np.bincount(of, weights=values.astype(float), minlength=CONVERSATIONS).astype(
            np.int64
        )

    numerators = [
        [by_conversation(of_search) for of_search in ((one > 0).sum(1), one.sum(1), _ndcg(one))]
        for one in (grades, judged)
    ]
    base = (by_conversation(results), searches.astype(np.int64), searches.astype(np.int64))
    people, model = (dict(zip(FIGURES, found, strict=True)) for found in numerators)
    return Pool(dict(zip(FIGURES, base, strict=True)), people, model)


def _error_rates(world: World, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """By conversation, how often the model calls a good result bad, and a bad one good."""
    late = np.arange(CONVERSATIONS) >= CONVERSATIONS // 2
    before, after = (errors(world.good, world.kappa, one) for one in (0.0, world.bias))
    if not world.drift:
        before = after
    rates = [
        np.where(late, one, other)
        for one, other in (
            (after.good_called_bad, before.good_called_bad),
            (after.bad_called_good, before.bad_called_good),
        )
    ]
    missed, excused = (_alike(generator, one, JUDGED_ALIKE) for one in rates)
    return missed, excused


def _alike(generator: np.random.Generator, means: Floats, alike: float) -> Floats:
    """A rate of each conversation, of the beta distribution with this mean."""
    size = 1 / alike - 1
    safe = np.clip(means, 1e-9, 1 - 1e-9)
    return generator.beta(safe * size, (1 - safe) * size)


def _grades(generator: np.random.Generator, shape: tuple[int, ...]) -> Ints:
    """Grades of good results."""
    drawn = generator.random(shape)
    return 2 + (drawn > 0.5).astype(np.int64) + (drawn > 0.8)


def _ndcg(grades: Ints) -> Ints:
    """NDCG@10 of searches, whose results are in order, in ten-thousandths."""
    discounts = 1 / np.log2(np.arange(DEPTH) + 2)
    found = grades[:, :DEPTH] @ discounts
    ideal = -np.sort(-grades, axis=1)[:, :DEPTH] @ discounts
    value = np.divide(found, ideal, where=ideal > 0, out=0 * found)
    return (SEARCH_UNITS * value).round().astype(np.int64)
