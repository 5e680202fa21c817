"""What the benchmarks take for the same scores."""

from __future__ import annotations

from math import inf, nan

import pytest

from benchmarks.agreement import differs

TOLERANCE = 1e-9


@pytest.mark.parametrize("broken", [nan, inf, -inf, None])
def test_what_is_no_score_agrees_with_no_score(broken: float | None) -> None:
    """A tool that gives NaN for a query has not given ours."""
    assert differs([0.25, broken], [0.25, 0.5], TOLERANCE).tolist() == [False, True]
    assert differs([0.25, 0.5], [0.25, broken], TOLERANCE).tolist() == [False, True]
    assert differs([broken], [broken], TOLERANCE).all()


def test_scores_differ_by_more_than_the_tolerance() -> None:
    """Row by row, whichever is the larger."""
    ours = [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    theirs = [[0.5, 0.5 + 9e-10], [0.5 + 2e-9, 0.5], [0.5, 0.5 - 2e-9]]

    assert differs(theirs, ours, TOLERANCE).any(axis=1).tolist() == [False, True, True]
