"""What is told of faults: whatever happens, each once, soon, and not more often than promised."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.live.notify import episodes as machine
from stream_metrics.live.notify.episodes import (
    MAX_PAUSE_SECONDS,
    REPEAT_SECONDS,
    RULE_SECONDS,
    Episodes,
    Found,
    Key,
    Notice,
    State,
    Timing,
)
from tests.helpers import examples

TIMINGS = {"quick": Timing(), "slow": Timing(120.0, 600.0)}
RULES = tuple(TIMINGS)
LOOK_SECONDS = 15.0
START = 1_742_000_000.0

KEYS = st.builds(Key, st.sampled_from(RULES), st.sampled_from(["a", "b"]))
FINDINGS = st.dictionaries(
    KEYS,
    st.sampled_from(
        [(State.FAULT, CRITICAL), (State.FAULT, WARNING), (State.UNSURE, ""), (State.FINE, "")]
    ),
    max_size=4,
)
STRETCHES = st.lists(  # what is found, for how many looks, whether the other side answers
    st.tuples(FINDINGS, st.integers(1, 60), st.sampled_from([True, True, False])),
    min_size=1,
    max_size=8,
)


def timing(rule: str, _: str) -> Timing:
    """That of a rule."""
    return TIMINGS[rule]


@dataclass
class Room:
    """Somebody who is told, and what they have heard; with ``restarts`` after each step."""

    restarts: bool = False
    state: Episodes = field(default_factory=Episodes)
    now: float = START
    heard: list[tuple[float, Notice]] = field(default_factory=list)
    tried: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    attempts: list[float] = field(default_factory=list)

    def look(self, found: dict[Key, tuple[State, str]], answers: bool) -> None:
        """One look, and what is due then."""
        listed = [Found(key, state, "why", level) for key, (state, level) in found.items()]
        self.state = machine.looked(self.state, listed, RULES, self.now, timing)
        while (notice := machine.due(self.state, self.now, timing)) is not None:
            self.tried[notice.rule].append(self.now)
            self.attempts.append(self.now)
            if not answers:
                self.state = machine.failed(self.state, notice, self.now)
            else:
                self.state = machine.told(self.state, notice, self.now)
                self.heard.append((self.now, notice))
            self.restart()
        self.restart()
        self.now += LOOK_SECONDS

    def restart(self) -> None:
        """Go on with what a store has kept."""
        if self.restarts:
            self.state = machine.decoded(self.state.encoded())

    def live(self, stretches: list[tuple[dict[Key, tuple[State, str]], int, bool]]) -> None:
        """All looks of some stretches of time."""
        for found, looks, answers in stretches:
            for _ in range(looks):
                self.look(found, answers)


@settings(max_examples=examples(100))
@given(STRETCHES)
def test_no_rule_is_told_of_more_than_once_a_minute(stretches: list[object]) -> None:
    """Attempts that fail count as well, and after a failure everything waits."""
    room = Room()
    room.live(stretches)  # type: ignore[arg-type]

    for times in room.tried.values():
        assert all(b - a >= RULE_SECONDS for a, b in pairwise(times))


@settings(max_examples=examples(100))
@given(STRETCHES)
def test_a_restart_changes_nothing(stretches: list[object]) -> None:
    """A process that restarts after every step tells the same at the same times."""
    steady, shaky = Room(), Room(restarts=True)
    steady.live(stretches)  # type: ignore[arg-type]
    shaky.live(stretches)  # type: ignore[arg-type]

    assert shaky.heard == steady.heard
    assert shaky.state == machine.decoded(steady.state.encoded())


@settings(max_examples=examples(100))
@given(STRETCHES)
def test_each_fault_is_told_begins_and_ends_once(stretches: list[object]) -> None:
    """Between its first and its last word it is repeated every four hours, or where it gets worse,
    and in the end nothing is left open."""
    room = Room()
    room.live(stretches)  # type: ignore[arg-type]
    calm = int((MAX_PAUSE_SECONDS + 600.0) / LOOK_SECONDS) + 10
    room.live([({}, calm, True)])

    lasting: dict[Key, list[tuple[float, str]]] = defaultdict(list)
    for at, notice in room.heard:
        assert len({one.key for one in (*notice.lasting, *notice.ended)}) == len(
            (*notice.lasting, *notice.ended)
        )
        for one in notice.lasting:
            for before, level in lasting[one.key][-1:]:
                assert at - before >= REPEAT_SECONDS or (level, one.level) == (WARNING, CRITICAL)
            lasting[one.key].append((at, one.level))
        for one in notice.ended:
            lasting[one.key].clear()
            assert one.over is not None
            assert one.sure - one.since >= TIMINGS[one.rule].wait
    assert not any(lasting.values())
    assert room.state.episodes == ()


@settings(max_examples=examples(100))
@given(STRETCHES, KEYS, st.sampled_from([WARNING, CRITICAL]))
def test_a_fault_that_lasts_is_told_soon(stretches: list[object], key: Key, level: str) -> None:
    """Once it has lasted long enough, and somebody answers; however the past was."""
    room = Room()
    room.live(stretches)  # type: ignore[arg-type]
    before = room.now
    looks = int((TIMINGS[key.rule].wait + MAX_PAUSE_SECONDS + 2 * RULE_SECONDS) / LOOK_SECONDS) + 2
    room.live([({key: (State.FAULT, level)}, looks, True)])

    known = [one for one in room.state.episodes if one.key == key]
    assert len(known) == 1
    assert known[0].told == CRITICAL or known[0].told == level
    assert known[0].told_at >= before - REPEAT_SECONDS


@settings(max_examples=examples(60))
@given(STRETCHES)
def test_what_others_look_after_stays_as_it_is(stretches: list[object]) -> None:
    """A worker that loses the agents to another one does not end what it has told of them."""
    room = Room()
    room.live(stretches)  # type: ignore[arg-type]
    ours = [one for one in room.state.episodes if one.rule == "slow"]

    after = machine.looked(room.state, [], ["quick"], room.now, timing)

    assert [one for one in after.episodes if one.rule == "slow"] == ours


def test_pauses_after_failures_grow_to_five_minutes() -> None:
    """For an hour without an answer: at 0, 1, 3, 7, 12 minutes and every five from then on."""
    room = Room()
    fault = {Key("quick", "a"): (State.FAULT, CRITICAL)}
    room.live([(fault, 240, False), (fault, 40, True)])

    minutes = [round((at - START) / 60) for at in room.attempts]
    assert minutes == [0, 1, 3, 7, *range(12, 63, 5)]
    assert Counter(len(notice.lasting) for _, notice in room.heard) == {1: 1}


def test_a_fault_that_has_ended_while_nobody_answered_is_told_as_ended() -> None:
    """It would be lost otherwise; who answers again learns of it once."""
    room = Room()
    room.live([({Key("quick", "a"): (State.FAULT, CRITICAL)}, 8, False), ({}, 40, True)])

    ((_, notice),) = room.heard
    assert (notice.lasting, len(notice.ended)) == ((), 1)


def test_a_fault_of_which_nothing_is_known_any_more_ends_after_an_hour() -> None:
    """Until then it goes on: too little data is no news."""
    room = Room()
    key = Key("quick", "a")
    room.live([({key: (State.FAULT, WARNING)}, 2, True), ({key: (State.UNSURE, "")}, 260, True)])

    assert [(round((at - START) / 60), len(n.lasting), len(n.ended)) for at, n in room.heard] == [
        (0, 1, 0),
        (60, 0, 1),
    ]


def told(room: Room) -> list[tuple[int, str]]:
    """The minutes of what was told, and what."""
    return [
        (round((at - START) / 60), "lasts" if notice.lasting else "ended")
        for at, notice in room.heard
    ]


def test_a_fault_that_is_short_is_not_told() -> None:
    """Where its rule waits for two minutes, one of a minute is none."""
    room, fault = Room(), {Key("slow", "a"): (State.FAULT, WARNING)}
    room.live([(fault, 4, True), ({}, 60, True)])

    assert told(room) == []
    assert room.state == Episodes()


def test_a_fault_that_comes_back_within_its_time_has_not_ended() -> None:
    """The rule keeps it for ten minutes, as Prometheus keeps an alert firing."""
    room, fault = Room(), {Key("slow", "a"): (State.FAULT, WARNING)}
    room.live([(fault, 20, True), ({}, 20, True), (fault, 20, True), ({}, 60, True)])

    assert told(room) == [(2, "lasts"), (25, "ended")]


def test_nothing_is_repeated_that_is_not_sure_any_more() -> None:
    """It may have ended since: that is said once it is known, or after an hour."""
    room, key = Room(), Key("quick", "a")
    room.live([({key: (State.FAULT, WARNING)}, 920, True), ({key: (State.UNSURE, "")}, 245, True)])

    assert told(room) == [(0, "lasts"), (290, "ended")]


def test_who_refuses_says_when_to_come_again() -> None:
    """If that is later than the pause would be; up to five minutes."""
    notice, now = Notice("quick", (), ()), START
    waits = [machine.failed(Episodes(), notice, now, pause).pause_until - now for pause in (
        0.0, 30.0, 200.0, 9_000.0,
    )]  # fmt: skip
    assert waits == [60.0, 60.0, 200.0, 300.0]


@pytest.mark.parametrize(("later", "looks"), [(CRITICAL, 6), (WARNING, 980)])
def test_a_clock_that_is_set_back_delays_nothing_for_long(later: str, looks: int) -> None:
    """What was told in the future is taken for told just now."""
    room, key = Room(), Key("quick", "a")
    room.live([({key: (State.FAULT, WARNING)}, 1, True)])
    room.now -= 86_400
    room.live([({key: (State.FAULT, later)}, looks, True)])

    assert [notice.lasting[0].level for _, notice in room.heard] == [WARNING, later]
