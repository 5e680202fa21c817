"""Counts by arrival of a simulated agent: each change once, in the minute of its record."""

from __future__ import annotations

import numpy as np
import pytest

from stream_metrics.core.alerts.arrivals import COUNTS
from tests.drill.bursts import place_bursts
from tests.drill.library import Habits, Numbers
from tests.drill.minutes import LABELS, counted, net, place_written
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
    """The agent's turns as they are read and as they were written."""
    return place_written(BUSY, incidents, MINUTES, np.random.default_rng(3), shelf)


def counts(found: Placed, minutes: int = MINUTES) -> dict[str, Numbers]:
    """What is counted of turns."""
    return counted(changes(found), minutes)


def during(kind: str, lasts: int) -> Incident:
    """Something that goes wrong with all agents from the third hour on."""
    return Incident(kind, None, START_US + 2 * HOUR, START_US + 2 * HOUR + lasts)


def test_without_trouble_every_change_counts_once_in_its_minute(shelf: Libraries) -> None:
    """The sum by minute is that of the changes which have arrived by then."""
    every, written = placed(shelf)
    found = counts(written)

    column = every.codes.index("r")
    for minute in (0, 1, 59, MINUTES - 1):
        arrived = every.at_us <= START_US + minute * MINUTE
        total = every.deltas[arrived, column].sum()
        assert net(found, "results")[: minute + 1].sum() == total
    assert net(found, "results").sum() > 1_000


def test_every_count_has_something_to_count(shelf: Libraries) -> None:
    """And so have labels, without which some figures are not judged."""
    found = counts(placed(shelf)[1])

    assert found.keys() == {*COUNTS, *LABELS}
    assert all(values.any() for values in found.values())


@pytest.mark.parametrize(("kind", "lasts"), [("consumer_stalled", HOUR), ("deploy", 10 * MINUTE)])
def test_what_is_read_late_counts_when_it_was_written(
    kind: str, lasts: int, shelf: Libraries
) -> None:
    """A stall moves nothing."""
    every, written = placed(shelf, during(kind, lasts))

    assert (every.at_us > written.at_us).any()
    for count, values in counts(placed(shelf)[1]).items():
        assert counts(written)[count].tolist() == values.tolist()


def test_late_labels_count_when_they_come(shelf: Libraries) -> None:
    """The labeller was late, and not the worker."""
    every, written = placed(shelf, during("labeller_down", HOUR))

    assert every.at_us.tolist() == written.at_us.tolist()
    assert counts(written)["labelled_results"][121:180].sum() == 0


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
            for series in (*window_sums(of, asked, MINUTES).values(), counted(of, MINUTES))
            for values in series.values()
        ]
        for of in (by_rows, by_sums)
    )
    assert found == expected
