"""Loops and routes without an index: their own alerts see them soon, and the page says so."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from stream_metrics.core.alerts.figures import BY_NAME
from tests.drill.added import added_table
from tests.drill.evaluation import Firing, Rule
from tests.drill.gather import ALERT_OF, IN_USE, evidence
from tests.drill.library import Habits
from tests.drill.minutes import counted, net
from tests.drill.report import Group, page
from tests.drill.rows import changes
from tests.drill.run import Drill
from tests.drill.simulation import Size
from tests.drill.world import DAY, HOUR, MINUTE, START_US, Agent, Incident, Libraries, place

MINUTES = 36 * 60
BEGINS = 34 * 60  # minutes: on the second day at ten
AGENT = Agent("agent-00", Habits(seed=3), turns_per_minute=3.0)
INCIDENTS = [("asks_again", 0.7, "repeated_searches"), ("empty_route", 1.0, "empty_searches")]


@lru_cache
def shelf() -> Libraries:
    """Turns of the agent, made once for each incident."""
    return Libraries(40)


@pytest.mark.parametrize(("kind", "strength", "figure"), INCIDENTS)
def test_evidence_of_its_figure_sees_the_incident_and_nothing_before(
    kind: str, strength: float, figure: str
) -> None:
    """Within ten minutes, at three turns a minute."""
    start_us = START_US + BEGINS * MINUTE
    incident = Incident(kind, AGENT.name, start_us, start_us + HOUR, strength)
    placed = place(AGENT, [incident], MINUTES, np.random.default_rng(5), shelf())
    found, of = counted(changes(placed), MINUTES), BY_NAME[figure]

    gathered = evidence(of, net(found, of.above), net(found, of.below), IN_USE[figure])

    fired = np.flatnonzero(np.any(gathered >= 1, axis=0))
    assert BEGINS < fired[0] <= BEGINS + 10


def called(kind: str, strength: float, figure: str) -> Drill:
    """A day of an agent whose incident its own alert calls after 4 minutes, and SRR after 22."""
    own, other = (Rule(name, "critical", "", 0, 10) for name in (ALERT_OF[figure], "SRRSpike"))
    incident = Incident(kind, AGENT.name, START_US + HOUR, START_US + 2 * HOUR, strength)
    fired = [Firing(rule, {"agent": AGENT.name}, at, 90) for rule, at in ((own, 64), (other, 82))]
    minutes = DAY // MINUTE
    turns = {AGENT.name: np.full(minutes, 1)}
    return Drill([AGENT], minutes, [incident], [own, other], fired, turns, {}, {}, {})


@pytest.mark.parametrize(("kind", "strength", "figure"), INCIDENTS)
def test_what_these_rules_add_is_told_by_the_first_alert(
    kind: str, strength: float, figure: str
) -> None:
    """With them after four minutes, in time; without them too late."""
    *_, of_all = added_table([called(kind, strength, figure)])

    assert of_all.endswith(
        "| all | 0% (0% to 79%) of 1 | 22 (22) | 100% (21% to 100%) of 1 | 4 (4) |"
    )


def test_the_page_has_the_table_and_nothing_of_former_rules() -> None:
    """These knew nothing of loops."""
    troubled = called(*INCIDENTS[0])
    well = replace(troubled, incidents=[], firings=[])
    former = replace(troubled, rules=[], firings=[])

    text = page([Group("Loops", (1,), [well], [troubled], ([well], [former]))], Size(1, 1, 40))

    assert "These rules had 0.00" in text
    assert "| a loop begins | 10-19 | 0% (0% to 79%) of 1 |" in text
    assert "former rules" not in text
