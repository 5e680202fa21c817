"""Evidence of the last hour: equal to that of numpy, and cautious where labels or traffic lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_metrics.core.alerts.calibration import FALSE_ALARMS, threshold
from stream_metrics.core.alerts.figures import FIGURES, LOW, Figure
from stream_metrics.core.alerts.hour import (
    LABELLED,
    LEAST_ACTIVE,
    OUTLYING,
    Part,
    Step,
    Usual,
    gathered,
    latest,
    noticed,
    parts,
    steps,
    together,
    unlabelled_minutes,
    usual,
)
from tests.drill import evidence as reference

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
@given(data=st.data())
def test_evidence_is_that_of_the_reference(figure: Figure, data: Any) -> None:
    """It is that of numpy, which Prometheus' rules are compared with, over the same minutes."""
    hour = data.draw(stretches())
    known = Usual(data.draw(shares), data.draw(st.floats(0.05, 20)))
    unlabelled = data.draw(st.sets(st.integers(0, 59)))
    above, below = (np.array(values, float) for values in zip(*hour, strict=True))
    nats = threshold(figure.name, FALSE_ALARMS)

    for shift in figure.shifts:
        if figure.model is None:
            shifted = min(known.ratio + max(shift.times * known.ratio, shift.least), figure.high)
            weights = reference.bernoulli_weights(np.array(known.ratio), np.array(shifted))
        else:
            values = reference.Usual(np.array(known.ratio), np.array(known.variance))
            weights = reference.normal_weights(values, figure.sign, shift.times, shift.least)
        mask = np.isin(np.arange(60), list(unlabelled))
        step = reference.steps(above, below, weights, mask)
        expected = reference.accumulate(step, nats, (below <= 0) | mask, figure.most) / nats

        found = gathered(figure, steps(figure, shift, known, hour, nats, unlabelled))

        assert found == pytest.approx(expected.tolist(), abs=1e-9)


@given(
    pool=st.lists(
        st.lists(st.builds(Step, st.floats(-2, 2), st.booleans()), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_what_a_pool_adds_is_the_sum_over_its_agents(pool: list[list[Step]]) -> None:
    """A minute is judged if it is for one of them."""
    values, judged = np.moveaxis(np.array(pool), -1, 0)

    found = together(pool)

    assert [step.value for step in found] == pytest.approx(values.sum(axis=0).tolist())
    assert [step.judged for step in found] == (judged.max(axis=0) > 0).tolist()


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

    assert usual(figure, [busy] * (LEAST_ACTIVE - 1) + [silent] * 55) is None
    assert usual(figure, [busy] * LEAST_ACTIVE + [silent] * 55) is not None


@EACH
@given(ratio=st.floats(0.0, 1.0), variance=st.floats(0.05, 20))
def test_what_is_said_to_be_noticed_reaches_the_threshold(
    figure: Figure, ratio: float, variance: float
) -> None:
    """That much traffic at that ratio is evidence of 1, or more if it tells of both shifts."""
    known, nats = Usual(ratio, variance), threshold(figure.name, FALSE_ALARMS)
    least = noticed(figure, known, nats)
    if least is None:
        return
    each = Part(least.ratio * least.below / 60, least.below / 60)

    found = [
        gathered(figure, steps(figure, shift, known, [each] * 60, nats))[-1]
        for shift in figure.shifts
    ]

    assert max(found) >= 1 - 1e-9


@pytest.mark.parametrize(("name", "ratio"), [("srr", 0.95), ("sre", 0.01), ("missed_searches", 1)])
def test_a_ratio_near_its_end_cannot_be_seen_to_shift(name: str, ratio: float) -> None:
    """Nothing that may come would be evidence."""
    figure = BY_NAME[name]

    assert noticed(figure, Usual(ratio, 1.0), 10.0) is None


def test_counts_in_billionths_become_ratios_of_searches() -> None:
    """The variance of reranking is for each search, so that its unit matters."""
    counts = {"rerank_ndcg_shown": 1_500_000_000, "rerank_ndcg_baseline": 2_000_000_000}

    assert parts(BY_NAME["reranking"], [counts, {}]) == [Part(1.5, 2.0), Part(0, 0)]


@pytest.mark.parametrize(
    ("values", "evidence_of_last"),
    [([], (0.0, 0)), ([0.5, 0.0], (0.0, 0)), ([0.0, 0.2, 0.9], (0.9, 2)), ([1.0] * 60, (1.0, 60))],
)
def test_evidence_grows_since_it_was_last_0(
    values: list[float], evidence_of_last: tuple[float, int]
) -> None:
    """These are the minutes in which the figure has most likely been shifted."""
    assert latest(values) == evidence_of_last


def labelled(part: int, whole: int) -> dict[str, int]:
    """What a minute counts of documents."""
    return {"labelled_results": part, "unique_results": whole}


def test_minutes_that_wait_for_their_labels_are_unlabelled() -> None:
    """By the share of the minutes around, so that one without documents waits as those do."""
    usual_share, done, waiting = 0.5, labelled(50, 100), labelled(0, 100)
    hour = [done] * 30 + [waiting] * 10 + [labelled(0, 0)] + [waiting] * 10 + [{}] * 9

    found = unlabelled_minutes(hour, usual_share)

    assert set(range(32, 53)) <= found <= set(range(29, 53))


def test_an_hour_with_its_usual_labels_is_labelled() -> None:
    """Also if that are few of the documents; with clearly fewer it is not."""
    at = [labelled(round(100 * 0.2 * LABELLED) + more, 100) for more in (1, -1)]

    assert unlabelled_minutes([at[0]] * 60, 0.2) == frozenset()
    assert unlabelled_minutes([at[1]] * 60, 0.2) == frozenset(range(60))
    assert unlabelled_minutes([{}] * 60, 0.2) == frozenset()


@EACH
def test_what_a_quarter_of_the_day_has_is_usual(figure: Figure) -> None:
    """Parts that are far off are left out only if they are fewer than that."""
    day, other = Part(200, 1_000), Part(700, 1_000)

    few, many = (usual(figure, [day] * (60 - n) + [other] * n) for n in (14, 16))

    assert few is not None
    assert many is not None
    assert few.ratio == pytest.approx(0.2)
    assert many.ratio == pytest.approx(0.2 + 0.5 * 16 / 60)
