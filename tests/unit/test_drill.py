"""The drill of the alerts counts windows, incidents and false alarms as documented."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from stream_metrics.core.engine.config import WINDOW_BUCKETS
from stream_metrics.core.engine.window import parse_window
from tests.drill.evaluation import Firing, Rule, firings
from tests.drill.library import Condition
from tests.drill.plan import KINDS, incidents, loops
from tests.drill.power import CHANCE, POWER, STEPS, grid_of, parts, sum_of, tells
from tests.drill.report import Group, page
from tests.drill.rows import changes
from tests.drill.run import Drill
from tests.drill.score import caught, false_alarms, real, woken_for_others
from tests.drill.series import Series, write
from tests.drill.simulation import Size
from tests.drill.sums import window_sums
from tests.drill.world import (
    DAY,
    HOUR,
    MINUTE,
    START_US,
    Agent,
    Incident,
    Libraries,
    Placed,
    conditions,
    place,
    roster,
)

RULE = Rule("SRRSpike", "critical", "…", pending=2, keep=10)
PLAIN = Rule("PlainRedundancy", "", "…", pending=5, keep=0)
LABELS = {"agent": "agent-00"}


@pytest.mark.parametrize(
    ("active", "spans"),
    [
        ([], []),
        ([5], []),  # too short
        ([5, 6, 7], [(7, 18)]),
        ([5, 6, 8, 9, 10], [(10, 21)]),  # a gap starts the wait again
        ([5, 6, 7, 12], [(7, 23)]),  # still firing, so that it need not wait again
        ([5, 6, 7, 18], [(7, 29)]),
        ([5, 6, 7, 40, 41, 42], [(7, 18), (42, 53)]),
    ],
)
def test_an_alert_obeys_for_and_keep_firing_for(
    active: list[int], spans: list[tuple[int, int]]
) -> None:
    """It waits before it fires, and keeps firing through short gaps."""
    assert [(f.start, f.end) for f in firings(RULE, LABELS, active)] == spans


@pytest.mark.parametrize("name", ["1m", "5m", "30m"])
def test_a_window_sums_its_buckets(name: str) -> None:
    """Each minute it has what has arrived in buckets that are neither too old nor in the future."""
    rng = np.random.default_rng(1)
    minutes, count, window = 60, 400, parse_window(name)
    about = START_US + rng.integers(-10 * MINUTE, 50 * MINUTE, count)
    at = about + rng.integers(-MINUTE, 20 * MINUTE, count)
    deltas = rng.integers(-3, 9, (count, 1))
    placed = Placed(about, ("r",), at, about, np.zeros(count, bool), deltas)

    found = window_sums(changes(placed), {name: ("r", "d")}, minutes)[name]

    now = START_US + MINUTE * np.arange(minutes)[:, None]
    last, bucket = now // window.bucket_us, about // window.bucket_us
    inside = (at <= now) & (bucket <= last) & (bucket > last - WINDOW_BUCKETS)
    assert found["r"].tolist() == (inside * deltas[:, 0]).sum(axis=1).tolist()
    assert not found["d"].any()


def test_turns_have_the_condition_of_their_start() -> None:
    """Each turn has one condition, drift comes in steps, and faults of delivery change none."""
    starts = START_US + MINUTE * np.arange(120)
    during = (START_US + 30 * MINUTE, START_US + 60 * MINUTE)
    found = list(
        conditions(
            starts,
            [
                Incident("off_topic", "a", *during, 0.7),
                Incident("deploy", None, *during),
                Incident("drift", "a", START_US + HOUR, START_US + 2 * HOUR, 0.6),
            ],
        )
    )

    counted = {condition: len(chosen) for condition, chosen in found if len(chosen)}
    assert counted[Condition("off_topic", 0.7)] == 30
    drift = [condition.strength for condition in counted if condition.kind == "same_pages"]
    assert drift == sorted(drift)
    assert drift[-1] == 0.6
    assert sum(counted.values()) == len(starts)


def test_an_incident_changes_only_turns_during_it() -> None:
    """Meanwhile its agent repeats itself more."""
    agent = Agent("a", roster(1, 1)[0].habits, turns_per_minute=12.0)
    incident = Incident("same_pages", "a", START_US + 10 * HOUR, START_US + 11 * HOUR, 0.9)
    placed = place(agent, [incident], 12 * 60, np.random.default_rng(1), Libraries(25))

    def srr(start_us: int, end_us: int) -> float:
        inside = (placed.about_us >= start_us) & (placed.about_us < end_us)
        sums = dict(zip(placed.codes, placed.deltas[inside].sum(axis=0).tolist(), strict=True))
        return float(sums["d"] / sums["r"])

    before = srr(START_US + 8 * HOUR, incident.start_us)
    assert srr(incident.start_us + 5 * MINUTE, incident.end_us) > before + 0.2


def test_incidents_of_an_agent_are_a_day_apart() -> None:
    """No incident is in the baseline of the next one, and every possible kind occurs."""
    agents = roster(20, 3)
    occurring = set()

    for planning in (incidents, loops):
        planned = planning(agents, 28, np.random.default_rng(3))
        for agent in agents:
            own = sorted(i.start_us for i in planned if i.agent == agent.name and i.kind != "drift")
            assert all(later - earlier > DAY + HOUR for earlier, later in pairwise(own))
        occurring |= {incident.kind for incident in planned}

    assert occurring == {kind.name for kind in KINDS}


def drill(planned: list[Incident], fired: list[Firing]) -> Drill:
    """Two days of two busy agents."""
    agents, minutes = roster(2, 1), 2 * DAY // MINUTE
    turns = {agent.name: np.full(minutes, 12) for agent in agents}
    return Drill(agents, minutes, planned, [RULE, PLAIN], fired, turns, {}, {}, {})


def spike(minute: int) -> Incident:
    """An incident of the first agent, an hour long from that minute on."""
    start_us = START_US + minute * MINUTE
    return Incident("same_pages", "agent-00", start_us, start_us + HOUR, 0.8)


def test_an_incident_is_caught_by_its_own_alert_for_its_own_agent() -> None:
    """Minutes are counted from its start for the alert and the plain rule; alerts of other agents
    are ignored."""
    planned = [spike(100), spike(1_700)]
    fired = [
        Firing(RULE, LABELS, 106, 180),
        Firing(PLAIN, LABELS, 130, 160),
        Firing(RULE, {"agent": "agent-01"}, 1_705, 1_760),
    ]

    found = caught(drill(planned, fired))

    assert [(one.minutes, one.plain) for one in found] == [(6, 30), (None, None)]
    assert real(found) == found
    assert [f.start for f in woken_for_others(drill(planned, fired))] == [1_705]


def test_an_alert_without_an_incident_is_a_false_alarm() -> None:
    """False alarms are listed by rule, per month and agent, including rules that never fired."""
    found = {one.alert: one for one in false_alarms([drill([], [Firing(RULE, LABELS, 9, 20)])])}

    assert (found["SRRSpike"].alarms, found["PlainRedundancy"].alarms) == (1, 0)
    assert found["SRRSpike"].agent_weeks == pytest.approx(4 / 7)
    assert found["SRRSpike"].a_month_and_agent == pytest.approx(365.25 / 12 / 4)


def test_the_page_says_whether_the_promises_were_kept() -> None:
    """Catching one incident of two, or one false page in four days of an agent, breaks a
    promise."""
    healthy = drill([], [Firing(RULE, LABELS, 9, 20)])
    troubled = drill([spike(100), spike(1_700)], [Firing(RULE, LABELS, 106, 180)])
    group = Group("Held out", (21,), [healthy], [troubled])
    good = Group(
        "Held out", (21,), [drill([], [])], [drill([spike(9)], [Firing(RULE, LABELS, 14, 70)])]
    )

    text = page([group], Size(2, 2, 10))

    assert not group.kept
    assert good.kept
    assert (
        "with enough traffic: 2. Caught within 10 minutes of labelled data: 50.0% "
        "(95% CI 9.5% to 90.5%; plain rules: 0.0%)" in text
    )
    assert (
        "| an index returns the same pages | 0.8 | agent-00 | 120 | 10 | missed | missed |" in text
    )
    assert "| an index returns the same pages | 0.8 (real) | 2 | 50% | missed (missed) |" in text
    assert "| SRRSpike | critical | 1 | 7.61 | 0.00 |" in text


def test_false_alarms_of_the_system_are_not_divided_by_agents() -> None:
    """One in two days is 15 a month for any number of agents."""
    group = Group("Held out", (1,), [drill([], [Firing(RULE, {}, 9, 20)])], [drill([], [])])

    assert group.pages_a_month_and_agent == 0
    assert group.pages_a_month == pytest.approx(365.25 / 12 / 2)


@pytest.mark.slow
def test_the_turns_needed_to_see_an_incident_follow_from_their_sum() -> None:
    """A gate that skips nearly everything shows in a few turns, not in one; a healthy day never
    shows one."""
    shelf, agent = Libraries(200), roster(1, 1)[0]
    missed = next(kind.ratio for kind in KINDS if kind.name == "gate_skips")
    assert missed is not None

    told = [tells(shelf, agent, Condition("gate_skips", 0.95), missed, n) for n in (0, 1, 20)]

    assert told == [False, False, True]
    assert not tells(shelf, agent, Condition(), missed, 200)


@pytest.mark.parametrize(("usual", "then"), [(0.02, 0.5), (0.2, 0.6), (0.9, 0.5), (0.5, 0.1)])
def test_shares_are_compared_by_the_binomial_distribution(usual: float, then: float) -> None:
    """This is exact for up to 60 decisions, whether the share rises or falls."""
    values = np.array([0.0, 1.0])
    before, after = np.array([1 - usual, usual]), np.array([1 - then, then])
    worse, better = (usual, then) if then > usual else (1 - usual, 1 - then)
    told = []
    for decisions in range(1, 61):
        critical = int(binom.isf(CHANCE, decisions, worse)) + 1
        expected = binom.sf(critical - 1, decisions, better) >= POWER
        told.append(expected)
        assert parts((values, before), (values, after), decisions) == expected

    assert {False, True} == set(told)


def test_the_distribution_of_a_sum_is_the_convolution() -> None:
    """Seven turns are compared to it; values between grid points keep their mean."""
    rng = np.random.default_rng(2)
    values, weight = rng.normal(0, 1, 50), np.full(50, 1 / 50)
    low, step = float(values.min()), float(np.ptp(values)) / STEPS

    grid = grid_of(values, weight, low, step)
    by_hand = np.ones(1)
    for _ in range(7):
        by_hand = np.convolve(by_hand, grid)

    assert grid @ (low + step * np.arange(STEPS + 1)) == pytest.approx(values.mean())
    assert np.abs(sum_of(grid, 7) - by_hand).max() < 1e-15


def test_a_drill_without_incidents_keeps_no_promise() -> None:
    """Without incidents large enough to be seen, the result is not a success."""
    assert not Group("Held out", (21,), [drill([], [])], [drill([], [])]).kept


def test_samples_are_written_in_the_format_of_promtool(tmp_path: Path) -> None:
    """It is OpenMetrics with timestamps, typed counters, and no samples for a failed scrape."""
    path = tmp_path / "samples.om"
    series = [
        Series("streammetrics_window_results", {"agent": "a"}, np.array([1, 2, 3])),
        Series("streammetrics_events_total", {"type": "x"}, np.array([4, 5, 6])),
    ]
    write(path, series, range(3), frozenset({1}))

    start = START_US // 1_000_000
    assert path.read_text().splitlines() == [
        "# TYPE streammetrics_window_results gauge",
        f'streammetrics_window_results{{agent="a"}} 1 {start}',
        f'streammetrics_window_results{{agent="a"}} 3 {start + 120}',
        "# TYPE streammetrics_events counter",
        f'streammetrics_events_total{{type="x"}} 4 {start}',
        f'streammetrics_events_total{{type="x"}} 6 {start + 120}',
        "# EOF",
    ]
