"""Simulated worlds are what they say, and estimates in them hold about as often as promised."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.label_calibration.money import BUDGETS, picture, table, widths
from tests.label_calibration.study import coverage, generator_of
from tests.label_calibration.world import FIGURES, World, errors, pool

SAMPLES = 400


@pytest.mark.parametrize("good", [0.1, 0.4, 0.95])
@pytest.mark.parametrize("kappa", [0.4, 0.65, 0.85])
@pytest.mark.parametrize("bias", [-0.1, 0.0, 0.02, 0.1])
def test_a_model_errs_as_often_as_its_kappa_says(good: float, kappa: float, bias: float) -> None:
    """Its kappa is what was asked for, and its bias as well, or as much of it as is possible."""
    bad_called_good, good_called_bad, found = errors(good, kappa, bias)
    called = good * (1 - good_called_bad) + (1 - good) * bad_called_good
    agreed = good * (1 - good_called_bad) + (1 - good) * (1 - bad_called_good)
    by_chance = good * called + (1 - good) * (1 - called)

    assert (agreed - by_chance) / (1 - by_chance) == pytest.approx(kappa)
    assert called - good == pytest.approx(found)
    assert found == pytest.approx(bias) or min(bad_called_good, good_called_bad) < 1e-9


def test_the_conversations_of_a_world_are_as_good_as_it_says() -> None:
    """The share of good results is that of the world, and the model's is above it by the bias."""
    found = pool(World(good=0.4, kappa=0.65, bias=0.1), generator_of("check"))
    called = found.model["sre"].sum() / found.base["sre"].sum()

    assert found.true("sre") == pytest.approx(0.4, abs=0.01)
    assert called == pytest.approx(0.5, abs=0.01)
    assert 0 < found.true("ndcg@10") < 1


@pytest.mark.parametrize(
    "world", [World(), World(good=0.95, bias=-0.1), World(turns=6, drift=True)]
)
def test_intervals_of_sixty_conversations_hold(world: World) -> None:
    """In a short simulation, all figures keep the promise, as far as it can tell."""
    rates = coverage(world, (60,), SAMPLES)

    assert {rate.figure for rate in rates} == set(FIGURES)
    assert [rate for rate in rates if not rate.kept] == []


def test_intervals_hold_where_most_results_are_good() -> None:
    """With 60 conversations and 95% good results, SRE keeps the promise of 93% and more."""
    rates = coverage(World(good=0.95), (60,), 5 * SAMPLES, ("sre",))

    assert [rate for rate in rates if not rate.kept] == []


def test_money_narrows_intervals() -> None:
    """More money, or a better model, gives narrower intervals, as the table and picture show."""
    found = widths()
    lines = list(found.values())

    assert all(line == sorted(line, reverse=True) for line in lines)
    for one, other in pairwise(lines):
        assert all(a > b for a, b in zip(one, other, strict=True))
    assert table(found).count("\n") == len(lines) + 2
    assert picture(found).count("<path") >= 2 * len(lines) + len(BUDGETS)
