"""Sums of labelled conversations and their estimates, for any conversations in any order."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.alerts.estimates import Interval, estimates
from stream_metrics.core.engine.windows import add
from stream_metrics.core.metrics.label_sums import BOTH, SAMPLES, Labelled, conversation_sums
from tests.label_sums import added

Sampled = tuple[str, Labelled]


@st.composite
def conversations(draw: st.DrawFn) -> Labelled:
    """A conversation with shares of good results by people and by a model."""
    base = draw(st.integers(0, 50))
    return Labelled(base, draw(st.integers(0, base)), draw(st.integers(0, base)))


SAMPLED = st.lists(st.tuples(st.sampled_from(SAMPLES), conversations()), max_size=30)


def sums(found: list[Sampled]) -> dict[str, dict[str, int]]:
    """The sums of each sample."""
    return {name: added(name, [one for sample, one in found if sample == name]) for name in SAMPLES}


@given(SAMPLED, SAMPLED, st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_order_nor_on_what_was_taken_back(
    kept: list[Sampled], gone: list[Sampled], generator: Random
) -> None:
    """Conversations that are added and taken back in any order leave no trace in the sums."""
    steps = [(1, one) for one in kept + gone] + [(-1, one) for one in gone]
    generator.shuffle(steps)
    found: dict[str, dict[str, int]] = {sample: {} for sample in SAMPLES}
    for sign, (sample, one) in steps:
        add(found[sample], conversation_sums(sample, one), sign)

    assert found == {sample: dict(Counter(of)) for sample, of in sums(kept).items()}


@given(SAMPLED)
def test_estimates_lie_between_their_bounds_and_in_their_range(found: list[Sampled]) -> None:
    """A share and its bounds are between 0 and 1 in order, whatever was labelled."""
    made = estimates("sre", sums(found))

    for interval in (made.human, made.combined):
        if interval is not None and interval.low is not None and interval.high is not None:
            assert 0 <= interval.low <= interval.value <= interval.high <= 1


@given(SAMPLED)
def test_bad_results_are_estimated_as_good_ones_are(found: list[Sampled]) -> None:
    """The share of bad results has the mirrored estimates and bounds."""
    bad = [(sample, Labelled(b, b - y, b - f)) for sample, (b, y, f) in found]
    good, made = estimates("sre", sums(found)), estimates("sre", sums(bad))

    for one, other in ((good.human, made.human), (good.combined, made.combined)):
        assert mirrored(one) == pytest.approx(other, abs=1e-6)
    assert made.model == pytest.approx(None if good.model is None else 1 - good.model)


def mirrored(one: Interval | None) -> tuple[float | None, ...] | None:
    """An interval of a share as that of what is left."""
    if one is None:
        return None
    return tuple(None if part is None else 1 - part for part in (one.value, one.high, one.low))


@given(st.lists(conversations(), min_size=2, max_size=30))
def test_a_judge_that_agrees_is_off_by_nothing(found: list[Labelled]) -> None:
    """Where people and the model agree, it is off by 0 with certainty."""
    agreed = added(BOTH, [Labelled(one.base, one.people, one.people) for one in found])
    made = estimates("gain", {BOTH: agreed}).off

    assert made is None or made.value == 0
    assert made is None or made.low in {0, None}
