"""Evidence, former rules and fixed thresholds are applied to the same worlds and compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stream_metrics.core.alerts.figures import FIGURES, Figure
from tests.drill.added import OTHERS
from tests.drill.bands import BANDS
from tests.drill.curves import (
    EVIDENCE,
    Point,
    Sweep,
    delays,
    evidence_thresholds,
    plain_thresholds,
    plains,
    sweeps,
)
from tests.drill.gather import IN_USE, alarms
from tests.drill.goals import comparison_table, in_use, no_more
from tests.drill.judge import begun, inputs, judge, told
from tests.drill.plan import KINDS
from tests.drill.run import drill
from tests.drill.score import Caught, caught
from tests.drill.simulation import Size, World, simulate
from tests.drill.window_rules import PREFIX, judge_windows
from tests.drill.world import HOUR, START_US, Incident, Libraries

SIZE = Size(agents=1, days=2, turns_each=20)
START = START_US + 33 * HOUR  # the second morning


@pytest.fixture(scope="module")
def healthy() -> World:
    """Two days of a busy agent."""
    return simulate(1, SIZE, Libraries(SIZE.turns_each), healthy=True)


@pytest.fixture(scope="module")
def troubled(healthy: World) -> World:
    """The same days, in which nearly all results of an hour repeat what the turn had."""
    (agent,) = healthy.agents
    minutes = slice((START - START_US) // 60_000_000, (START + HOUR - START_US) // 60_000_000)
    arrived = dict(healthy.arrived[agent.name])
    arrived["duplicate_results"] = arrived["duplicate_results"].copy()
    arrived["duplicate_results"][minutes] = 0.9 * arrived["results"][minutes]
    sums = {
        window: {code: values.copy() for code, values in of.items()}
        for window, of in healthy.sums[agent.name].items()
    }
    for window in ("1m", "5m", "30m"):
        sums[window]["d"][minutes] = 0.9 * sums[window]["r"][minutes]
    incident = Incident("same_pages", agent.name, START, START + HOUR, 0.8)
    return replace(
        healthy, incidents=[incident], arrived={agent.name: arrived}, sums={agent.name: sums},
        changes={(incident, "SRRSpike"): 3.0},
    )  # fmt: skip


def minutes_of(found: list[Caught]) -> list[int | None]:
    """After how many minutes each was caught."""
    return [one.minutes for one in found]


def test_evidence_and_the_former_rules_see_a_large_incident(troubled: World) -> None:
    """Within ten minutes, since there is much traffic."""
    by_evidence = judge(troubled)
    rules, fired = judge_windows(troubled)

    (ours,) = minutes_of(caught(drill(troubled, *by_evidence)))
    former = [one.start for one in fired if one.rule.name == f"{PREFIX}SRRSpike"]

    assert ours is not None
    assert ours <= 10
    assert 33 * 60 < min(former) <= 33 * 60 + 10
    assert {rule.name.removeprefix(PREFIX) for rule in rules} == OTHERS


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_curve_has_the_alarms_of_what_a_worker_tells(figure: Figure, troubled: World) -> None:
    """At the threshold in use: curves are of the reference, alerts of the worker's own code."""
    of = inputs(troubled, figure)
    evident = told(troubled)[figure.name] > 1

    ((either, large),) = begun(troubled, figure, np.array([IN_USE[figure.name]]))

    assert (alarms(of.may_fire & evident.any(axis=0) | of.fires_anyway) == either).all()
    assert (alarms(of.may_fire & evident[-1] | of.fires_anyway) == large).all()


def test_nothing_large_is_seen_in_healthy_days(healthy: World) -> None:
    """Neither by evidence that pages nor by the former rules."""
    thresholds = {figure.name: 2 * IN_USE[figure.name] for figure in FIGURES}
    _, fired = judge(healthy, thresholds)

    assert not [one for one in fired if one.rule.severity == "critical"]
    assert not judge_windows(healthy)[1]


def test_a_sweep_goes_from_sensitive_to_blunt(healthy: World, troubled: World) -> None:
    """More false alarms are the price of an earlier alarm."""
    figure = FIGURES[0]
    fixed = {
        kind: plain_thresholds([healthy], figure, plain.window)
        for kind, plain in plains(figure).items()
    }

    swept = sweeps(healthy, troubled, figure, fixed)

    assert swept.keys() == {EVIDENCE, *fixed}
    for sweep in swept.values():
        alarms = [point.alarms for point in sweep.points]
        assert alarms[0] >= alarms[-1]
    ours = swept[EVIDENCE]
    delayed = [delays(point.found)[0] for point in ours.points]
    assert delayed == sorted(delayed)
    assert in_use("srr", ours).threshold == pytest.approx(IN_USE["srr"])
    assert len(list(comparison_table({"srr": swept}, no_more))) == 3 + len(BANDS)


def test_a_fixed_threshold_has_as_many_false_alarms_as_it_is_compared_with() -> None:
    """The fewest of those that have at least as many, or the most of those with no more."""
    sweep = Sweep(10.0, [Point(1.0, 40, []), Point(2.0, 20, []), Point(3.0, 5, [])])

    assert [sweep.at(rate).threshold for rate in (0.1, 0.5, 0.6, 3.0, 9.0)] == [3, 3, 2, 1, 1]
    assert [no_more(sweep, rate).threshold for rate in (0.1, 0.5, 0.6, 9.0)] == [3, 3, 3, 1]
    assert sweep.plus(sweep).a_month(sweep.points[0]) == 2.0


def test_delays_count_missed_incidents_as_the_latest() -> None:
    """The median of one that was caught and two that were missed is infinite."""
    (kind, *_) = KINDS
    incident = Incident(kind.name, "a", START_US, START_US + HOUR)
    found = [
        Caught(kind, incident, True, None, 10, minutes, None, 9, None)
        for minutes in (4, None, None)
    ]

    assert delays(found) == (np.inf, np.inf)
    assert delays(found[:1]) == (4.0, 4.0)


def test_thresholds_of_evidence_have_the_one_in_use() -> None:
    """So that the curve has a point for the rules as they are."""
    for figure in FIGURES:
        assert IN_USE[figure.name] in evidence_thresholds(figure)
