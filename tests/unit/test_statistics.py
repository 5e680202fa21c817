"""Intervals and tests against scipy, and their behaviour for any order, any seed and few values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product
from math import fsum
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from stream_metrics.lab.choices import METHODS, SEED, TESTS, Method, Test
from stream_metrics.lab.statistics.by_values import (
    bootstrap_confidence_interval,
    calculate_confidence_interval,
    paired_bootstrap_test,
    statistical_significance_test,
)
from stream_metrics.lab.statistics.comparison import compare
from stream_metrics.lab.statistics.intervals import estimate, resampled
from stream_metrics.lab.statistics.resampling import BLOCK, generator, resamples
from stream_metrics.lab.statistics.strata_and_corrections import holm, stratify
from stream_metrics.lab.statistics.units import Units, sums_from
from stream_metrics.lab.statistics.unpaired import UNPAIRED_TESTS, compare_unpaired

VALUES = st.lists(st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 1.0]), min_size=2, max_size=40)


def one_each(values: Sequence[float]) -> Units:
    """Units with one value each."""
    return Units.of_values((f"{at:05}", value) for at, value in enumerate(values))


def clustered(seed: int, units: int, shift: float = 0.0) -> list[tuple[str, float]]:
    """Units with several similar values each."""
    draw = random.Random(seed)
    rows = []
    for at in range(units):
        level = draw.random()
        rows += [
            (f"{at:03}", min(1.0, max(0.0, level + draw.uniform(-0.2, 0.2) + shift)))
            for _ in range(draw.randint(1, 4))
        ]
    return rows


def drawn(seed: int, n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Values with ties, zeros and ones; multiples of 1/64, whose sums are exact in any order."""
    values = (np.random.default_rng(seed).beta(0.6, 0.8, size=n) * 64).round() / 64
    return np.asarray(values, dtype=np.float64)


# -- intervals --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 9, 50, 301])
@pytest.mark.parametrize(("method", "theirs"), [("percentile", "percentile"), ("bca", "BCa")])
def test_bootstrap_intervals_are_scipys(method: Method, theirs: str, n: int) -> None:
    """With the same random stream the bounds are equal."""
    for seed in range(20):
        values = drawn(seed, n)
        if len(set(values.tolist())) == 1:
            continue
        expected = stats.bootstrap(
            (values,), np.mean, n_resamples=1_000, method=theirs, rng=generator(SEED)
        ).confidence_interval
        found = estimate(one_each(values.tolist()), method)

        assert (found.ci_low, found.ci_high) == pytest.approx(tuple(expected), abs=1e-9)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("n", [2, 9, 200])
def test_t_intervals_are_scipys(n: int, confidence: float) -> None:
    """The quantile is that of Student's distribution, not 1.96."""
    for seed in range(20):
        values = drawn(seed, n)
        if np.ptp(values) == 0:
            continue
        expected = stats.t.interval(confidence, n - 1, values.mean(), stats.sem(values))
        found = estimate(one_each(values.tolist()), "t", confidence=confidence)

        assert (found.ci_low, found.ci_high) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n", [2, 9, 200])
