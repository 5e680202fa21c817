"""The layout document of a namespace's generations: the allowed changes, by any process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.live.layout import (
    FORMAT,
    NOTHING,
    Generation,
    Identity,
    InvalidTransition,
    Layout,
    UnreadableLayout,
    decode,
    encode,
)

OLD = Identity("group", 1, "old", {"events": 4}, '{"metrics.good_gain": 2}')
NEW = replace(OLD, fingerprint="new")
LIVE = NOTHING.begun(OLD, "a", 1)
BUILDING = LIVE.registered(NEW, "b", 2)
FENCING = BUILDING.switched(2, 3)
SWITCHED = FENCING.unmuted(2)
MOST = 4  # generations

Step = Callable[[Layout], Layout]


def states(layout: Layout) -> dict[int, str]:
    """The state of each generation."""
    return {generation.number: generation.state for generation in layout.generations}


def steps(layout: Layout) -> Iterator[tuple[str, Step]]:
    """Every change that any process may try."""
    yield "begun", lambda now: now.begun(OLD, f"m{now.version}", 1)
    if layout.last < MOST:
        yield "registered", lambda now: now.registered(NEW, f"m{now.version}", 1)
    for number in range(1, MOST + 1):
        yield f"switched {number}", lambda now, n=number: now.switched(n, 1)  # type: ignore[misc]
        yield f"unmuted {number}", lambda now, n=number: now.unmuted(n)  # type: ignore[misc]
        yield f"abandoned {number}", lambda now, n=number: now.abandoned(n)  # type: ignore[misc]
        yield f"purged {number}", lambda now, n=number: now.purged(n)  # type: ignore[misc]


def reachable() -> Iterator[tuple[Layout, str, Layout | None]]:
    """Every change tried on every reachable document; None if it is refused."""
    todo, seen = [NOTHING], set[str]()
    while todo:
        before = todo.pop()
        shape = str([(g.number, g.state, g.purged) for g in before.generations]) + str(before.last)
        if shape in seen:
            continue
        seen.add(shape)
        for what, step in steps(before):
            try:
                after = step(before)
            except InvalidTransition:
                yield before, what, None
                continue
            yield before, what, after
            todo.append(after)


def test_at_most_one_generation_is_in_force_and_one_being_built() -> None:
    """This holds for every reachable document; once there is a generation, one is in force."""
    tried = 0
    for before, what, after in reachable():
        tried += 1
        if after is None or after is before:
            continue
        in_force = [g for g in after.generations if g.in_force]
        assert len(in_force) == 1, (before, what)
        assert sum(g.state == "building" for g in after.generations) <= 1
        assert all(g.ended or not g.purged for g in after.generations)
        assert after.last == max(g.number for g in after.generations)
    assert tried > 100


def test_a_generation_that_has_ended_never_comes_back() -> None:
    """Its state stays until it is forgotten, and its number is not reused."""
    for before, what, after in reachable():
        for ended in (g for g in before.generations if g.ended):
            found = after.of(ended.number) if after is not None else ended
            assert found is None or found.state == ended.state, (before, what)
            assert found is not None or ended.purged, "it is forgotten before it is purged"
        if after is not None and len(after.generations) > len(before.generations):
            assert after.generations[-1].number > before.last


def test_repeating_a_change_has_no_effect() -> None:
    """Any process may repeat a switch, a purge or an abandoned build that is unfinished."""
    for before, what, after in reachable():
        if after is None or what in ("begun", "registered"):
            continue
        step = dict(steps(after))[what]
        assert step(after) is after, (before, what)
        assert after is before or after.version == before.version + 1


def test_a_switched_generation_is_fencing_until_it_is_unmuted() -> None:
    """The one before is retired in the same change, so two are never live."""
    assert states(BUILDING) == {1: "live", 2: "building"}
    assert states(FENCING) == {1: "retired", 2: "fencing"}
    assert states(SWITCHED) == {1: "retired", 2: "live"}
    assert SWITCHED.to_purge == (SWITCHED.generations[0],)
    assert SWITCHED.purged(1).to_purge == ()


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (lambda: LIVE.emptied().registered(NEW, "b", 1), "no state .*: start the workers"),
        (lambda: FENCING.registered(OLD, "c", 1), "no generation is live"),
        (lambda: BUILDING.registered(NEW, "c", 1), "generation 2 is being built"),
        (lambda: SWITCHED.registered(OLD, "c", 1), "not purged"),
        (lambda: LIVE.begun(OLD, "b", 1), "has state"),
        (lambda: LIVE.switched(2, 3), "no generation 2"),
        (lambda: FENCING.abandoned(2), "not being built"),
        (lambda: BUILDING.unmuted(2), "has not taken"),
        (lambda: BUILDING.purged(2), "in use"),
    ],
)
def test_changes_that_would_lose_state_are_refused(step: Callable[[], Layout], why: str) -> None:
    """The message says why."""
    with pytest.raises(InvalidTransition, match=why):
        step()


def test_a_purged_generation_is_forgotten_when_the_next_is_registered() -> None:
    """Until then the marks of its partitions stay, for a worker that wakes late."""
    purged = SWITCHED.purged(1)
    assert states(purged) == {1: "retired", 2: "live"}
    assert states(purged.registered(OLD, "c", 3)) == {2: "live", 3: "building"}


def test_groups_are_named_by_number() -> None:
    """The first generation reads in the group of the settings, each later one in its own."""
    assert [g.group for g in BUILDING.generations] == ["group", "group.2"]


def test_names_are_admitted_up_to_the_limit() -> None:
    """Configured ones come first, and an admitted name stays."""
    layout = LIVE.admitted("agents", ["b", "c", "d"], ["a"], 3)
    assert layout.chosen("agents", ["a"], 3) == {"a", "b", "c"}
    assert layout.names == {"agents": ("b", "c")}
    assert layout.admitted("agents", ["b", "d"], ["a"], 3) is layout
    assert layout.chosen("agents", ["a", "x"], 3) == {"a", "x", "b"}
    assert layout.chosen("routes", [], 3) == frozenset()


def test_a_later_schema_stays() -> None:
    """A writer of an earlier one does not change it back."""
    later = LIVE.with_schema(1, 2)
    assert later.generations[0].identity.schema_version == 2
    assert later.with_schema(1, 1) is later


def test_the_first_growth_of_a_topic_counts() -> None:
    """Older records may be on the partitions of the earlier count."""
    grown = LIVE.has_grown(["events"], 5)
    assert grown.grown == {"events": 5}
    assert grown.has_grown(["events"], 9) is grown


def test_a_document_lost_by_the_store_is_restored() -> None:
    """It includes names admitted since; if another process has restored it, nothing changes."""
    lost = LIVE.admitted("agents", ["x"], [], 9)
    newest = BUILDING.admitted("agents", ["a"], [], 9)

    back = newest.put_back(lost, 9)

    assert (back.version, back.generations) == (lost.version + 1, newest.generations)
    assert back.names == {"agents": ("a", "x")}
    assert newest.put_back(back, 9) is back
    assert back.put_back(back, 9) is back


@pytest.mark.parametrize(
    "since",
    [
        BUILDING.abandoned(2),
        LIVE.registered(NEW, "another", 4),
        NOTHING.begun(OLD, "another", 4),
    ],
)
def test_restoring_undoes_no_later_change(since: Layout) -> None:
    """The store has gone back, and the build was abandoned or another one registered."""
    assert SWITCHED.purged(1).put_back(since, 9) is since


texts = st.text(st.characters(), max_size=5)
generations = st.builds(
    Generation,
    number=st.integers(1, 9),
    mark=texts,
    state=st.sampled_from(["building", "fencing", "live", "retired", "abandoned"]),
    identity=st.builds(
        Identity, texts, st.integers(1, 3), texts, st.dictionaries(texts, st.integers(1, 9)), texts
    ),
    since_ms=st.integers(0, 1 << 52),
    retained=st.booleans(),
    purged=st.booleans(),
    places=st.lists(texts, max_size=3).map(tuple),
)
layouts = st.builds(
    Layout,
    version=st.integers(0, 1 << 52),
    last=st.integers(0, 9),
    generations=st.lists(generations, max_size=3).map(tuple),
    names=st.dictionaries(texts, st.lists(texts, max_size=3).map(tuple), max_size=2),
    grown=st.dictionaries(texts, st.integers(0, 1 << 52), max_size=2),
)


@given(layouts)
def test_a_document_is_decoded_as_it_was_encoded(layout: Layout) -> None:
    """Names may contain lone surrogates, which JSON in UTF-8 cannot represent."""
    back = decode(encode(layout))
    assert back == layout
    assert [g.identity.settings for g in back.generations] == [
        g.identity.settings for g in layout.generations
    ]


def test_a_later_format_is_refused() -> None:
    """The error says what to do, whatever else the document has."""
    later = json.dumps({"format": FORMAT + 1, "generations": "otherwise"}).encode()
    with pytest.raises(UnreadableLayout, match="format 2, but this release reads 1"):
        decode(later)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"version": "x"}', b'{"generations": [1]}'])
def test_any_other_value_is_damage(data: bytes) -> None:
    """It does not count as an empty namespace."""
    with pytest.raises(ValueError):
        decode(data)
