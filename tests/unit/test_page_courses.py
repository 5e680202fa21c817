"""Courses of agents: kept from one moment to the next, they are those made from nothing."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, Window, parse_window
from stream_metrics.core.engine.windows import Names, Windows
from stream_metrics.live.page.courses import Course, Courses
from tests.rules.page import MINUTE_US, NOW_US

NAMES = Names(frozenset({"a", "b"}), frozenset())
CODES = ("r", "d", "l", "u", "q|skip|yes", "ks|shown", "kc", "D|File|url|same_iteration")
events = st.tuples(
    st.sampled_from([1, -1]),
    st.integers(-26 * 60, 60).map(lambda minute: NOW_US + minute * MINUTE_US),
    st.sampled_from("ab"),
    st.dictionaries(st.sampled_from(CODES), st.integers(1, 9), min_size=1),
)


def took(windows: Windows, *found: tuple[int, int, str, dict[str, int]], now_us: int) -> None:
    """Let windows take cells."""
    cells = [(sign, Cell(at_us, agent, sums)) for sign, at_us, agent, sums in found]
    windows.install(windows.changes(cells, NAMES, now_us))


def alike(one: Course, other: Course) -> bool:
    """Whether two courses have the same counts."""

    def counts(course: Course) -> list[list[dict[str, int]]]:
        return [
            [{name: n for name, n in part.items() if n} for part in parts]
            for parts in (course.hour, course.day)
        ]

    return counts(one) == counts(other) and one.sums == other.sums


@given(
    st.lists(
        st.tuples(st.lists(events, max_size=5), st.integers(0, 90), st.integers(0, 1)), max_size=6
    )
)
def test_kept_courses_are_those_made_from_nothing(
    batches: list[tuple[list[tuple[int, int, str, dict[str, int]]], int, int]],
) -> None:
    """Whatever two partitions take, take back and forget as time goes on."""
    partitions, kept, now_us = [Windows(), Windows()], Courses(DEFAULT_WINDOWS), NOW_US
    for found, minutes, number in batches:
        now_us += minutes * MINUTE_US
        took(partitions[number], *found, now_us=now_us)
        kept.update({each: each.snapshot() for each in partitions}, now_us)
        fresh = Courses(DEFAULT_WINDOWS)
        fresh.update({each: each.snapshot() for each in partitions}, now_us)

        for agent in "ab":
            assert alike(kept.course(agent, now_us), fresh.course(agent, now_us))


@given(st.lists(events, max_size=9))
def test_the_hour_and_the_day_before_it_are_the_last_day(
    found: list[tuple[int, int, str, dict[str, int]]],
) -> None:
    """Each search counts once: in its minute, or in its part of the day."""
    windows, courses = Windows(), Courses(DEFAULT_WINDOWS)
    added = [(1, *rest) for _, *rest in found]
    took(windows, *added, now_us=NOW_US)  # type: ignore[arg-type]
    courses.update({windows: windows}, NOW_US)

    course = courses.course("a", NOW_US)

    counted = Counter[str]()
    for part in (*course.hour, *course.day):
        counted.update(part)
    day = course.sums["24h"]
    assert counted["results"] == day.get("r", 0)
    assert counted["missed_searches"] == day.get("q|skip|yes", 0)
    assert sum(part.get("results", 0) for part in course.hour) == course.sums["1h"].get("r", 0)


def test_a_course_is_the_same_until_something_changes() -> None:
    """The time, or what its agent has done; another agent's searches do not matter."""
    windows, courses = Windows(), Courses(DEFAULT_WINDOWS)

    def course(agent: str, now_us: int = NOW_US) -> Course:
        courses.update({windows: windows}, now_us)
        return courses.course(agent, now_us)

    took(windows, (1, NOW_US, "a", {"r": 1}), now_us=NOW_US)
    first = course("a")
    took(windows, (1, NOW_US, "b", {"r": 1}), now_us=NOW_US)

    assert course("a") is first
    assert course("a", NOW_US + MINUTE_US) is not first
    again = course("a")
    took(windows, (1, NOW_US, "a", {"r": 1}), now_us=NOW_US)
    assert course("a") is not again
    assert course("a").hour[-1]["results"] == 2


def test_agents_that_nobody_knows_are_not_remembered() -> None:
    """A page may be asked for any name."""
    courses = Courses(DEFAULT_WINDOWS)

    assert courses.course("nobody", NOW_US) is not courses.course("nobody", NOW_US)


def test_without_a_window_there_is_no_day() -> None:
    """Settings may replace the default windows."""
    for kept in ("1h", "24h", "48h"):
        specs: list[Window] = [parse_window(kept)]
        windows, courses = Windows(specs), Courses(specs)
        took(windows, (1, NOW_US, "a", {"r": 1}), now_us=NOW_US)
        courses.update({windows: windows}, NOW_US)

        assert courses.course("a", NOW_US).day == []
        assert courses.course("a", NOW_US).sums == {kept: {"r": 1}}
