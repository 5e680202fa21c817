"""What a worker puts back where the store went back to an earlier layout, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stream_metrics.live.layout import NOTHING, InvalidTransition, Layout
from tests.unit.test_layout import BUILDING, FENCING, LIVE, NEW, OLD, SWITCHED, states, steps

NOW_MS = 99
PURGED = SWITCHED.purged(1)
THIRD = PURGED.registered(OLD, "c", 6)
REPLACED = THIRD.switched(3, 7).unmuted(3).purged(2)


@pytest.mark.parametrize("known", [SWITCHED, PURGED])
def test_a_lost_switch_is_fenced_again(known: Layout) -> None:
    """A worker of the old generation may have started since: it is frozen, fenced and purged again,
    and the rows of the new one are sent again, under another time."""
    back = known.put_back(BUILDING, NOW_MS)

    assert states(back) == {1: "retired", 2: "fencing"}
    assert back.to_purge == (back.generations[0],)
    assert back.generations[1].since_ms == NOW_MS


@pytest.mark.parametrize("stored", [BUILDING, LIVE, NOTHING.begun(OLD, "a", 1)])
def test_a_generation_that_is_live_again_is_fenced_although_it_was_forgotten(
    stored: Layout,
) -> None:
    """It was removed from the list when the build after the next one was registered."""
    assert states(THIRD.put_back(stored, NOW_MS)) == {1: "retired", 2: "fencing", 3: "building"}


def test_a_switch_that_others_put_back_is_not_ended_early() -> None:
    """Another worker remembers the generation as live, from before the store went back."""
    back = SWITCHED.put_back(BUILDING, NOW_MS)

    assert SWITCHED.put_back(back, NOW_MS) is back
    again = back.unmuted(2).put_back(SWITCHED.put_back(BUILDING, NOW_MS + 1), NOW_MS + 2)
    assert states(again) == {1: "retired", 2: "fencing"}


def test_a_generation_whose_end_of_fencing_was_lost_is_live() -> None:
    """No worker of the one before can have started, because that one was retired all the time."""
    assert states(SWITCHED.put_back(FENCING.purged(1), NOW_MS)) == {1: "retired", 2: "live"}


def test_a_loss_is_found_although_names_were_admitted_since() -> None:
    """The number of changes does not tell."""
    stored = BUILDING
    for name in "abc":
        stored = stored.admitted("agents", [name], [], 9)
    assert stored.version > SWITCHED.version

    back = SWITCHED.put_back(stored, NOW_MS)

    assert states(back) == {1: "retired", 2: "fencing"}
    assert back.names == {"agents": ("a", "b", "c")}


@pytest.mark.parametrize("known", [LIVE, BUILDING, SWITCHED, PURGED, THIRD])
def test_nothing_is_put_back_into_a_purged_namespace(known: Layout) -> None:
    """Also if the document that was purged had lost changes, so that its version is low."""
    emptied = LIVE.emptied()

    assert known.put_back(emptied, NOW_MS) is emptied


@pytest.mark.parametrize("known", [LIVE, BUILDING, SWITCHED, PURGED, THIRD, REPLACED])
def test_nothing_is_put_back_over_state_that_was_begun_anew(known: Layout) -> None:
    """Whichever numbers its generations have."""
    anew = NOTHING.begun(OLD, "anew", 9)

    assert known.put_back(anew, NOW_MS) is anew


def test_a_later_schema_and_the_growth_of_a_topic_are_not_lost_again() -> None:
    """Whoever restores an earlier layout has not heard of them, and cannot undo them."""
    later = LIVE.with_schema(1, 2).has_grown(["events"], 5)
    lost = LIVE.admitted("agents", ["a"], [], 9)

    for back in (lost.put_back(later, NOW_MS), later.put_back(lost, NOW_MS)):
        assert back.generations[0].identity.schema_version == 2
        assert back.grown == {"events": 5}
        assert back.names == {"agents": ("a",)}


def test_workers_that_remember_names_in_another_order_agree() -> None:
    """Otherwise each would write its own order over that of the other for ever."""
    ab, ac = (LIVE.admitted("agents", ["a", name], [], 9) for name in "bc")
    back = ab.put_back(ac, NOW_MS)

    assert back.names == {"agents": ("a", "b", "c")}
    assert ac.put_back(back, NOW_MS) is back


def test_a_forgotten_build_is_not_taken_for_the_generation_before() -> None:
    """Its rows are not those that the generation in force replaces."""
    again = BUILDING.abandoned(2).purged(2).registered(NEW, "c", 6)
    known = again.switched(3, 7).unmuted(3)
    assert known.of(2) is None

    back = known.put_back(BUILDING, NOW_MS)

    assert states(back) == {1: "retired", 2: "abandoned", 3: "fencing"}


def test_a_build_that_was_given_up_and_forgotten_is_given_up_again() -> None:
    """It is not left as one that nobody purges."""
    known = BUILDING.abandoned(2).purged(2).registered(NEW, "c", 6)

    back = known.put_back(BUILDING, NOW_MS)

    assert states(back) == {1: "live", 2: "abandoned", 3: "building"}
    assert [generation.number for generation in back.to_purge] == [2]


@st.composite
def histories(draw: Any) -> list[Layout]:
    """A layout after each of some changes, of any kind and by any process."""
    found = [LIVE]
    for number in range(draw(st.integers(1, 14))):
        now = found[-1]
        possible = [
            step for name, step in steps(now) if name != "begun" and _changes(step, now)
        ] + [lambda now, n=number: now.admitted("agents", [f"n{n}"], [], 99)]
        found.append(draw(st.sampled_from(possible))(now))
    return found


def _changes(step: Any, now: Layout) -> bool:
    try:
        return step(now) is not now
    except InvalidTransition:
        return False


@given(histories())
def test_a_worker_that_was_asleep_changes_nothing(history: list[Layout]) -> None:
    """Whatever it remembers, everything that happened since is a successor of that."""
    for number, known in enumerate(history):
        for stored in history[number:]:
            assert known.put_back(stored, NOW_MS) is stored


@given(histories(), st.data())
def test_what_was_put_back_is_whole_and_put_back_once(history: list[Layout], data: Any) -> None:
    """One generation is in force, at most one is being built, no older one can go on; whoever
    looks next changes nothing."""
    stored = data.draw(st.sampled_from(history))
    known = data.draw(st.sampled_from(history[history.index(stored) :]))

    back = known.put_back(stored, NOW_MS)

    assert sum(generation.in_force for generation in back.generations) == 1
    assert sum(generation.state == "building" for generation in back.generations) <= 1
    force, latest = back.in_force, known.in_force
    assert force is not None
    assert latest is not None
    assert force.number == latest.number
    assert all(g.ended for g in back.generations if g.number < force.number)
    was = stored.in_force
    assert was is not None
    assert was.number == force.number or (force.state, back.of(was.number) in back.to_purge) == (
        "fencing",
        True,
    )
    assert known.put_back(back, NOW_MS + 1) is back


def test_documents_of_an_earlier_release_are_put_back() -> None:
    """They do not say which generation was the first."""
    known, stored = (structs.replace(one, origin="") for one in (SWITCHED, BUILDING))

    assert states(known.put_back(stored, NOW_MS)) == {1: "retired", 2: "fencing"}
