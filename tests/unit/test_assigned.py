"""What a partition goes through: the table of states and events."""

from __future__ import annotations

from itertools import product

import pytest

from stream_metrics.live.worker.assigned import (
    TRANSITIONS,
    AssignedPartition,
    Event,
    State,
)

CELLS = list(product(State, Event))
STOPS = (Event.REVOKED, Event.UNFIT, Event.MOVED, Event.FENCED, Event.OTHER_RECORD)


def partition(state: State) -> AssignedPartition:
    """One in that state."""
    made = AssignedPartition(3, ("events", "labels"))
    made.state = state
    return made


@pytest.mark.parametrize(("state", "event"), CELLS, ids=lambda one: one.name)
def test_an_event_leads_where_the_table_says(state: State, event: Event) -> None:
    """What cannot come about raises, and changes nothing."""
    made = partition(state)

    if (state, event) in TRANSITIONS:
        made.on(event)
        assert made.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(ValueError, match=f"partition 3: {event.name} while {state.name}"):
            made.on(event)
        assert made.state is state


def test_a_partition_becomes_active_by_a_claim_only() -> None:
    """That is, after a confirmed commit and a look at owner, offsets and logs."""
    ways = {cell for cell, after in TRANSITIONS.items() if after is State.ACTIVE}

    assert ways == {(State.TAKING_OVER, Event.CLAIMED)}
    assert {at for at, after in TRANSITIONS.items() if after is State.TAKING_OVER} == {
        (State.WANTED, Event.CLAIM)
    }


def test_whatever_is_said_against_an_active_partition_ends_that() -> None:
    """Nothing that stops one leaves it active, and every state hears of a rebalance."""
    assert all(TRANSITIONS[State.ACTIVE, event] is not State.ACTIVE for event in STOPS)
    assert all((state, Event.REVOKED) in TRANSITIONS for state in State)


@pytest.mark.parametrize("state", State, ids=lambda one: one.name)
def test_every_state_has_a_way_to_be_active(state: State) -> None:
    """No partition is stuck for good: a rebalance gives it another chance."""
    reached = {state}
    while True:
        more = {after for (at, _), after in TRANSITIONS.items() if at in reached} - reached
        if not more:
            break
        reached |= more

    assert State.ACTIVE in reached
