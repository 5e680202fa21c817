"""The benchmarks' check that two tools give equal scores."""

from __future__ import annotations

from math import inf, nan

import pytest

from benchmarks.agreement import differs

TOLERANCE = 1e-9


@pytest.mark.parametrize("broken", [nan, inf, -inf, None])
def test_nan_agrees_with_a_missing_score(broken: float | None) -> None:
    """A tool that gives NaN for a query has no score for it, and we must have none either."""
    assert differs([0.25, broken], [0.25, 0.5], TOLERANCE).tolist() == [False, True]
    assert differs([0.25, 0.5], [0.25, broken], TOLERANCE).tolist() == [False, True]
    assert differs([broken], [broken], TOLERANCE).all()


def test_scores_differ_by_more_than_the_tolerance() -> None:
    """Each query's scores are compared, whichever of the two is larger."""
    ours = [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    theirs = [[0.5, 0.5 + 9e-10], [0.5 + 2e-9, 0.5], [0.5, 0.5 - 2e-9]]

    assert differs(theirs, ours, TOLERANCE).any(axis=1).tolist() == [False, True, True]
