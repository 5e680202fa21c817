"""Goals are told from what was caught and from alarms in healthy weeks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import poisson

from tests.drill.evaluation import Firing, Rule
from tests.drill.goals import GOALS, Rate, goals_of
from tests.drill.plan import KINDS
from tests.drill.report import judged, rates
from tests.drill.run import Drill
from tests.drill.score import Caught
from tests.drill.world import HOUR, MINUTE, START_US, Incident, roster

RESULTS = next(kind for kind in KINDS if kind.name == "empty_index")
WARNING = Rule("SRRSpike", "warning", "", 0, 10)
CRITICAL = Rule("SRRSpike", "critical", "", 0, 10)
DROP = Rule("StreamMetricsResultsDrop", "critical", "", 0, 10)
OF_AGENT = {"agent": "agent-00"}


def incident(number: int) -> Incident:
    """The index of an agent returns nothing."""
    start = START_US + number * HOUR
    return Incident("empty_index", "agent-00", start, start + HOUR, 1.0)


def caught(turns: int, minutes: int | None, *, telling: bool = False) -> Caught:
    """An incident with so many turns in its first ten minutes."""
    return Caught(RESULTS, incident(turns), telling, 0.1, 10, minutes, None, turns, None)


def test_each_goal_looks_at_incidents_with_its_traffic() -> None:
    """Those that are late may still be within minutes more."""
    found = [caught(25, 3, telling=True), caught(8, 29), caught(15, 9), caught(4, None)]

    shares = {goal.title: goal.share(found) for goal in GOALS}

    assert [(share.hits, share.of) for share in shares.values()] == [
        (1, 1), (1, 2), (2, 2), (0, 1), (1, 3), (2, 3),
    ]  # fmt: skip


def test_a_goal_without_incidents_is_neither_reached_nor_missed() -> None:
    """Rates of alarms are always told."""
    told = [goal.reached for goal in goals_of([], Rate(5, 4.0), Rate(1, 4.0))]

    assert told == [*[None] * len(GOALS), False, True]


@pytest.mark.parametrize("alarms", [0, 1, 12])
def test_the_interval_of_a_rate_holds_what_does_not_contradict_it(alarms: int) -> None:
    """At either end, so many alarms or more (or fewer) come by chance once in forty times."""
    low, high = Rate(alarms, 10.0).interval

    if alarms:
        assert poisson.sf(alarms - 1, 10 * low) == pytest.approx(0.025)
    assert poisson.cdf(alarms, 10 * high) == pytest.approx(0.025)


def drill(*fired: Firing) -> Drill:
    """A day of an agent."""
    minutes = 1_440
    turns = {"agent-00": np.ones(minutes, np.int64)}
    rules = [WARNING, CRITICAL, DROP]
    return Drill(roster(1, 1), minutes, [], rules, fired, turns, {}, {}, {})


def test_an_alert_of_two_severities_is_one_alarm() -> None:
    """One that has only the severity that pages is one too."""
    healthy = drill(
        Firing(WARNING, OF_AGENT, 5, 30), Firing(CRITICAL, OF_AGENT, 9, 25),
        Firing(DROP, OF_AGENT, 50, 70), Firing(WARNING, {}, 80, 90),
    )  # fmt: skip

    alarms, pages = rates([healthy])

    assert (alarms.alarms, pages.alarms) == (2, 2)
    assert rates([healthy], "SRRSpike")[0].alarms == 1
    assert alarms.months == pytest.approx(12 / 365.25)


def test_incidents_whose_alert_was_not_evaluated_are_left_out() -> None:
    """Nothing could have fired."""
    lag = Incident("consumer_stalled", None, START_US, START_US + 45 * MINUTE)
    troubled = replace(drill(), incidents=[incident(1), lag])

    assert [one.incident.kind for one in judged([troubled])] == ["empty_index"]