def test_wilson_intervals_are_scipys(n: int) -> None:
    """This holds for every number of ones, including none and all."""
    for ones in range(0, n + 1, max(1, n // 10)):
        expected = stats.binomtest(ones, n).proportion_ci(method="wilson")
        found = estimate(one_each([1.0] * ones + [0.0] * (n - ones)), "wilson")

        assert (found.ci_low, found.ci_high) == pytest.approx(tuple(expected), abs=1e-9)


@given(st.lists(st.lists(st.floats(-1e9, 1e9) | st.just(-0.0), min_size=1, max_size=5), min_size=1))
def test_sums_of_runs_are_rounded_once(runs: list[list[float]]) -> None:
    """Each sum equals that of fsum, to the last bit, for any length."""
    starts = np.cumsum([0, *map(len, runs[:-1])])

    found = sums_from(np.array([value for run in runs for value in run]), starts)

    assert [one.hex() for one in found.tolist()] == [fsum(run).hex() for run in runs]


def test_resampling_draws_whole_units() -> None:
    """The figure of each resample is Σ sums ÷ Σ counts of the drawn units."""
    rows = clustered(3, 12)
    units = Units.of_values(rows)
    by_unit: dict[str, list[float]] = {}
    for key, value in rows:
        by_unit.setdefault(key, []).append(value)
    ordered = [by_unit[key] for key in sorted(by_unit)]
    expected = [
        fsum(value for at in draw for value in ordered[at]) / sum(len(ordered[at]) for at in draw)
        for draw in np.concatenate(list(resamples(12, 500)))
    ]

    assert resampled(units, 500).tolist() == pytest.approx(expected, abs=1e-12)


def test_bca_of_ratios_is_scipys() -> None:
    """The jackknife leaves out whole units."""
    for seed in range(10):
        units = Units.of_values(clustered(seed, 15))

        def ratio(sums: Any, counts: Any, axis: int = -1) -> Any:
            return sums.sum(axis=axis) / counts.sum(axis=axis)

        expected = stats.bootstrap(
            (units.sums, units.counts), ratio, n_resamples=1_000, method="BCa",
            paired=True, rng=generator(SEED),
        ).confidence_interval  # fmt: skip
        found = estimate(units, "bca")

        assert (found.ci_low, found.ci_high) == pytest.approx(tuple(expected), abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_fewer_than_two_units_have_no_interval(method: Method) -> None:
    """This includes several values of one conversation."""
    none = estimate(Units.of_values([]), method)
    one = estimate(Units.of_values([("a", 1.0)]), method)
    several = estimate(Units.of_values([("a", 1.0), ("a", 0.0)]), method)

    assert (none.mean, none.n, none.ci_low, none.note) == (None, 0, None, "no values")
    assert (one.mean, one.n, one.sd, one.ci_low) == (1.0, 1, None, None)
    assert (several.mean, several.n, several.units, several.ci_high) == (0.5, 2, 1, None)


@pytest.mark.parametrize("method", ["percentile", "bca", "t"])
def test_equal_values_suggest_wilson(method: Method) -> None:
    """With zero variance the interval is a point, and a note suggests Wilson's."""
    found = estimate(one_each([1.0] * 20), method)

    assert (found.mean, found.ci_low, found.ci_high, found.sd) == (1.0, 1.0, 1.0, 0.0)
    assert "Wilson" in (found.note or "")
    assert "Wilson" not in (estimate(one_each([0.5] * 20), method).note or "")
    assert estimate(one_each([0.5, 0.4] * 20), method).note is None


def test_wilson_is_for_single_zeros_and_ones() -> None:
    """Other values, or several of one unit, are refused."""
    for rows in ([("a", 0.5), ("b", 1.0)], [("a", 1.0), ("a", 0.0), ("b", 1.0)]):
        with pytest.raises(ValueError, match="Wilson interval needs values 0 and 1"):
            estimate(Units.of_values(rows), "wilson")


def test_unknown_methods_and_confidences_are_refused() -> None:
    """The error lists those that exist."""
    units = one_each([0.0, 1.0])
    with pytest.raises(ValueError, match="there are percentile, bca, t, wilson"):
        estimate(units, "normal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="confidence=95"):
        estimate(units, confidence=95)
    with pytest.raises(ValueError, match="there are bootstrap"):
        compare(units, units, "z")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there are bootstrap, welch"):
        compare_unpaired(units, units, "t")  # type: ignore[arg-type]


def test_micro_figures_are_ratios_of_sums() -> None:
    """With duplicates 1 of 10 and 4 of 5, SRR is 1/3, not the mean of 0.1 and 0.8."""
    units = Units.of_sums([("a", 1, 10), ("b", 4, 5), ("c", 0, 0)])
    found = estimate(units)

    assert found.mean == pytest.approx(1 / 3)
    assert found.n == 2
    assert found.sd == pytest.approx(0.7 / 2**0.5)
    assert (found.ci_low, found.ci_high) == pytest.approx((0.1, 0.8))


# -- determinism ------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 1)), max_size=30), st.randoms())
def test_the_order_of_rows_does_not_matter(
    rows: list[tuple[str, float]], shuffler: random.Random
) -> None:
    """The estimate is the same in every bit for any order of rows."""
    shuffled = rows[:]
    shuffler.shuffle(shuffled)

    for method in ("percentile", "bca", "t"):
        assert repr(estimate(Units.of_values(rows), method)) == repr(
            estimate(Units.of_values(shuffled), method)
        )


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("units", [1, 2, 7, 100, 4_001, BLOCK + 1])
def test_blocks_do_not_change_the_stream(units: int, blocks: int) -> None:
    """In one block or in several, the draws are those of one long stream."""
    count = (blocks - 1) * max(1, BLOCK // units) + 1
    expected = generator(SEED).integers(0, units, size=(count, units))

    found = list(resamples(units, count))

    assert len(found) == blocks
    assert np.array_equal(np.concatenate(found), expected)


def test_more_resamples_extend_the_stream() -> None:
    """More resamples continue the stream; another seed gives another stream."""
    short, long = (np.concatenate(list(resamples(9, count))) for count in (10, 40))

    assert np.array_equal(short, long[:10])
    assert not np.array_equal(short, np.concatenate(list(resamples(9, 10, seed=1))))
    assert not np.array_equal(short, np.concatenate(list(resamples(9, 10, stream=1))))


@pytest.mark.parametrize("test", TESTS)
def test_tests_are_reproducible(test: Test) -> None:
    """A test is a function of the values and the seed."""
    a, b = Units.of_values(clustered(1, 20)), Units.of_values(clustered(2, 20))
    backwards = Units.of_values(reversed(clustered(1, 20)))

    assert compare(a, b, test, resample_count=500) == compare(
        backwards, b, test, resample_count=500
    )


# -- paired tests -----------------------------------------------------------------------------


def brute_force_permutation(differences: Sequence[float]) -> float:
    """The share of all assignments of signs with a mean at least as far from 0."""
    observed = abs(fsum(differences))
    signs = list(product((1, -1), repeat=len(differences)))
    sums = [abs(fsum(s * d for s, d in zip(sign, differences, strict=True))) for sign in signs]
    return sum(one >= observed - 1e-12 for one in sums) / len(signs)


@pytest.mark.parametrize("n", [5, 8, 13])
def test_small_permutation_tests_are_exact(n: int) -> None:
    """All 2^n assignments are computed, as by scipy and by brute force."""
    for seed in range(8):
        a, b = drawn(seed, n), drawn(seed + 100, n)
        found = compare(one_each(a.tolist()), one_each(b.tolist()), "permutation")
        expected = stats.permutation_test(
            (a - b,), np.mean, permutation_type="samples", vectorized=True, n_resamples=10**6
        )

        assert found.p == pytest.approx(expected.pvalue, abs=1e-12)
        if n < 10:
            assert found.p == pytest.approx(brute_force_permutation((a - b).tolist()), abs=1e-12)


def test_larger_permutation_tests_are_near_exact_ones() -> None:
    """With 10,000 of 2^16 assignments, p is within four standard errors of the exact value."""
    a, b = drawn(1, 16), drawn(40, 16)
    sampled = compare(one_each(a.tolist()), one_each(b.tolist()), "permutation").p
    exact = compare(
        one_each(a.tolist()), one_each(b.tolist()), "permutation", resample_count=2**16
    ).p

    assert sampled is not None
    assert exact is not None
    assert abs(sampled - exact) < 4 * (exact * (1 - exact) / 10_000) ** 0.5


@pytest.mark.parametrize("n", [5, 20, 200])
def test_paired_t_and_wilcoxon_are_scipys(n: int) -> None:
    """They are computed from means of units; Wilcoxon's test drops zeros."""
    for seed in range(20):
        a, b = drawn(seed, n), drawn(seed + 100, n)
        t = compare(one_each(a.tolist()), one_each(b.tolist()), "t")
        ranks = compare(one_each(a.tolist()), one_each(b.tolist()), "wilcoxon")

        assert t.p == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=1e-9)
        assert ranks.p == pytest.approx(stats.wilcoxon(a - b).pvalue, abs=1e-9)
        assert t.effect == pytest.approx((a - b).mean() / (a - b).std(ddof=1), abs=1e-9)


def slow_bootstrap(a: Units, b: Units, count: int, studentise: bool) -> float:
    """The test in Sakai's description, unit by unit, for ratios of sums."""

    def spread_of(ratio: float, sums: Any, counts: Any) -> Any:
        return (sums - ratio * counts) / counts.mean()

    def statistic(at: Any, centre: float) -> float:
        ratios = [one.sums[at].sum() / one.counts[at].sum() for one in (a, b)]
        distance = float(ratios[0] - ratios[1]) - centre
        parts = [
            spread_of(r, o.sums[at], o.counts[at]) for r, o in zip(ratios, (a, b), strict=True)
        ]
        error = np.std(parts[0] - parts[1], ddof=1) / len(at) ** 0.5
        if not studentise:
            return distance
        return float(distance / error) if error > 1e-13 else (0.0 if not distance else np.inf)

    centre = float(a.sums.sum() / a.counts.sum() - b.sums.sum() / b.counts.sum())
    observed = abs(statistic(np.arange(a.size), 0.0))
    extreme = sum(
        abs(statistic(at, centre)) >= observed - 1e-12
        for at in np.concatenate(list(resamples(a.size, count)))
    )
    return (extreme + 1) / (count + 1)


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(("test", "studentise"), [("bootstrap", True), ("plain_bootstrap", False)])
def test_bootstrap_tests_follow_their_description(
    test: Test, studentise: bool, single: bool
) -> None:
    """p equals that of plain Python, for single values and for clusters."""
    for seed in range(6):
        if single:
            a = one_each(drawn(seed, 12).tolist())
            b = one_each(drawn(seed + 50, 12).tolist())
        else:
            a = Units.of_values(clustered(seed, 12))
            b = Units.of_values(clustered(seed + 50, 12, 0.1))
        found = compare(a, b, test, resample_count=400)

        assert found.p == pytest.approx(slow_bootstrap(a, b, 400, studentise), abs=1e-12)


def test_only_shared_units_are_compared() -> None:
    """Units that one system lacks are excluded, also from the figures."""
    a = Units.of_values([(key, 1.0) for key in "abcdef"] + [("g", 0.0)])
    b = Units.of_values(
        [(key, value) for key, value in zip("bcdefh", [0, 0, 1, 0, 1, 9], strict=True)]
    )

    found = compare(a, b)

    assert (found.n, found.a, found.b, found.difference) == (5, 1.0, 0.4, 0.6)


@pytest.mark.parametrize("test", TESTS)
def test_degenerate_comparisons_say_why(test: Test) -> None:
    """Without a difference p is 1; few units or a constant difference have a reason and no p."""
    some = one_each([0.1, 0.2, 0.3, 0.4, 0.5])
    same, few = compare(some, some, test), compare(some, one_each([0.0] * 4), test)
    constant = compare(one_each([1.0] * 6), one_each([0.5] * 6), test)
    none = compare(some, Units.of_values([("z", 1.0)]), test)

    assert (same.p, same.reason, same.effect) == (1.0, "no unit differs", None)
    assert (few.p, few.reason) == (None, "fewer than 5 shared units")
    assert (constant.p, constant.reason) == (None, "every unit differs by the same amount")
    assert (constant.difference, constant.effect) == (0.5, None)
    assert (none.n, none.p, none.difference, none.reason) == (0, None, None, "no unit is shared")


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("rows", [clustered, lambda seed, units: list(
    zip(map(str, range(units)), drawn(seed, units).tolist(), strict=True))])  # fmt: skip
def test_changing_sides_changes_the_sign(
    test: Test, rows: Callable[[int, int], list[tuple[str, float]]]
) -> None:
    """b against a has the same p as a against b, with the opposite difference and bounds."""
    a, b = Units.of_values(rows(5, 15)), Units.of_values(rows(6, 15))
    one, other = compare(a, b, test), compare(b, a, test)

    assert one.p == pytest.approx(other.p, abs=1e-3 if test == "permutation" else 1e-12)
    assert one.difference == pytest.approx(-(other.difference or 0.0))
    assert (one.ci_low, one.ci_high) == pytest.approx((-(other.ci_high or 0), -(other.ci_low or 0)))


def test_scipy_has_no_value_where_nothing_differs() -> None:
    """scipy has NaN for zero differences, and t = inf for constant ones; p here is 1 and None."""
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="Precision loss"):
        constant = stats.ttest_rel([1.0] * 6, [0.5] * 6)
    assert np.isnan(stats.ttest_rel([1.0] * 6, [1.0] * 6).pvalue)
    assert np.isinf(constant.statistic)
    assert compare(one_each([1.0] * 6), one_each([0.5] * 6), "t").p is None


def test_scipys_bca_has_no_value_without_spread() -> None:
    """scipy has NaN, and we have the percentile interval."""
    with np.errstate(all="ignore"), pytest.warns(stats.DegenerateDataWarning):
        theirs = stats.bootstrap((np.ones(9),), np.mean, n_resamples=99).confidence_interval

    assert np.isnan(theirs.low)
    assert estimate(one_each([1.0] * 9), "bca").ci_low == 1.0


# -- unpaired tests ---------------------------------------------------------------------------


@pytest.mark.parametrize(("test", "pooled"), [("welch", False), ("pooled_t", True)])
def test_unpaired_t_tests_are_scipys(test: Any, pooled: bool) -> None:
    """They are computed from means of units, for samples of different size."""
    for seed in range(20):
        a, b = drawn(seed, 20), drawn(seed + 100, 33)
        found = compare_unpaired(one_each(a.tolist()), one_each(b.tolist()), test)

        assert found.p == pytest.approx(stats.ttest_ind(a, b, equal_var=pooled).pvalue, abs=1e-9)


@given(st.integers(0, 10_000))
@example(1365)
def test_an_effect_has_the_sign_of_its_difference(seed: int) -> None:
    """This includes ratios of sums, for which long conversations may differ from short ones."""
    draw = random.Random(seed)

    def drawn() -> Units:
        rows = []
        for at in range(12):
            below = draw.choice((10, 100))
            rows.append((f"c{at:02}", float(draw.randint(0, below)), float(below)))
        return Units.of_sums(rows)

    a, b = drawn(), drawn()
    for found in (compare(a, b, None), compare_unpaired(a, b, None)):
        assert found.effect is not None
        assert found.difference is not None
        assert (found.effect > 0) == (found.difference > 0)


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.7, 1.0]), min_size=2, max_size=12))
def test_figures_that_are_equal_have_no_effect(values: list[float]) -> None:
    """Rounding of single differences does not matter if the same values are on other units."""
    keys = [f"c{at:02}" for at in range(len(values))]
    a = Units.of_values(zip(keys, values, strict=True))
    b = Units.of_values(zip(keys, reversed(values), strict=True))
    for found in (compare(a, b, None), compare_unpaired(a, b, None)):
        assert found.difference == 0
        assert not found.effect


