"""Confidence intervals cover the true value, and tests find differences, about as often as
promised."""

from __future__ import annotations

import numpy as np
import pytest

from stream_metrics.lab.statistics.comparison import significance
from stream_metrics.lab.statistics.intervals import estimate
from stream_metrics.lab.statistics.units import Units
from stream_metrics.lab.statistics.unpaired import significance_unpaired
from tests.calibration.shapes import CLUSTERED, SHAPES, Shape
from tests.calibration.study import (
    Data,
    Rate,
    coverage,
    drawn,
    drawn_pair,
    false_positives,
    false_positives_unpaired,
    generator_of,
    intervals,
    missed,
    near,
    paired_p,
    unpaired_p,
)

ALL = (*SHAPES, *CLUSTERED)
SETS = 40
DRAWS = 1_000
# The full simulation keeps the promises; a short one may miss them slightly by chance.
ERRORS = 3.5


def units(data: Data, at: int, shape: Shape) -> Units:
    """One of the data sets in the form that the statistics take."""
    keys = tuple(f"{unit:05}" for unit in range(data.n))
    sums, counts = data.sums[:, at].copy(), data.counts[:, at].copy()
    return Units(keys, sums, counts, data.n, None, shape.binary)


@pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.name)
@pytest.mark.parametrize("n", [9, 60])
def test_simulated_intervals_are_the_real_ones(shape: Shape, n: int) -> None:
    """Bounds computed for many data sets jointly equal those of each one alone."""
    data = drawn(shape, generator_of(shape, n, "check"), n, SETS)
    for method, (low, high) in intervals(data).items():
        if method == "wilson" and not shape.binary:
            continue
        real = [estimate(units(data, at, shape), method) for at in range(SETS)]

        assert low.tolist() == pytest.approx([one.ci_low for one in real], abs=1e-12)
        assert high.tolist() == pytest.approx([one.ci_high for one in real], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.name)
@pytest.mark.parametrize("n", [14, 40])
def test_simulated_tests_are_the_real_ones(shape: Shape, n: int) -> None:
    """P-values computed for many data sets jointly equal those of each one alone."""
    generator = generator_of(shape, n, "check")
    pair = drawn_pair(shape, generator, n, SETS)
    apart = drawn(shape, generator, n, SETS), drawn(shape, generator, n + 5, SETS)
    in_pairs, of_others = paired_p(*pair, DRAWS), unpaired_p(*apart, DRAWS)
    for at in range(SETS):
        one, other = (units(data, at, shape) for data in pair)
        for test, p in in_pairs.items():
            real = significance(one, other, test, resample_count=DRAWS).p
            assert p[at] == pytest.approx(1.0 if real is None else real, abs=1e-12)
        one, other = (units(data, at, shape) for data in apart)
        for unpaired, p in of_others.items():
            real = significance_unpaired(one, other, unpaired, resample_count=DRAWS).p
            assert p[at] == pytest.approx(1.0 if real is None else real, abs=1e-12)


@pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.name)
def test_intervals_cover_the_true_value(shape: Shape) -> None:
    """Of 1,000 intervals over 200 units, about 950 cover it."""
    rates = coverage(shape, 200, 1_000)

    assert [rate for rate in rates if missed(rate, ERRORS)] == []
    assert len(rates) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.name)
@pytest.mark.parametrize("n", [20, 50])
def test_tests_find_few_false_differences(shape: Shape, n: int) -> None:
    """Of 1,000 comparisons of equals, about 60 at most are significant."""
    rates = false_positives(shape, n, 1_000, DRAWS)
    rates += false_positives_unpaired(shape, n, 1_000, DRAWS)

    assert [rate for rate in rates if missed(rate, ERRORS)] == []
    assert len(rates) == 8


def test_intervals_of_searches_treated_as_independent_are_too_narrow() -> None:
    """Searches of one conversation depend on each other."""
    naive = {rate.what: rate.rate for rate in coverage(CLUSTERED[0], 200, 1_000)}

    assert naive["each search by itself"] < 0.8 < 0.9 < naive["percentile"]


def test_a_broken_promise_is_reported() -> None:
    """An interval that is too narrow, or a test that finds too much, is reported."""
    rate = coverage(SHAPES[1], 200, 200)[0]
    narrow = type(rate)("coverage", rate.shape, 200, "percentile", 0.91, 10_000)
    eager = type(rate)("false positives", rate.shape, 20, "bootstrap", 0.07, 10_000)

    assert missed(narrow)
    assert missed(eager)
    assert not missed(type(rate)("coverage", rate.shape, 20, "percentile", 0.9, 10_000))
    assert np.isfinite(rate.error)


def test_a_rate_close_to_its_bound_gets_more_simulations() -> None:
    """This applies on either side of the bound, as long as chance could explain it."""
    shape = SHAPES[0]

    def of(share: float) -> bool:
        return near(Rate("false positives", shape, 50, "welch", share, 10_000))

    assert [of(share) for share in (0.045, 0.055, 0.0606, 0.08)] == [False, True, True, False]
