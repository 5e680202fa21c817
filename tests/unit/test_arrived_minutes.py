"""The minutes of arrival that a state partition keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.alerts.minutes import (
    HOURS,
    OPEN,
    Arrivals,
    Arrived,
    ArrivedMinutes,
    Counts,
    keeps_minutes,
    place_of,
    window_of,
)
from stream_metrics.core.alerts.shifts import HORIZON
from stream_metrics.core.engine.codec import decode_sums
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.windows import Names
from tests.property.test_arrivals import net_arrivals

NOW = 29_000_000
NOW_US = NOW * 60_000_000
NAMES = Names(frozenset({"a", "b"}), frozenset())

cells = st.builds(
    Cell,
    st.just(0),
    st.sampled_from(["a", "b", "unnamed"]),
    st.dictionaries(
        st.sampled_from(["s", "r", "d", "i", "q|skip|yes", "R|web|no", "ks|shown", "sg", "aa"]),
        st.integers(1, 5),
        min_size=1,
    ),
)
arrivals = st.lists(
    st.tuples(
        st.integers(NOW - 400, NOW),
        st.lists(st.tuples(st.sampled_from([-1, 1]), cells), max_size=3),
    ),
    max_size=6,
)


def kept(arrived: list[Arrivals], batches: int = 1) -> ArrivedMinutes:
    """What a partition keeps of arrivals in some batches."""
    minutes = ArrivedMinutes()
    for number in range(batches):
        minutes.install(minutes.changes(arrived[number::batches], NAMES, NOW_US, number + 1))
    return minutes


def counted(*partitions: ArrivedMinutes) -> dict[str, dict[int, Counts]]:
    """The counts over partitions, by agent and minute."""
    found = Arrived()
    found.update({number: one.hours() for number, one in enumerate(partitions)})
    return found.agents


@given(arrivals)
def test_each_minute_has_the_counts_that_arrived_in_it(arrived: list[Arrivals]) -> None:
    """Those that alerts count, less what was taken back."""
    found = counted(kept(arrived))

    for minute in range(NOW - 400, NOW + 1):
        there = [cell for at, cells in arrived if at == minute for cell in cells]
        by_agent = {a: of[minute] for a, of in found.items() if minute in of}
        assert by_agent == {a: of for a, of in net_arrivals(there, NAMES).items() if of}


@given(arrivals, st.integers(1, 4))
def test_minutes_do_not_depend_on_batches(arrived: list[Arrivals], batches: int) -> None:
    """Nor on the order in which they are read."""
    assert counted(kept(arrived, batches)) == counted(kept(arrived))


@given(arrivals)
def test_minutes_of_several_partitions_add_up(arrived: list[Arrivals]) -> None:
    """What one had, and another took back, is counted as it is for both together."""
    parts = [kept(arrived[number::2]) for number in range(2)]

    assert counted(*parts) == counted(kept(arrived))


@given(arrivals, arrivals, arrivals)
def test_counts_that_are_kept_are_those_made_anew(
    first: list[Arrivals], second: list[Arrivals], third: list[Arrivals]
) -> None:
    """Whatever partitions come, change and go, and in whatever order they are read."""
    one, two, found = kept(first), kept(second), Arrived()
    found.update({0: one.hours()})
    found.update({0: one.hours(), 1: two.hours()})
    one.install(one.changes(third, NAMES, NOW_US, 77))
    found.update({1: two.hours(), 0: one.hours()})
    assert found.agents == counted(one, two)

    found.update({1: two.hours()})
    assert found.agents == counted(two)


@given(arrivals)
def test_stored_minutes_are_loaded_as_they_were(arrived: list[Arrivals]) -> None:
    """After a restart or a rebalance, they go on from there; windows are left to others."""
    after = ArrivedMinutes()
    stored = ArrivedMinutes().changes(arrived, NAMES, NOW_US, 1)
    for (window, minute, agent), sums in stored.items():
        assert sums is not None
        after.load(window, minute, agent, sums)
        after.load("1h", minute, agent, sums)

    assert after.hours() == kept(arrived).hours()
    assert all(keeps_minutes(window) for window, _, _ in stored)


@given(arrivals, arrivals)
def test_an_hour_has_another_mark_once_it_changes(
    first: list[Arrivals], second: list[Arrivals]
) -> None:
    """So that whoever reads it again and again can tell."""
    minutes = kept(first)
    before = minutes.hours()
    minutes.install(minutes.changes(second, NAMES, NOW_US, 77))
    after = minutes.hours()

    differ = {place for place in after if after[place] != before.get(place)}
    assert differ == {place for place in after if after[place].mark == 77}


def test_hours_that_are_kept_have_places_of_their_own() -> None:
    """However the clock stands; and the oldest is gone before its place is taken."""
    for last in range(NOW, NOW + 60):
        hours = {minute // 60 for minute in range(last - HORIZON - 60, last + 1)}
        assert len({place_of(60 * hour) for hour in hours}) == len(hours) <= HOURS


def test_minutes_that_no_evidence_depends_on_are_deleted() -> None:
    """When a batch is written later; what arrived before that is not kept at all."""
    searched = Cell(0, "a", {"s": 1})
    minutes = kept([(NOW, [(1, searched)])])
    later_us = NOW_US + HOURS * 3_600_000_000

    touched = minutes.changes([(NOW, [(1, searched)])], NAMES, later_us, 2)
    minutes.install(touched)

    assert touched == {(window_of(place_of(NOW)), NOW, "a"): None}
    assert minutes.changes([], NAMES, later_us, 3) == {}


def test_hours_that_did_not_change_lately_are_still_counted() -> None:
    """They are packed, and unpacked where a label comes for one of them."""
    found: list[Arrivals] = [
        (NOW - 60 * back, [(1, Cell(0, "a", {"s": back + 1}))]) for back in range(2 * OPEN)
    ]
    minutes = kept(found, 2 * OPEN)
    minutes.install(minutes.changes(found[-1:], NAMES, NOW_US, 77))

    counts = counted(minutes)["a"]
    assert [counts[minute]["searches"] for minute, _ in found[:-1]] == list(range(1, 2 * OPEN))
    assert counts[found[-1][0]] == {"searches": 4 * OPEN}


def test_minutes_know_of_labels() -> None:
    """Evidence of labelled figures waits where these are missing."""
    minutes = kept([(NOW, [(1, Cell(0, "a", {"u": 10, "l": 4}))])])

    assert counted(minutes) == {"a": {NOW: {"unique_results": 10, "labelled_results": 4}}}


def test_minutes_are_stored_as_they_were() -> None:
    """State of an earlier release goes on; so does one of this in a later."""
    at = 60 * HOURS * 7_000 + 59
    cell = Cell(0, "a", {"s": 1, "q|skip|yes": 2, "ks|shown": 3, "u": 4, "l": 5, "i": 6})

    stored = ArrivedMinutes().changes([(at, [(1, cell)])], NAMES, at * 60_000_000, 9)

    assert {place: decode_sums(sums or b"") for place, sums in stored.items()} == {
        ("arrived:0", at, "a"): {"s": 1, "q": 2, "qm": 2, "ks": 3, "u": 4, "l": 5},
        ("arrived", 0, "other"): {"n": 9},
    }
