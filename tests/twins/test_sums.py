"""The compiled bootstrap draws the same stream as numpy from the same generator."""

from __future__ import annotations

import numpy as np
import pytest

from stream_metrics.lab.statistics.resampling import BLOCK, draw_counts
from stream_metrics.lab.statistics.sums import resampled_sums
from tests.twins import kernel
from tests.twins.sums import bits

pytestmark = pytest.mark.kernel


def test_a_stream_of_several_blocks_is_one_stream() -> None:
    """Numbers that are drawn again, and halves of words left over, carry on where blocks end."""
    units = 1_000_003
    places = np.arange(units, dtype=np.float64)
    assert 5 * units > BLOCK

    by_count = [float((times * places).sum()) for times in draw_counts(units, 5)]

    assert resampled_sums([places], 5)[0].tolist() == by_count


def test_one_may_be_drawn_every_time() -> None:
    """A generator that gives nothing but zeros draws the first of 1,024 units 1,024 times."""
    values = np.random.default_rng(2).random(1_024)

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

    (sums,) = kernel.resampled_sums([values], count, state, 0)

    assert bits([np.frombuffer(sums)]) == bits([(times * values).sum(axis=1)])