def test_units_with_equal_ratios_have_no_effect() -> None:
    """Variance that is only rounding counts as zero."""
    sizes = (10, 30, 70, 110)
    a, b = (
        Units.of_sums([(f"c{at}", share * size, size) for at, size in enumerate(sizes)])
        for share in (0.3, 0.1)
    )

    assert compare(a, b, None).effect is None
    assert compare_unpaired(a, b, None).effect is None


def test_hedges_g_by_hand() -> None:
    """Means are 3 and 2, deviation √2, 2 degrees of freedom: g = 0.5642 · 0.7071."""
    found = compare_unpaired(one_each([2.0, 4.0]), one_each([1.0, 3.0]))

    assert found.effect == pytest.approx(0.39894, abs=1e-5)


def test_the_two_sample_bootstrap_is_near_welch() -> None:
    """For samples of moderate size both tests have similar p."""
    for seed in range(5):
        a = one_each(drawn(seed, 150).tolist())
        b = one_each(np.minimum(drawn(seed + 9, 120) + 0.03, 1).tolist())
        welch, bootstrap = (compare_unpaired(a, b, test).p for test in ("welch", "bootstrap"))

        assert welch == pytest.approx(bootstrap, abs=0.02)


@pytest.mark.parametrize("test", UNPAIRED_TESTS)
def test_degenerate_unpaired_comparisons_say_why(test: Any) -> None:
    """Reasons are that one side has no spread, or fewer than five units."""
    ones, halves = one_each([1.0] * 6), one_each([0.5] * 6)

    assert compare_unpaired(ones, ones, test)[-2:] == (1.0, "no unit differs")
    assert compare_unpaired(ones, halves, test)[-2:] == (None, "one side has no spread")
    flat = compare_unpaired(ones, one_each([0.1, 0.2, 0.3, 0.4, 0.5]), test)
    assert (flat.p is None) == (test != "pooled_t")
    few = compare_unpaired(one_each([0.0, 1.0, 1.0, 0.0]), ones, test)
    assert (few.p, few.reason) == (None, "fewer than 5 units on one side")
    assert compare_unpaired(Units.of_values([]), ones, test).difference is None


