"""Courses of agents for the page's rules, through real buckets of all windows."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from stream_metrics.core.alerts.arrivals import counts_of, counts_of_state
from stream_metrics.core.alerts.standing import Standing
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, Window
from stream_metrics.core.engine.windows import Names, Windows, routes_in
from stream_metrics.live.page.courses import Course, Courses
from tests.drill.gather import IN_USE

Sums = dict[str, int]
Judged = frozenset[tuple[str, str]]  # alerts, each with a severity

MINUTE_US: Final = 60_000_000
NOW_US: Final = 1_767_607_230_000_000  # 10:00:30, in the middle of a minute
FIRST: Final = NOW_US // MINUTE_US - 59  # minute of the last hour
AGENT: Final = "agent"
_LABELS: Final = {"l": ["labelled_results"], "u": ["unique_results"]}


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
    return course_of(timed(day, hour), specs)


def timed(day: Sequence[Sums], hour: Sequence[Sums]) -> list[tuple[int, Sums]]:
    """The sums of an agent, each with its minute."""
    minute = NOW_US // MINUTE_US
    parts = [(24 * (FIRST // 24 - back), sums) for back, sums in enumerate(reversed(day), 1)]
    return [*parts, *((minute - back, sums) for back, sums in enumerate(reversed(hour)))]


def in_pool(
    agents: Mapping[str, tuple[Sequence[Sums], Sequence[Sums]]], pools: Mapping[str, str]
) -> dict[str, Course]:
    """The courses of agents, of which some share something."""
    counts = {name: counts_by_minute(timed(*each)) for name, each in agents.items()}
    told = Standing(IN_USE).at(counts, NOW_US // MINUTE_US, pools)
    return {
        name: replace(course(*each), evidence=told.get(name, {})) for name, each in agents.items()
    }


def course_of(found: Sequence[tuple[int, Sums]], specs: Sequence[Window]) -> Course:
    """The course of an agent with these sums in these minutes, in which they also arrive."""
    cells = [
        (1, Cell(MINUTE_US * minute, AGENT, {c: n for c, n in sums.items() if n}, routes_in(sums)))
        for minute, sums in found
    ]
    windows, courses = Windows(specs), Courses(specs)
    names = Names(frozenset({AGENT}), frozenset({"a"}))
    windows.install(windows.changes(cells, names, NOW_US))
    courses.update({windows: windows}, NOW_US)
    kept = counts_of_state(loops=any({"a", "aa", "e"} & spec.heads for spec in specs))
    counts = counts_by_minute(found)
    day = [(minute, tuple(of.items())) for minute, of in counts.items() if minute < FIRST]
    standing: Standing = pickle.loads(_after(tuple(day), kept))  # noqa: S301
    courses.tell(standing.at({AGENT: counts}, NOW_US // MINUTE_US, counts=kept))
    return courses.course(AGENT, NOW_US)


@lru_cache(maxsize=64)
def _after(day: tuple[tuple[int, tuple[tuple[str, int], ...]], ...], kept: frozenset[str]) -> bytes:
    """What goes on after a day, before the last hour."""
    standing = Standing(IN_USE)
    standing.at({AGENT: {minute: dict(of) for minute, of in day}}, FIRST - 1, counts=kept)
    return pickle.dumps(standing)


def counts_by_minute(found: Iterable[tuple[int, Sums]]) -> dict[int, Counter[str]]:
    """What minutes count for alerts."""
    counts: dict[int, Counter[str]] = {}
    for minute, sums in found:
        into = counts.setdefault(minute, Counter())
        for code, value in sums.items():
            for name in _LABELS.get(code) or counts_of(code):
                into[name] += value
    return counts
