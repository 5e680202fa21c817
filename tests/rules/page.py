"""Courses of agents for the page's rules, through real buckets of all windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, Window
from stream_metrics.core.engine.windows import Names, Windows, routes_in
from stream_metrics.live.page.courses import Course, Courses

Sums = dict[str, int]
Judged = frozenset[tuple[str, str]]  # alerts, each with a severity

MINUTE_US: Final = 60_000_000
NOW_US: Final = 1_767_607_230_000_000  # 10:00:30, in the middle of a minute
AGENT: Final = "agent"


def srr(part: int, whole: int) -> Sums:
    """Duplicates of results."""
    return {"d": part, "r": whole}


def found(part: int, whole: int) -> Sums:
    """Results of searches."""
    return {"r": part, "s": whole}


def sre(part: int, whole: int) -> Sums:
    """Good ones of the results of settled iterations, whose documents have labels."""
    return {"sg": part, "sr": whole, "r": whole, "u": whole, "l": whole}


def gain(part: int, whole: int) -> Sums:
    """Gain of settled iterations, whose documents have labels."""
    return {"sG": part, "si": whole, "i": whole, "u": whole, "l": whole}


def missed(part: int, whole: int) -> Sums:
    """Missed searches of labelled decisions to skip."""
    return {"q|skip|yes": part, "q|skip|no": whole - part}


def routing(part: int, whole: int) -> Sums:
    """Wrong routes of labelled searches."""
    return {"R|a|no": part, "R|a|yes": whole - part}


def reranking(part: int, whole: int) -> Sums:
    """NDCG shown by NDCG before, in hundredths, of as many searches as the latter says."""
    sums = {"ks|shown": 10**7 * part, "ks|baseline": 10**7 * whole, "kc": whole}
    return {**sums, "u": whole, "l": whole}


def repeated(part: int, whole: int) -> Sums:
    """Repeated ones of searches with a query."""
    return {"aa": part, "a": whole, "s": whole}


def empty(part: int, whole: int) -> Sums:
    """Searches without a result."""
    return {"e": part, "s": whole}


def course(
    day: Sequence[Sums], hour: Sequence[Sums], specs: Sequence[Window] = DEFAULT_WINDOWS
) -> Course:
    """The course of an agent.

    ``day`` has the sums of its parts before the last hour, 24 minutes each, ``hour`` those of its
    minutes; the last of each are the latest.
    """
    minute = NOW_US // MINUTE_US
    first = minute - 59
    parts = [(24 * (first // 24 - back), sums) for back, sums in enumerate(reversed(day), 1)]
    minutes = [(minute - back, sums) for back, sums in enumerate(reversed(hour))]
    return course_of([*parts, *minutes], specs)


def course_of(timed: Iterable[tuple[int, Sums]], specs: Sequence[Window]) -> Course:
    """The course of an agent with these sums in these minutes."""
    cells = [
        (1, Cell(MINUTE_US * minute, AGENT, {c: n for c, n in sums.items() if n}, routes_in(sums)))
        for minute, sums in timed
    ]
    windows, courses = Windows(specs), Courses(specs)
    names = Names(frozenset({AGENT}), frozenset({"a"}))
    windows.install(windows.changes(cells, names, NOW_US))
    courses.update({windows: windows}, NOW_US)
    return courses.course(AGENT, NOW_US)