# -- several ----------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_the_largest_step_so_far(p_values: list[float]) -> None:
    """p is multiplied by the number of remaining tests, never below an earlier p or above 1."""
    expected = []
    for p in p_values:
        smaller = [(other, sum(q >= other for q in p_values)) for other in p_values if other <= p]
        expected.append(min(1.0, max(other * left for other, left in smaller)))

    assert holm(p_values) == pytest.approx(expected)


def test_tests_that_were_not_made_count_in_the_family() -> None:
    """A missing p gets no value, and does not make the others smaller."""
    assert holm([0.01, None]) == [0.02, None]
    assert holm([]) == []


def test_averages_over_strata_weigh_each_the_same() -> None:
    """The variance is divided by n."""
    found = stratify({
        "en": one_each([1.0, 0.0] * 100), "de": one_each([1.0] * 60), "fr": one_each([0.0] * 9),
        "it": Units.of_values([]),
    })  # fmt: skip

    assert list(found.estimates) == ["de", "en", "fr", "it"]
    assert found.stratum_average == 0.5
    assert found.cross_stratum_variance == pytest.approx(np.var([0.5, 1.0, 0.0]))
    assert {key: note[:15] for key, note in found.notes.items()} == {
        "de": "fewer than 200 ", "fr": "fewer than 50 u", "it": "fewer than 50 u"
    }  # fmt: skip
    assert stratify({}).stratum_average is None


