"""Loops and routes without an index: their own alerts see them soon, and the page says so."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from stream_metrics.core.alerts.figures import BY_NAME
from tests.drill.added import added_table
from tests.drill.evaluation import Firing, Rule
from tests.drill.gather import ALERT_OF, IN_USE, evidence
from tests.drill.library import Habits
from tests.drill.minutes import counted, net
from tests.drill.rows import changes
from tests.drill.run import Drill
from tests.drill.world import DAY, HOUR, MINUTE, START_US, Agent, Incident, Libraries, place, roster

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


@pytest.mark.parametrize(("kind", "strength", "figure"), INCIDENTS)
def test_the_page_says_what_these_rules_add(kind: str, strength: float, figure: str) -> None:
    """The first alert counts: with them after four minutes, without them too late."""
    alert, other = (Rule(name, "critical", "", 0, 10) for name in (ALERT_OF[figure], "SRRSpike"))
    incident = Incident(kind, "agent-00", START_US + HOUR, START_US + 2 * HOUR, strength)
    fired = [
        Firing(alert, {"agent": "agent-00"}, 64, 90),
        Firing(other, {"agent": "agent-00"}, 82, 90),
    ]
    turns = {"agent-00": np.full(DAY // MINUTE, 1)}
    drill = Drill(
        roster(1, 1), DAY // MINUTE, [incident], [alert, other], fired, turns, {}, {}, {}
    )  # fmt: skip

    *_, of_all = added_table([drill])

    assert of_all.endswith(
        "| all | 0% (0% to 79%) of 1 | 22 (22) | 100% (21% to 100%) of 1 | 4 (4) |"
    )
