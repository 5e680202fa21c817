"""The reference of the evidence that a ratio has shifted: bounded, defined, and right by scipy."""

from __future__ import annotations

from statistics import fmean, pvariance

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from tests.drill.evidence import (
    AGO,
    DAY,
    KEPT,
    LEAST_ACTIVE,
    STRADDLED,
    Reals,
    Usual,
    accumulate,
    bernoulli_weights,
    normal_weights,
    steps,
    usual,
)

THRESHOLD = 9.0
MINUTES = 300
SRR = (0.02, 0.98, (2.0, 1.0, 1.0))

seeds = st.integers(0, 2**32 - 1)
shares = st.sampled_from([0.0, 0.03, 0.25, 0.6, 1.0])
rates = st.sampled_from([0.05, 0.5, 3.0])
signs = st.sampled_from([-1, 1])
numbers = st.floats(-50, 50, allow_subnormal=False)


def history(
    seed: int, rate: float, share: float, minutes: int = MINUTES, missing: float = 0.0
) -> tuple[Reals, Reals]:
    """Duplicates and results by minute of turns that come at random; some minutes are missing."""
    rng = np.random.default_rng(seed)
    results = np.array([rng.integers(5, 60, turns).sum() for turns in rng.poisson(rate, minutes)])
    duplicates = rng.binomial(results, share).astype(float)
    gone = rng.random(minutes) < missing
    return np.where(gone, np.nan, duplicates), np.where(gone, np.nan, results.astype(float))


def evidence(numerator: Reals, denominator: Reals, sign: int = 1, shift: float = 0.5) -> Reals:
    """The evidence by minute that a share has shifted."""
    weights = normal_weights(usual(numerator, denominator, *SRR), sign, shift)
    step = steps(numerator, denominator, weights)
    return accumulate(step, THRESHOLD, denominator <= 0)


@given(seeds, rates, shares, st.sampled_from([0.0, 0.1, 0.9]), signs, st.data())
def test_evidence_is_a_number_between_0_and_twice_the_threshold(
    seed: int, rate: float, share: float, missing: float, sign: int, data: st.DataObject
) -> None:
    """Whatever comes, is withdrawn or is missing: it is never undefined."""
    numerator, denominator = history(seed, rate, share, missing=missing)
    minute = data.draw(st.integers(0, MINUTES - 1))
    numerator[minute] += data.draw(st.integers(-5_000, 5_000))
    denominator[minute] += data.draw(st.integers(-5_000, 5_000))

    found = evidence(numerator, denominator, sign)

    assert not np.isnan(found).any()
    assert found.min() >= 0
    assert found.max() <= 2 * THRESHOLD


@given(seeds, rates, shares, signs, st.integers(200, MINUTES - 1), st.integers(1, 5_000), st.data())
def test_net_withdrawal_only_lowers_evidence(
    seed: int, rate: float, share: float, sign: int, minute: int, results: int, data: st.DataObject
) -> None:
    """A minute in which more is withdrawn than arrives adds nothing."""
    numerator, denominator = history(seed, rate, share)
    denominator[minute] = -results
    numerator[minute] = -data.draw(st.integers(0, results))

    found = evidence(numerator, denominator, sign)

    assert found[minute] <= found[minute - 1]


@given(seeds, rates, st.sampled_from([0.25, 0.6]), signs, st.integers(160, MINUTES - AGO))
def test_forgetting_2000_healthy_results_does_not_raise_evidence(
    seed: int, rate: float, share: float, sign: int, minute: int
) -> None:
    """It is at most what it would be without that minute, until the usual day includes it."""
    numerator, denominator = history(seed, rate, share)
    weights = normal_weights(usual(numerator, denominator, *SRR), sign, 0.5)
    step = steps(numerator, denominator, weights)
    step[minute] = np.nan
    without = accumulate(step, THRESHOLD, denominator <= 0)
    numerator[minute] -= round(0.8 * share * 2_000)
    denominator[minute] -= 2_000

    after = evidence(numerator, denominator, sign)

    assert (after[: minute + AGO] <= without[: minute + AGO] + 1e-12).all()


@given(seeds, rates, shares)
def test_nothing_is_judged_without_half_an_hour_of_traffic(
    seed: int, rate: float, share: float
) -> None:
    """The evidence stays 0 until both the usual ratio and its variance are known."""
    numerator, denominator = history(seed, rate, share)
    active = np.cumsum(denominator > 0)
    silent = np.flatnonzero(active < LEAST_ACTIVE)[-1] + 2 * AGO + LEAST_ACTIVE - 1

    assert not evidence(numerator, denominator)[: silent + 1].any()


@given(st.floats(0.02, 0.98), st.floats(0.01, 20), st.floats(0.1, 2), signs, numbers, numbers)
def test_a_step_is_the_log_likelihood_ratio_of_two_normal_distributions(
    ratio: float, variance: float, shift: float, sign: int, above: float, below: float
) -> None:
    """Against the densities of scipy, for results that have arrived."""
    below = abs(below) + 0.5
    of = Usual(np.array([ratio]), np.array([variance]))
    [found] = steps(np.array([above]), np.array([below]), normal_weights(of, sign, shift))

    delta, spread = max(shift * ratio, 0.05), np.sqrt(variance * below)
    shifted = norm.logpdf(above, (ratio + sign * delta) * below, spread)
    expected = shifted - norm.logpdf(above, ratio * below, spread)

    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.floats(0.02, 0.9), st.floats(0.02, 0.98), st.integers(0, 40), st.integers(0, 40))
