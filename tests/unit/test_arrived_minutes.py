"""The minutes of arrival that a state partition keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.alerts.arrivals import net_arrivals
from stream_metrics.core.alerts.minutes import (
    ARRIVED,
    KEPT,
    Arrivals,
    ArrivedMinutes,
    counts_by_agent,
)
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.windows import Names

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
        st.integers(NOW - 5, NOW), st.lists(st.tuples(st.sampled_from([-1, 1]), cells), max_size=3)
    ),
    max_size=6,
)


def kept(arrived: list[Arrivals], batches: int = 1) -> ArrivedMinutes:
    """What a partition keeps of arrivals in some batches."""
    minutes = ArrivedMinutes()
    for number in range(batches):
        minutes.install(minutes.changes(arrived[number::batches], NAMES, NOW_US))
    return minutes


@given(arrivals)
def test_each_minute_has_the_counts_that_arrived_in_it(arrived: list[Arrivals]) -> None:
    """Those that alerts count, less what was taken back."""
    found = counts_by_agent([kept(arrived).buckets])

    for minute in range(NOW - 5, NOW + 1):
        there = [cell for at, cells in arrived if at == minute for cell in cells]
        by_agent = {a: of[minute] for a, of in found.items() if minute in of}
        assert by_agent == {a: of for a, of in net_arrivals(there, NAMES).items() if of}


@given(arrivals, st.integers(1, 4))
def test_minutes_do_not_depend_on_batches(arrived: list[Arrivals], batches: int) -> None:
    """Nor on the order in which they are read."""
    assert kept(arrived, batches).buckets.keys() == kept(arrived).buckets.keys()
    assert counts_by_agent([kept(arrived, batches).buckets]) == counts_by_agent(
        [kept(arrived).buckets]
    )


@given(arrivals)
def test_minutes_of_several_partitions_add_up(arrived: list[Arrivals]) -> None:
    """What one had, and another took back, is counted as it is for both together."""
    parts = [kept(arrived[number::2]).buckets for number in range(2)]
    together = counts_by_agent([kept(arrived).buckets])

    for agent, minutes in counts_by_agent(parts).items():
        for minute, counts in minutes.items():
            expected = together.get(agent, {}).get(minute, {})
            assert {name: value for name, value in counts.items() if value} == expected


@given(arrivals)
def test_stored_minutes_are_loaded_as_they_were(arrived: list[Arrivals]) -> None:
    """After a restart or a rebalance, they go on from there; windows are left to others."""
    before, after = kept(arrived), ArrivedMinutes()
    for (minute, agent), sums in before.buckets.items():
        after.load(ARRIVED, minute, agent, sums)
        after.load("1h", minute, agent, sums)

    assert after.buckets == before.buckets


def test_minutes_that_no_evidence_depends_on_are_deleted() -> None:
    """When a batch is written later; what arrived before that is not kept at all."""
    searched = Cell(0, "a", {"s": 1})
    minutes = kept([(NOW, [(1, searched)])])
    later_us = NOW_US + KEPT * 60_000_000

    touched = minutes.changes([(NOW, [(1, searched)])], NAMES, later_us)
    minutes.install(touched)

    assert touched == {(ARRIVED, NOW, "a"): None}
    assert not minutes.buckets
    assert minutes.changes([], NAMES, later_us) == {}


def test_minutes_know_of_labels() -> None:
    """Evidence of labelled figures waits where these are missing."""
    minutes = kept([(NOW, [(1, Cell(0, "a", {"u": 10, "l": 4}))])])

    assert counts_by_agent([minutes.buckets]) == {
        "a": {NOW: {"unique_results": 10, "labelled_results": 4}}
    }
