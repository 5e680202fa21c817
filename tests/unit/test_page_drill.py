"""The page and the evidence that alerts go by, over the same simulated days of an agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pytest

from stream_metrics.core.alerts.arrivals import counts_of
from stream_metrics.core.alerts.calibration import FALSE_ALARMS, threshold
from stream_metrics.core.alerts.figures import FIGURES
from stream_metrics.core.alerts.standing import Standing
from stream_metrics.core.engine.state import Cell
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.engine.windows import Names, Windows
from stream_metrics.live.page.courses import Courses
from stream_metrics.live.page.finding import FAULTS
from stream_metrics.live.page.rules import RULES
from tests.drill.gather import IN_USE, evidence
from tests.drill.library import Habits, Numbers
from tests.drill.minutes import counted, net
from tests.drill.rows import changes
from tests.drill.world import MINUTE, START_US, Agent, Incident, Libraries, Placed, place
from tests.helpers import rest_long

pytestmark = pytest.mark.slow

HOURS: Final = 38
MINUTES: Final = HOURS * 60
BEGINS: Final = 34 * 60  # minutes: on the second day at ten, when there is most traffic
LASTS: Final = 60
SLOW_LABELS_SECONDS: Final = 600.0
LABELS: Final = {"l": ["labelled_results"], "u": ["unique_results"]}
LIBRARIES: Final = Libraries(100)  # turns are made once for each kind of incident
EVIDENT: Final = [
    (rule.name, rule.of_agent) for rule in RULES if rule.of_agent is not None and not rule.differs
]


class Page:
    """The findings of a page about one agent, as what is placed arrives."""

    def __init__(self, placed: Placed) -> None:
        self._placed = placed
        self._order = np.argsort(placed.at_us, kind="stable")
        self._taken = 0
        self._windows = Windows(DEFAULT_WINDOWS)
        self._courses = Courses(DEFAULT_WINDOWS)
        self._counts: dict[int, Counter[str]] = {}
        self._standing = Standing(IN_USE)

    def faults(self, minute: int) -> set[str]:
        """The rules that go by evidence and find a fault at the start of a minute."""
        now_us = START_US + minute * MINUTE
        until = int(np.searchsorted(self._placed.at_us[self._order], now_us))
        names = Names(frozenset({"agent"}), frozenset({"any"}))
        cells = list(self._cells(self._order[self._taken : until]))
        for row in self._order[self._taken : until].tolist():
            self._count(row)
        self._windows.install(self._windows.changes(cells, names, now_us))
        self._taken = until
        self._courses.update({self._windows: self._windows}, now_us)
        self._courses.tell(self._standing.at({"agent": self._counts}, now_us // MINUTE - 1))
        course = self._courses.course("agent", now_us)
        return {name for name, judge in EVIDENT if judge(course).level in FAULTS}

    def _count(self, row: int) -> None:
        """Count what a row adds in the minute that it arrives in."""
        minute = self._counts.setdefault(int(self._placed.at_us[row]) // MINUTE, Counter())
        for code, value in zip(self._placed.codes, self._placed.deltas[row].tolist(), strict=True):
            for name in LABELS.get(code) or counts_of(code):
                minute[name] += value

    def _cells(self, rows: Numbers) -> Iterator[tuple[int, Cell]]:
        for row in rows.tolist():
            deltas = dict(zip(self._placed.codes, self._placed.deltas[row].tolist(), strict=True))
            for sign in (1, -1):
                sums = {code: sign * n for code, n in deltas.items() if sign * n > 0}
                if sums:
                    yield sign, Cell(int(self._placed.about_us[row]), "agent", sums)


def days_of(habits: Habits, turns_per_minute: float, incidents: Sequence[Incident] = ()) -> Placed:
    """The turns of an agent."""
    agent = Agent("agent", habits, turns_per_minute)
    return place(agent, incidents, MINUTES, np.random.default_rng(5), LIBRARIES)


def alerted(placed: Placed, figure: str) -> set[int]:
    """The minutes in which the evidence that an alert goes by has reached its threshold."""
    found = counted(changes(placed), MINUTES)
    (of,) = (each for each in FIGURES if each.name == figure)
    above, below = net(found, of.above), net(found, of.below)
    gathered = evidence(of, above, below, threshold(figure, FALSE_ALARMS))
    return set(np.flatnonzero(np.any(gathered >= 1, axis=0)).tolist())


@pytest.mark.parametrize(
    ("kind", "strength", "figure", "rule"),
    [
        ("same_pages", 0.8, "srr", "srr_spike"),
        ("rewriter_loops", 0.9, "srr", "srr_spike"),
        ("off_topic", 1.0, "sre", "sre_drop"),
        ("off_topic", 1.0, "gain", "gain_drop"),
        ("empty_index", 0.7, "results", "results_drop"),
        ("gate_skips", 0.6, "missed_searches", "missed_retrievals"),
        ("router_stuck", 0.9, "wrong_routes", "routing_drop"),
        ("reranker_inverted", 0.7, "reranking", "reranking_worse"),
        ("asks_again", 0.7, "repeated_searches", "searches_repeated"),
        ("empty_route", 1.0, "empty_searches", "searches_empty"),
    ],
)
def test_the_page_shows_an_incident_when_its_alert_fires(
    kind: str, strength: float, figure: str, rule: str
) -> None:
    """In the minute in which it does, and not before the incident begins; an hour after
    its end, as long as the alert does."""
    start_us = START_US + BEGINS * MINUTE
    incident = Incident(kind, "agent", start_us, start_us + LASTS * MINUTE, strength)
    placed = days_of(Habits(label_delay_seconds=60.0), 3.0, [incident])
    page = Page(placed)

    before = [minute for minute in range(BEGINS - 300, BEGINS, 10) if page.faults(minute)]
    shown = next(m for m in range(BEGINS, BEGINS + LASTS) if rule in page.faults(m))
    fired = alerted(placed, figure)

    assert before == []
    assert min(fired) > BEGINS
    assert shown == min(fired)
    later = BEGINS + 2 * LASTS
    assert (rule in page.faults(later)) == (later in fired)


@pytest.mark.parametrize("turns_per_minute", rest_long([3.0, 0.5, 12.0]))
def test_slow_labels_do_not_make_a_healthy_agent_look_bad(turns_per_minute: float) -> None:
    """The last ten minutes are always half labelled, and what is settled there says little."""
    habits = Habits(label_delay_seconds=SLOW_LABELS_SECONDS)
    page = Page(days_of(habits, turns_per_minute))

    assert [m for m in range(26 * 60, MINUTES, 5) if page.faults(m)] == []
