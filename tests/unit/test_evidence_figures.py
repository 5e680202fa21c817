"""Figures of evidence, and thresholds by the wanted rate of false alarms."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.alerts.arrivals import COUNTS
from stream_metrics.core.alerts.calibration import MEASURED, SHARES, OutOfRange, fewest, threshold
from stream_metrics.core.alerts.figures import FIGURES, LOW, Figure

EACH = pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
usual_ratios = st.floats(LOW, 0.98)
variances = st.floats(0.001, 100)


@EACH
def test_a_figure_is_a_ratio_of_counts_and_has_thresholds(figure: Figure) -> None:
    """All figures together have no more alarms than an agent may have."""
    assert {figure.above, figure.below} <= COUNTS.keys()
    assert figure.name in MEASURED
    assert sum(SHARES.values()) <= 1


@EACH
@given(usual=usual_ratios, variance=variances)
def test_the_usual_ratio_is_evidence_against_a_shift(
    figure: Figure, usual: float, variance: float
) -> None:
    """Results as usual lower evidence, and those at the shifted ratio raise it."""
    for shift in figure.shifts:
        above, below = figure.weights(shift, usual, variance)
        shifted = usual + figure.sign * shift.size(usual)
        if figure.model is None:
            shifted = min(shifted, figure.high)

        assert above * usual + below <= 1e-9
        assert above * shifted + below >= -1e-9


@EACH
def test_a_ratio_that_is_usually_0_is_no_evidence_that_it_fell(figure: Figure) -> None:
    """The usual ratio is taken to be ``LOW`` then."""
    for shift in figure.shifts:
        _, below = figure.weights(shift, LOW, 1.0)

        assert below <= 0


@pytest.mark.parametrize("figure", MEASURED)
def test_a_measured_rate_has_its_threshold(figure: str) -> None:
    """The one that was measured with it."""
    for measured, rate in MEASURED[figure]:
        assert rate > 0
        assert threshold(figure, rate / SHARES[figure]) == measured


@pytest.mark.parametrize("figure", [name for name, found in MEASURED.items() if len(found) > 1])
def test_a_higher_threshold_has_fewer_false_alarms(figure: str) -> None:
    """For a rate between two that were measured, it is the threshold with the lower rate."""
    for (low, often), (high, seldom) in pairwise(MEASURED[figure]):
        between = threshold(figure, (often * seldom) ** 0.5 / SHARES[figure])

        assert low < high
        assert often > seldom
        assert between == high


@pytest.mark.parametrize("figure", MEASURED)
def test_more_false_alarms_than_measured_get_the_lowest_threshold(figure: str) -> None:
    """There are fewer alarms then than were asked for, never more."""
    assert threshold(figure, 1e6) == MEASURED[figure][0][0]


def test_fewer_false_alarms_than_measured_are_refused() -> None:
    """The message says how many can be had."""
    worst = max(MEASURED, key=lambda figure: MEASURED[figure][-1][1] / SHARES[figure])

    with pytest.raises(OutOfRange, match=re.escape(f"the fewest are {fewest():.2g}")):
        threshold(worst, 0.9 * fewest())
    for figure in MEASURED:
        assert threshold(figure, fewest()) > 0
