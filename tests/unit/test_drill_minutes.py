"""Counts by arrival of a simulated agent: nothing twice, nothing old, and all that is young."""

from __future__ import annotations

import numpy as np
import pytest

from stream_metrics.core.alerts.arrivals import COUNTS
from tests.drill.bursts import place_bursts
from tests.drill.library import Habits
from tests.drill.minutes import WAYS, Ways, counted, counters, net, place_young, process_starts
from tests.drill.rows import Rows, changes
from tests.drill.sums import window_sums
from tests.drill.world import (
    HOUR,
    MINUTE,
    START_US,
    Agent,
    Incident,
    Libraries,
    Placed,
    place,
)

HOURS = 6
MINUTES = HOURS * 60
BUSY = Agent("agent-00", Habits(seed=5), turns_per_minute=6.0)


@pytest.fixture(scope="module")
def shelf() -> Libraries:
    """Turns of the agent."""
    return Libraries(60)


def placed(shelf: Libraries, *incidents: Incident) -> tuple[Placed, Placed]:
    """The agent's turns, and what of them is young."""
    return place_young(BUSY, incidents, MINUTES, np.random.default_rng(3), shelf)


def counts(found: Placed, minutes: int = MINUTES) -> dict[str, Ways]:
    """What is counted of turns."""
    return counted(changes(found), minutes)


def during(kind: str, lasts: int) -> Incident:
    """Something that goes wrong with all agents from the third hour on."""
    return Incident(kind, None, START_US + 2 * HOUR, START_US + 2 * HOUR + lasts)


def test_without_trouble_every_change_counts_once_in_its_minute(shelf: Libraries) -> None:
    """The sum by minute is that of the changes which have arrived by then."""
    every, young = placed(shelf)
    assert len(every.at_us) == len(young.at_us)
    found = counts(young)

    column = every.codes.index("r")
    for minute in (0, 1, 59, MINUTES - 1):
        arrived = every.at_us <= START_US + minute * MINUTE
        total = every.deltas[arrived, column].sum()
        assert net(found, "results")[: minute + 1].sum() == total
    assert net(found, "results").sum() > 1_000


def test_every_count_has_something_to_count(shelf: Libraries) -> None:
    """But for withdrawals, which are rare."""
    found = counts(placed(shelf)[1])

    assert found.keys() == COUNTS.keys()
    assert all(ways["arrived"].sum() > 0 for ways in found.values())
    assert all((ways[way] >= 0).all() for ways in found.values() for way in WAYS)


def test_records_that_a_stalled_consumer_reads_after_ten_minutes_do_not_count(
    shelf: Libraries,
) -> None:
    """Those of the last ten minutes of the stall do."""
    healthy = counts(placed(shelf)[1])
    _, young = placed(shelf, during("consumer_stalled", HOUR))
    stalled = counts(young)

    lost = net(healthy, "results").sum() - net(stalled, "results").sum()
    assert lost == pytest.approx(net(healthy, "results")[120:170].sum(), rel=0.1)
    assert net(stalled, "results")[121:180].sum() == 0
    assert net(stalled, "results")[180:184].sum() > 0


def test_a_short_stall_loses_nothing(shelf: Libraries) -> None:
    """A deploy of half a minute delays what arrives in it."""
    healthy, deployed = placed(shelf), placed(shelf, during("deploy", MINUTE // 2))

    assert len(deployed[1].at_us) == len(healthy[1].at_us)


def test_late_labels_are_young_when_they_arrive(shelf: Libraries) -> None:
    """The labeller was late, and not the worker: what it sends now is about now's labels."""
    every, young = placed(shelf, during("labeller_down", HOUR))

    assert len(every.at_us) == len(young.at_us)


def test_a_counter_has_what_came_since_the_last_reset(shelf: Libraries) -> None:
    """And all that came before the first."""
    found = counts(placed(shelf)[1])
    series = {one.name: one.values for one in counters(BUSY.name, found, [100, 200])}

    values, gained = series["streammetrics_arrived_results_total"], found["results"]["arrived"]
    assert values[99] == gained[:100].sum()
    assert values[150] == gained[100:151].sum()
    assert values[-1] == gained[200:].sum()
    assert len(series) == len(WAYS) * len(COUNTS)


def test_a_process_starts_in_the_minute_of_each_reset() -> None:
    """So that rules see a reset that growth hides."""
    starts = process_starts(10, [4, 7]).values

    assert (np.flatnonzero(np.diff(starts)) + 1).tolist() == [4, 7]


def test_bursts_repeat_a_turn_and_leave_times_as_they_were(shelf: Libraries) -> None:
    """Turns come when they came before, but there are runs of the same one."""
    minutes = 24 * 60  # with busy hours, in which several turns come in a minute
    alone = place(BUSY, [], minutes, np.random.default_rng(1), shelf)
    bursts = place_bursts(BUSY, [], minutes, np.random.default_rng(1), shelf)

    assert bursts.starts_us.tolist() == alone.starts_us.tolist()
    spreads = [np.std(net(counts(found, minutes), "results")) for found in (alone, bursts)]
    assert spreads[1] > spreads[0]


def test_turns_placed_by_their_rows_have_the_same_sums(shelf: Libraries) -> None:
    """Also if an incident of the agent has a library of its own, and labels come late."""
    trouble = Incident("off_topic", BUSY.name, START_US + HOUR, START_US + 2 * HOUR, 0.7)
    incidents = (trouble, during("labels_late", HOUR))
    rows = Rows(shelf)
    asked = {"5m": ("r", "sg", "ks|shown"), "1h": ("u", "l")}

    by_sums = changes(place(BUSY, incidents, MINUTES, np.random.default_rng(3), shelf))
    by_rows = rows.changes(place(BUSY, incidents, MINUTES, np.random.default_rng(3), rows))

    found, expected = (
        [
            values.tolist()
            for by_name in (window_sums(of, asked, MINUTES), counted(of, MINUTES))
            for series in by_name.values()
            for values in series.values()
        ]
        for of in (by_rows, by_sums)
    )
    assert found == expected