# -- functions of lists -----------------------------------------------------------------------


def test_functions_of_lists_are_the_same_statistics() -> None:
    """Each function of lists gives the result of scipy, or of the method that it calls."""
    a, b = drawn(1, 30).tolist(), drawn(2, 30).tolist()
    bounds = stats.t.interval(0.99, 29, np.mean(a), stats.sem(a))
    significance = statistical_significance_test(a, b)
    percentile = estimate(one_each(a), resample_count=500)

    assert calculate_confidence_interval(a, 0.99) == pytest.approx(bounds, abs=1e-9)
    assert significance["p_value"] == pytest.approx(stats.ttest_ind(a, b).pvalue, abs=1e-9)
    assert significance["significant"] == (stats.ttest_ind(a, b).pvalue < 0.05)
    assert bootstrap_confidence_interval(a, 500) == (
        percentile.mean,
        percentile.ci_low,
        percentile.ci_high,
    )
    assert paired_bootstrap_test(a, b)[0] == compare(one_each(a), one_each(b), "plain_bootstrap").p
    assert paired_bootstrap_test([1.0] * 9, [0.9, 0.8] * 4 + [0.7]) == (1 / 10_001, True)


def test_functions_of_lists_refuse_empty_and_unpaired_lists() -> None:
    """The error has the lengths of unpaired lists; one score has no interval."""
    with pytest.raises(ValueError, match="there are no scores"):
        calculate_confidence_interval([])
    with pytest.raises(ValueError, match="2 and 1 values"):
        paired_bootstrap_test([1.0, 0.0], [1.0])
    assert calculate_confidence_interval([1.0]) == (None, None)
