"""Sums of arrays equal those of fsum, to the last bit."""

from __future__ import annotations

from math import fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.lab.statistics.exact_arrays import BLOCK, FEW, exact_sum, exact_sums

VALUES = st.one_of(
    st.floats(-1.0, 1.0),
    st.floats(-1e300, 1e300),
    st.sampled_from([0.0, -0.0, 5e-324, 2.0**52 + 1, -(2.0**53), 1 / 3]),
)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=20), st.integers(1, 20))
def test_a_sum_is_rounded_once(values: list[float], times: int) -> None:
    """This holds for few or many values of any size."""
    many = values * times

    assert exact_sum(np.array(many)).hex() == fsum(many).hex()


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, BLOCK - 1, BLOCK, 2 * BLOCK + 7])
@pytest.mark.parametrize("digits", [1, 20, 200])
def test_sums_of_many_values_are_exact(count: int, digits: int) -> None:
    """The values are of one or many sizes, in one or several blocks."""
    draw = np.random.default_rng(count)
    values = draw.normal(size=count) * 10.0 ** draw.integers(-digits, digits, count)

    assert exact_sum(values) == fsum(values.tolist())


def test_sums_may_be_infinite_or_nan() -> None:
    """The sum of infinities of both signs is refused."""
    ones = np.ones(FEW)

    assert exact_sum(np.append(ones, np.inf)) == np.inf
    assert np.isnan(exact_sum(np.append(ones, np.nan)))
    with pytest.raises(ValueError, match="inf"):
        exact_sum(np.append(ones, [np.inf, -np.inf]))


def test_sums_of_shares_take_two_parts() -> None:
    """Scores of searches are from 0 to 1, with few per conversation."""
    draw = np.random.default_rng(7)
    values = draw.integers(0, 10, 3_000) / draw.integers(10, 40, 3_000)
    starts = np.unique(np.append(0, draw.integers(0, 3_000, 900)))
    found = exact_sums(values, starts)

    assert found is not None
    assert found.tolist() == [fsum(run) for run in np.split(values, starts[1:])]


def test_values_too_far_apart_for_two_parts_are_not_added() -> None:
    """A third part would round twice."""
    assert exact_sums(np.array([1.0, 1e-20, 1e-40]), np.array([0])) is None