def test_a_step_of_decisions_is_the_log_likelihood_ratio_of_two_binomial_distributions(
    ratio: float, shifted: float, hits: int, misses: int
) -> None:
    """Against the probabilities of scipy."""
    n = hits + misses
    weights = bernoulli_weights(np.array([ratio]), np.array([shifted]))
    [found] = steps(np.array([float(hits)]), np.array([float(n)]), weights)

    expected = binom.logpmf(hits, n, shifted) - binom.logpmf(hits, n, ratio)

    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.lists(numbers, min_size=1, max_size=60))
def test_evidence_is_the_largest_sum_of_the_latest_steps(values: list[float]) -> None:
    """Without the cap, it is Page's statistic: the sum since the most suspicious minute."""
    found = accumulate(np.array(values), threshold=1e9)

    for minute in range(len(values)):
        sums = [sum(values[start : minute + 1]) for start in range(minute + 2)]
        assert found[minute] == pytest.approx(max(sums), abs=1e-9)


@given(st.lists(numbers, min_size=1, max_size=60))
def test_evidence_is_at_most_that_of_shiryaev_and_roberts(values: list[float]) -> None:
    """That e-detector bounds the rate of false alarms, and hence bounds it here."""
    found = accumulate(np.array(values), threshold=1e9)
    sums = 0.0  # its logarithm is kept: the numbers overflow

    for minute, step in enumerate(values):
        sums = np.logaddexp(0.0, sums) + step if minute else step
        assert found[minute] <= max(0.0, sums) + 1e-9


def test_evidence_halves_in_69_minutes_without_traffic() -> None:
    """An alert that has reached the cap ends an hour after the agent has gone to sleep."""
    step = np.array([2 * THRESHOLD, *[0.0] * 69])

    found = accumulate(step, THRESHOLD, step == 0)

    assert found[-2] > THRESHOLD > found[-1]


@given(st.integers(1, 3 * KEPT))
def test_evidence_outlives_missing_minutes_for_an_hour(gap: int) -> None:
    """As long as a rule finds its last value; then it begins at 0."""
    step = np.array([5.0, *[np.nan] * gap, 1.0])

    assert accumulate(step, THRESHOLD)[-1] == (6.0 if gap < KEPT else 1.0)


def test_evidence_of_many_agents_is_that_of_each() -> None:
    """Agents are rows, and do not influence each other."""
    step = np.random.default_rng(1).normal(size=(5, 200))

    together = accumulate(step, THRESHOLD)

    assert together.tolist() == [accumulate(row, THRESHOLD).tolist() for row in step]


@given(seeds, shares, st.sampled_from([0.0, 0.1]), st.integers(0, 96))
def test_the_usual_values_are_those_of_a_naive_computation(
    seed: int, share: float, missing: float, offset: int
) -> None:
    """With plain lists, at some of the minutes of a day and a half."""
    minutes = DAY + 300
    numerator, denominator = history(seed, 0.3, share, minutes, missing)
    low, high, (times, *_) = SRR
    found = usual(numerator, denominator, *SRR)
    there = set(np.flatnonzero(~np.isnan(denominator)).tolist())

    for now in range(offset, minutes, 97):
        day = [at for at in there if now - AGO - DAY < at <= now - AGO]
        below = sum(denominator[at] for at in day)
        if below <= 0 or sum(denominator[at] > 0 for at in day) < LEAST_ACTIVE:
            assert np.isnan(found.ratio[now])
            assert np.isnan(found.variance[now])
            continue
        ratio = min(max(sum(numerator[at] for at in day) / below, low), high)
        variance = times * ratio * (1 - ratio)
        residuals = [
            sum(numerator[at] - found.ratio[then] * denominator[at] for at in before)
            for then in range(max(1, now - AGO - DAY + 1), now - AGO + 1)
            if not np.isnan(found.ratio[then])
            if (before := [at for at in range(then - STRADDLED, then) if at in there])
        ]
        mean = STRADDLED * fmean(denominator[at] for at in day)
        variance = max(variance, pvariance(residuals) / mean if residuals else 0.0)
        assert found.ratio[now] == pytest.approx(ratio)
        expected = variance if len(residuals) >= LEAST_ACTIVE else np.nan
        assert found.variance[now] == pytest.approx(expected, nan_ok=True)


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=60), st.floats(0.1, 1))
def test_a_minute_changes_evidence_within_its_limit(added: list[float], limit: float) -> None:
    """By what it would without one, if that is less."""
    threshold = 3.0
    most = limit * threshold

    found = accumulate(np.array(added), threshold, limit=limit)

    clipped = np.array([min(max(step, -most), most) for step in added])
    assert found.tolist() == pytest.approx(accumulate(clipped, threshold).tolist())
    assert np.abs(np.diff([0.0, *found])).max() <= most + 1e-9
