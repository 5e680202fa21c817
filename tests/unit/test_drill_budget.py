"""False alarms are divided among figures by what more of them notice."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from stream_metrics.core.alerts.calibration import FALSE_ALARMS, MEASURED, SHARES, threshold
from stream_metrics.core.alerts.figures import FIGURES
from tests.drill.budget import Step, curve, in_use, shares_table, shown, slope, steps_table
from tests.drill.gather import ALERT_OF
from tests.drill.pictures import TITLES, budget_picture
from tests.drill.plan import KINDS
from tests.drill.score import Caught
from tests.drill.simulation import Size, World, simulate
from tests.drill.world import HOUR, START_US, Incident, Libraries

OF_SRR = [kind for kind in KINDS if kind.alert == "SRRSpike"]
SIZE = Size(agents=1, days=2, turns_each=20)


def caught(in_time: int, of: int, which: int = 0) -> list[Caught]:
    """So many incidents of a kind in time of so many."""
    kind = OF_SRR[which]
    incident = Incident(kind.name, "a", START_US, START_US + 1, 0.8)
    one = Caught(kind, incident, False, 3.0, 10, None, None, 7, None)
    return [replace(one, minutes=5 if at < in_time else None) for at in range(of)]


def in_bands() -> list[Caught]:
    """An incident of each band that is shown."""
    return [replace(one, turns=turns) for turns in (1, 4, 7, 30) for one in caught(1, 1)]


def test_a_slope_is_what_a_doubling_of_alarms_notices() -> None:
    """A tenth of the incidents more for each doubling, however far apart thresholds are."""
    steps = [
        Step(nats, alarms, caught(hits, 10))
        for nats, alarms, hits in ((8.0, 0.8, 5), (9.0, 0.2, 3), (10.0, 0.1, 2))
    ]

    assert slope(steps) == pytest.approx(0.1)


def test_each_kind_of_incident_counts_alike() -> None:
    """One of two kinds that is noticed makes a half and a whole, whatever the numbers."""
    step = Step(8.0, 0.1, caught(1, 2) + caught(30, 30, which=1))

    assert step.value == pytest.approx(1.5)


def test_more_alarms_that_notice_less_have_no_slope() -> None:
    """Neither has a figure with one threshold, or with far too many alarms at all others."""
    falls = [Step(8.0, 0.8, caught(2, 10)), Step(9.0, 0.1, caught(3, 10))]
    often = [Step(5.0, 9.0, caught(9, 10)), Step(9.0, 0.1, caught(3, 10))]

    assert [slope(falls), slope(falls[:1]), slope(often)] == [0.0, 0.0, 0.0]


def test_the_rules_have_no_more_alarms_than_their_shares() -> None:
    """Together they leave room for other rules, and for chance."""
    total = 0.0
    for figure, rates in MEASURED.items():
        rate = dict(rates)[threshold(figure, FALSE_ALARMS)]
        assert rate <= SHARES[figure]
        total += rate

    assert 0.7 < total <= 0.85


def test_tables_and_pictures_have_every_figure_and_the_threshold_in_use() -> None:
    """It is bold in the table, and an upright line in the picture."""
    curves = {
        figure.name: [Step(float(nats), rate, in_bands()) for nats, rate in MEASURED[figure.name]]
        for figure in FIGURES
    }
    for name, steps in curves.items():
        rows = [row for row in steps_table({name: steps}) if row.startswith(f"| {name} |")]
        (bold,) = re.findall(r"\*\*([\d.]+)\*\*", "\n".join(rows))
        assert float(bold) == threshold(name, FALSE_ALARMS)
    assert len(list(shares_table({"srr": [*curves["srr"], Step(50.0, 0.001, [])]}))) == 3

    lines = {name: shown(steps) for name, steps in curves.items()}
    drawing = budget_picture(lines, in_use(curves))
    assert all(title in drawing for title in TITLES.values())
    assert drawing.count('class="former"') == len(TITLES) + 1


@pytest.fixture(scope="module")
def troubled() -> World:
    """Two days of a busy agent, in which nearly all results of an hour repeat what the turn had."""
    healthy = simulate(1, SIZE, Libraries(SIZE.turns_each), healthy=True)
    (agent,) = healthy.agents
    start = START_US + 33 * HOUR
    minutes = slice(33 * 60, 34 * 60)
    arrived = dict(healthy.arrived[agent.name])
    arrived["duplicate_results"] = arrived["duplicate_results"].copy()
    arrived["duplicate_results"][minutes] = 0.9 * arrived["results"][minutes]
    incident = Incident("same_pages", agent.name, start, start + HOUR, 0.8)
    return replace(
        healthy, incidents=[incident], arrived={agent.name: arrived},
        changes={(incident, "SRRSpike"): 3.0},
    )  # fmt: skip


def test_a_curve_has_every_measured_threshold(troubled: World) -> None:
    """A large incident of a busy agent is noticed in time with each; a higher one is no sooner."""
    (srr,) = (figure for figure in FIGURES if ALERT_OF[figure.name] == "SRRSpike")

    steps = curve(srr, [troubled])

    assert [(step.nats, step.alarms) for step in steps] == [*MEASURED["srr"]]
    late = [one.minutes for step in steps for one in step.found]
    assert len(late) == len(steps)
    assert all(minutes is not None and minutes <= 10 for minutes in late)
