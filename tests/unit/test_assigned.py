"""The states of an assigned partition: the table of states and events."""

from __future__ import annotations

from itertools import product

import pytest

from stream_metrics.live.worker.ownership.assigned import (
    TRANSITIONS,
    AssignedPartition,
    Event,
    State,
)

CELLS = list(product(State, Event))
STOPS = (Event.REVOKED, Event.FAILED, Event.MOVED, Event.FENCED, Event.OTHER_RECORD)


def partition(state: State) -> AssignedPartition:
    """A partition in that state."""
    made = AssignedPartition(3, ("events", "labels"))
    made.state = state
    return made


@pytest.mark.parametrize(("state", "event"), CELLS, ids=lambda one: one.name)
def test_an_event_leads_to_the_state_in_the_table(state: State, event: Event) -> None:
    """An impossible event raises, and changes nothing."""
    made = partition(state)

    if (state, event) in TRANSITIONS:
        made.on(event)
        assert made.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(ValueError, match=f"partition 3: {event.name} while {state.name}"):
            made.on(event)
        assert made.state is state


def test_a_partition_becomes_active_only_by_a_claim() -> None:
    """The claim follows a confirmed commit and a check of owner, offsets and logs."""
    ways = {cell for cell, after in TRANSITIONS.items() if after is State.ACTIVE}

    assert ways == {(State.TAKING_OVER, Event.CLAIMED)}
    assert {at for at, after in TRANSITIONS.items() if after is State.TAKING_OVER} == {
        (State.PENDING, Event.CLAIM)
    }


def test_every_event_against_an_active_partition_ends_its_activity() -> None:
    """No event that stops a partition leaves it active, and every state handles a rebalance."""
    assert all(TRANSITIONS[State.ACTIVE, event] is not State.ACTIVE for event in STOPS)
    assert all((state, Event.REVOKED) in TRANSITIONS for state in State)


@pytest.mark.parametrize("state", State, ids=lambda one: one.name)
def test_every_state_can_become_active_again(state: State) -> None:
    """No partition is stuck for good, because a rebalance makes it eligible again."""
    reached = {state}
    while True:
        more = {after for (at, _), after in TRANSITIONS.items() if at in reached} - reached
        if not more:
            break
        reached |= more

    assert State.ACTIVE in reached
