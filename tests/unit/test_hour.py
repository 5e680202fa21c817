"""What is usual on the page: that of numpy, without what lies far off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_metrics.core.alerts.figures import FIGURES, LOW, Figure
from stream_metrics.core.alerts.hour import (
    LEAST_PARTS,
    OUTLYING,
    Part,
    parts,
    usual,
)

EACH = pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
BY_NAME = {figure.name: figure for figure in FIGURES}
shares = st.floats(0.02, 0.98)


@st.composite
def stretches(draw: st.DrawFn, rates: Sequence[float] = (0.3, 5.0, 200.0)) -> list[Part]:
    """Sixty stretches of time with this traffic in each, on average."""
    seed, share = draw(st.integers(0, 2**32 - 1)), draw(shares)
    rng = np.random.default_rng(seed)
    below = rng.poisson(draw(st.sampled_from(rates)), 60)
    above = rng.binomial(below, share)
    return [Part(int(a), int(b)) for a, b in zip(above, below, strict=True)]


@EACH
@given(day=stretches(rates=(200.0,)), silent=st.sets(st.integers(0, 59), max_size=50))
def test_what_is_usual_is_that_of_numpy(figure: Figure, day: list[Part], silent: set[int]) -> None:
    """Of a day without outlying parts, the ratio and the variance over all that have traffic."""
    day = [Part(0, 0) if at in silent else part for at, part in enumerate(day)]
    above, below = (np.array(values, float) for values in zip(*day, strict=True))
    ratio = above.sum() / below.sum()
    assumed = float(np.clip(ratio, LOW, figure.high))
    least = figure.model.floor(assumed) if figure.model else assumed * (1 - assumed)
    variance = max(np.var(above - ratio * below) / below.mean(), least)
    near = (above - ratio * below) ** 2 <= OUTLYING / 2 * variance * below
    assume(near.all())  # a small share varies with a long tail

    known = usual(figure, day)

    assert known is not None
    assert known.ratio == pytest.approx(ratio)
    assert known.variance == pytest.approx(variance)


@EACH
@given(day=stretches(rates=(200.0,)), first=st.integers(0, 54), busy=st.sampled_from([1, 3]))
def test_an_incident_of_yesterday_is_not_usual(
    figure: Figure, day: list[Part], first: int, busy: int
) -> None:
    """Four parts in a row that are far off change neither the ratio nor the variance much.

    The variance is compared with that of all other parts: one of them may be nearly an outlier.
    """
    known = usual(figure, day)
    assert known is not None
    above, below = np.array(day).T
    whole = float(np.var(above - known.ratio * below) / below.mean())
    off = 0.02 if known.ratio > 0.5 else 0.98
    incident = [Part(off * busy * part.below, busy * part.below) for part in day[first : first + 4]]

    after = usual(figure, [*day[:first], *incident, *day[first + 4 :]])

    assert after is not None
    assert after.ratio == pytest.approx(known.ratio, abs=0.02)
    assert after.variance <= 1.5 * max(known.variance, whole)


@EACH
def test_nothing_is_usual_until_enough_parts_of_the_day_have_traffic(figure: Figure) -> None:
    """However much traffic these have."""
    busy, silent = Part(250_000, 1_000_000), Part(0, 0)

    assert usual(figure, [busy] * (LEAST_PARTS - 1) + [silent] * 55) is None
    assert usual(figure, [busy] * LEAST_PARTS + [silent] * 55) is not None


def test_counts_in_billionths_become_ratios_of_searches() -> None:
    """The variance of reranking is for each search, so that its unit matters."""
    counts = {"rerank_ndcg_shown": 1_500_000_000, "rerank_ndcg_baseline": 2_000_000_000}

    assert parts(BY_NAME["reranking"], [counts, {}]) == [Part(1.5, 2.0), Part(0, 0)]


@EACH
def test_what_a_quarter_of_the_day_has_is_usual(figure: Figure) -> None:
    """Parts that are far off are left out only if they are fewer than that."""
    day, other = Part(200, 1_000), Part(700, 1_000)

    few, many = (usual(figure, [day] * (60 - n) + [other] * n) for n in (14, 16))

    assert few is not None
    assert many is not None
    assert few.ratio == pytest.approx(0.2)
    assert many.ratio == pytest.approx(0.2 + 0.5 * 16 / 60)
