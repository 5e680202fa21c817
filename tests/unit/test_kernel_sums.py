"""The compiled bootstrap draws and adds up as the one in Python does, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.kernel import kernel
from stream_metrics.statistics.resampling import BLOCK, SEED, times_drawn
from stream_metrics.statistics.sums import plain_sums, resampled_sums
from stream_metrics.statistics.units import Floats

pytestmark = pytest.mark.kernel

# What is added up in lanes, in blocks and in halves of blocks.
SIZES = [1, 2, 3, 7, 8, 9, 15, 16, 127, 128, 129, 136, 137, 255, 257, 1_000, 5_003]


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Without the kernel's own sums nothing here can be said."""
    assert hasattr(kernel, "resampled_sums"), "the kernel is not there, or older: make kernel"


def same_bits(one: list[Floats], other: list[Floats]) -> bool:
    """Whether both are the same, zeros with their signs."""
    return [column.tobytes() for column in one] == [column.tobytes() for column in other]


@pytest.mark.parametrize("units", SIZES)
def test_sums_have_the_same_bits(units: int) -> None:
    """Columns of any size, of values whose sums depend on the order of adding."""
    draw = np.random.default_rng(units)
    columns = [draw.normal(size=units), draw.lognormal(0, 20, size=units), np.full(units, -0.0)]

    for seed, stream in ((SEED, 0), (SEED, 1), (7, 2)):
        compiled = resampled_sums(columns, 41, seed=seed, stream=stream)
        assert same_bits(compiled, plain_sums(columns, 41, seed=seed, stream=stream))


@settings(deadline=None)
@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=200),
    st.integers(1, 20),
    st.integers(0, 2**64),
)
def test_any_values_any_seed(values: list[float], count: int, seed: int) -> None:
    """Whatever is drawn from, however often; what overflows does so in both."""
    column = np.array(values)
    with np.errstate(over="ignore", invalid="ignore"):
        plain = plain_sums([column], count, seed=seed)
    (compiled,) = resampled_sums([column], count, seed=seed)

    np.testing.assert_array_equal(compiled, plain[0])


def test_a_stream_of_several_blocks_is_one_stream() -> None:
    """Numbers that are drawn again, and halves of words left over, carry on where blocks end."""
    units = 1_000_003
    places = np.arange(units, dtype=np.float64)
    assert 5 * units > BLOCK

    by_count = [float((times * places).sum()) for times in times_drawn(units, 5)]

    assert resampled_sums([places], 5)[0].tolist() == by_count


def test_many_are_drawn_again() -> None:
    """Of a stream that is long enough, the draws that are unfair are left out in both."""
    units = 2_500_001  # one draw in 1,700 or so is not taken
    values = np.random.default_rng(1).random(units)

    assert same_bits(resampled_sums([values], 3), plain_sums([values], 3))


def test_one_may_be_drawn_every_time() -> None:
    """A generator that gives nothing but zeros draws the first of 1,024 units 1,024 times."""
    values = np.random.default_rng(2).random(1_024)
    assert kernel is not None

    (sums,) = kernel.resampled_sums([values], 2, 0, 0)

    assert np.frombuffer(sums).tolist() == [1_024 * values[0]] * 2


@pytest.mark.parametrize(("units", "too_often"), [(31, 16), (613, 256)])
def test_some_resamples_draw_one_too_often_to_be_packed(units: int, too_often: int) -> None:
    """Those are drawn anew; what is drawn behind them is what numpy draws of the same generator."""
    state, count = 1 << 100, 41  # nothing to add: many halves begin with zeros
    poor = np.random.PCG64()
    poor.state = {**poor.state, "state": {"state": state, "inc": 0}}
    drawn = np.random.Generator(poor).integers(0, units, size=(count, units))
    times = np.stack([np.bincount(row, minlength=units) for row in drawn]).astype(np.float64)
    most = times.max(axis=1)
    assert most.min() < too_often <= most.max()
    values = np.random.default_rng(3).normal(size=units)
    assert kernel is not None

    (sums,) = kernel.resampled_sums([values], count, state, 0)

    assert same_bits([np.frombuffer(sums)], [(times * values).sum(axis=1)])


def test_columns_must_have_one_length() -> None:
    """The kernel turns away what has no units in common."""
    assert kernel is not None
    with pytest.raises(ValueError, match="as many values"):
        kernel.resampled_sums([np.zeros(3), np.zeros(2)], 1, 1, 1)
    with pytest.raises(ValueError, match="as many values"):
        kernel.resampled_sums([np.zeros(0)], 1, 1, 1)
