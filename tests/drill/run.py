"""One drill: agents and incidents of a seed, simulated, back-filled, and what fired."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.drill.evaluation import ALERTS, PLAIN, RECORDING, Firing, Rule, Weeks
from tests.drill.library import Condition, Numbers
from tests.drill.plan import KINDS, SOON, Kind, deploys, incidents
from tests.drill.power import change, label_delay_minutes, tells
from tests.drill.series import TARGET, Series, asked_for, window_series
from tests.drill.sums import arrivals
from tests.drill.world import (
    DAY,
    MINUTE,
    OF_DELIVERY,
    SECOND,
    START_US,
    Agent,
    Incident,
    Libraries,
    place,
    roster,
)

TOPICS = ("search-iterations", "relevance-labels")


@dataclass(frozen=True, slots=True)
class Drill:
    """What happened and what fired. ``turns``: an agent's turns by minute of their start.

    ``rules``: all that could have fired. ``telling``: whether half of an incident's first ten
    minutes' turns tell it from chance, by ``Incident`` and alert. ``changes``: how many times its
    healthy ratio the agent's is, likewise. ``label_minutes``: after how many nine of ten of an
    agent's labels have come.
    """

    agents: Sequence[Agent]
    minutes: int
    incidents: Sequence[Incident]
    rules: Sequence[Rule]
    firings: Sequence[Firing]
    turns: dict[str, Numbers]
    telling: Mapping[tuple[Incident, str], bool]
    changes: Mapping[tuple[Incident, str], float]
    label_minutes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a drill is."""

    agents: int = 20
    days: int = 14
    turns_each: int = 1_000


async def run(
    seed: int,
    size: Size,
    folder: Path,
    shelf: Libraries,
    *,
    healthy: bool,
    say: Callable[[str], None] = lambda line: None,
) -> Drill:
    """Simulate ``size.days`` of ``size.agents`` agents, with incidents unless ``healthy``."""
    rng = np.random.default_rng(seed)
    minutes = size.days * DAY // MINUTE
    agents = roster(size.agents, seed)
    planned = [] if healthy else incidents(agents, size.days, rng)
    released = deploys(size.days, rng)
    asked = asked_for(path.read_text() for path in (*RECORDING, ALERTS))
    weeks = Weeks(folder, minutes)
    gaps = frozenset((d.start_us - START_US) // MINUTE + 1 for d in released)
    came: dict[bool, list[Numbers]] = {False: [], True: []}
    turns: dict[str, Numbers] = {}
    for agent in agents:
        own = [i for i in planned if i.agent in (None, agent.name)]
        placed = place(agent, [*own, *released], minutes, rng, shelf)
        for labels in came:
            came[labels].append(placed.at_us[placed.labels == labels])
        turns[agent.name] = np.bincount((placed.starts_us - START_US) // MINUTE, minlength=minutes)
        await weeks.fill(list(window_series(agent.name, placed, minutes, asked)), gaps)
        say(f"{agent.name}: {len(placed.starts_us):,} turns, {len(own)} incidents")
    await weeks.fill(_operations(came, [*planned, *released], minutes, gaps), gaps)
    say("recording rules")
    await weeks.record()
    say("alerts")
    rules, fired = await weeks.fire((ALERTS, PLAIN))
    telling, changes = _sizes(agents, planned, turns, shelf)
    delays = {agent.name: label_delay_minutes(shelf, agent.habits) for agent in agents}
    return Drill(agents, minutes, planned, rules, fired, turns, telling, changes, delays)


def _sizes(
    agents: Sequence[Agent],
    planned: Sequence[Incident],
    turns: Mapping[str, Numbers],
    shelf: Libraries,
) -> tuple[dict[tuple[Incident, str], bool], dict[tuple[Incident, str], float]]:
    by_name = {agent.name: agent for agent in agents}
    kinds: dict[str, list[Kind]] = {}
    for kind in KINDS:
        kinds.setdefault(kind.name, []).append(kind)
    telling, changes = {}, {}
    for incident in planned:
        if incident.agent is None:
            continue
        start = (incident.start_us - START_US) // MINUTE
        count = int(turns[incident.agent][start : start + SOON].sum()) // 2
        condition = Condition(incident.kind, incident.strength)
        for kind in kinds[incident.kind]:
            if kind.ratio is not None:
                agent = by_name[incident.agent]
                which = (incident, kind.alert)
                telling[which] = tells(shelf, agent, condition, kind.ratio, count)
                changes[which] = change(shelf, agent, condition, kind.ratio)
    return telling, changes


def _operations(
    came: dict[bool, list[Numbers]],
    troubles: Sequence[Incident],
    minutes: int,
    restarts: frozenset[int],
) -> list[Series]:
    """What the worker says of itself, as far as rules about labels and lag ask for it."""
    series = []
    for labels, kind in ((False, "search_iteration"), (True, "relevance_labels")):
        count = arrivals(came[labels], minutes)
        for restart in sorted(restarts):
            count[restart:] -= count[min(restart, minutes - 1)]
        of = {**TARGET, "type": kind, "outcome": "applied"}
        series.append(Series("streammetrics_events_total", of, count))
    now_us = START_US + MINUTE * np.arange(minutes, dtype=np.int64)
    lag = np.zeros(minutes, np.int64)
    for trouble in troubles:
        if trouble.kind in OF_DELIVERY:
            stands = (now_us >= trouble.start_us) & (now_us < trouble.end_us)
            lag[stands] = (now_us[stands] - trouble.start_us) // SECOND
    for topic in TOPICS:
        of = {**TARGET, "topic": topic, "partition": "0"}
        series.append(Series("streammetrics_consumer_lag_seconds", of, lag))
    series.append(Series("up", TARGET, np.ones(minutes, np.int64)))
    return series
