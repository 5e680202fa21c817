"""Bands of traffic: each incident is in one, and comparisons are paired."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tests.drill.bands import (
    BANDS,
    Compared,
    Share,
    band_table,
    compare,
    in_band,
    share_within,
)
from tests.drill.plan import KINDS
from tests.drill.score import Caught
from tests.drill.world import Incident

RESULTS = next(kind for kind in KINDS if kind.name == "empty_index")


def caught(
    turns: int | None, minutes: int | None, *, start: int = 0, strength: float = 1.0, due: int = 10
) -> Caught:
    """An incident of an index that returns nothing, with an alert so many minutes after."""
    incident = Incident("empty_index", "agent-00", start, start + 1, strength)
    return Caught(RESULTS, incident, False, 0.0, due, minutes, None, turns, None)


@given(st.integers(0, 10_000))
def test_every_number_of_turns_is_in_one_band(turns: int) -> None:
    """None is counted twice, and none is left out."""
    assert sum(turns in band for band in BANDS) == 1


def test_incidents_of_all_agents_and_too_small_ones_are_in_no_band() -> None:
    """Bands are about one agent's traffic and about incidents of real size."""
    found = [caught(None, 5), caught(7, 5, strength=0.3), caught(7, 5)]

    assert sum(len(in_band(found, band)) for band in BANDS) == 1


def test_later_alerts_count_within_the_minutes_that_are_added() -> None:
    """In time means by the minute in which it is due."""
    found = [caught(7, 10), caught(7, 11), caught(7, 30), caught(7, 31), caught(7, None)]

    assert [share_within(found, later).hits for later in (0, 20, 30)] == [1, 3, 4]


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_interval_holds_the_share(hits: int, missed: int) -> None:
    """And is all of it if there is nothing."""
    share = Share(hits, hits + missed)
    low, high = share.interval

    assert low - 1e-12 <= (hits / share.of if share.of else 0.5) <= high + 1e-12
    assert share.of or (low, high) == (0.0, 1.0)


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_comparison_is_the_exact_two_sided_test_of_mcnemar(first: int, second: int) -> None:
    """By the binomial distribution of those that only one of them caught."""
    of = first + second
    tail = float(binom.cdf(min(first, second), of, 0.5)) if of else 1.0

    assert Compared(first, second, of).chance == pytest.approx(min(1.0, 2 * tail))


def test_what_both_catch_or_both_miss_says_nothing_about_which_is_better() -> None:
    """Only pairs that differ count."""
    first = [caught(7, 5, start=at) for at in range(20)]
    second = [caught(7, None if at < 6 else 5, start=at) for at in range(20)]

    found = compare(first, second)

    assert found == Compared(6, 0, 20)
    assert found.better
    assert compare(second, first).worse


def test_different_incidents_are_not_compared() -> None:
    """That would be no pair."""
    with pytest.raises(ValueError, match="different incidents"):
        compare([caught(7, 5, start=1)], [caught(7, 5, start=2)])


def test_the_table_has_a_row_for_each_band_and_one_for_less_traffic() -> None:
    """A band without incidents shows none, and not a share."""
    rows = band_table([caught(4, 9), caught(5, None)])

    assert (
        rows[4]
        == "| 3-5 turns | 50% (9% to 91%) of 2 | 50% (9% to 91%) of 2 | 50% (9% to 91%) of 2 |"
    )
    assert rows[2] == "| 0 turns | - | - | - |"
    assert len(rows) == 2 + len(BANDS) + 1
