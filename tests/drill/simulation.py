"""A world: agents and incidents of a seed, and what a worker counts and exports of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tests.drill.kept import KEPT, ROOT, digest, kept
from tests.drill.library import Condition, Numbers
from tests.drill.minutes import Placing, counted, place_written
from tests.drill.plan import KINDS, SOON, Kind, Planning, deploys, incidents
from tests.drill.power import change, label_delay_minutes, tells
from tests.drill.rows import Rows
from tests.drill.series import (
    OF_LOOPS,
    TARGET,
    WINDOW_RECORDING,
    Series,
    asked_for,
    window_codes,
)
from tests.drill.sums import arrivals, window_sums
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

TOPICS: Final = ("search-iterations", "relevance-labels")
_DRILL: Final = (
    "library", "minutes", "plan", "power", "rows", "series", "simulation", "sums", "world",
)  # fmt: skip
_PACKAGE: Final = ("core/dedup", "core/engine", "core/events", "core/metrics", "lab/traffic")
_SOURCES: Final = (
    *(ROOT / "tests" / "drill" / f"{name}.py" for name in _DRILL),
    *(ROOT / "stream_metrics" / name for name in _PACKAGE),
    ROOT / "stream_metrics" / "core" / "alerts" / "arrivals.py",
    *WINDOW_RECORDING,
)


@dataclass(frozen=True, slots=True)
class Size:
    """How large a drill is."""

    agents: int = 20
    days: int = 14
    turns_each: int = 1_000


@dataclass(frozen=True, slots=True)
class World:
    """What happened. ``turns``: an agent's turns by minute of their start.

    ``telling``: whether half of an incident's first ten minutes' turns tell it from chance, by
    ``Incident`` and alert. ``changes``: how many times its healthy ratio the agent's is, likewise.
    ``label_minutes``: after how many nine of ten of an agent's labels have come. ``restarts``:
    minutes in which the worker's new process was not scraped yet. ``arrived``: what each count
    gained in each minute of the log, by agent. ``sums``: of windows, by agent, window and code.
    ``operations``: what the worker says of itself.
    """

    agents: Sequence[Agent]
    minutes: int
    incidents: Sequence[Incident]
    restarts: frozenset[int]
    arrived: Mapping[str, Mapping[str, Numbers]]
    sums: Mapping[str, Mapping[str, Mapping[str, Numbers]]]
    operations: Sequence[Series]
    turns: dict[str, Numbers]
    telling: Mapping[tuple[Incident, str], bool]
    changes: Mapping[tuple[Incident, str], float]
    label_minutes: Mapping[str, int]


def simulate(
    seed: int,
    size: Size,
    shelf: Libraries,
    *,
    healthy: bool,
    placing: Placing = place,
    planning: Planning = incidents,
    say: Callable[[str], None] = lambda line: None,
) -> World:
    """``size.days`` of ``size.agents`` agents, with incidents unless ``healthy``."""
    rng = np.random.default_rng(seed)
    minutes = size.days * DAY // MINUTE
    agents = roster(size.agents, seed)
    planned = [] if healthy else planning(agents, size.days, rng)
    released = deploys(size.days, rng)
    former = asked_for(path.read_text() for path in WINDOW_RECORDING)
    codes = window_codes({**former, **OF_LOOPS})
    gaps = frozenset((d.start_us - START_US) // MINUTE + 1 for d in released)
    came: dict[bool, list[Numbers]] = {False: [], True: []}
    turns, arrived, sums = {}, {}, {}
    for agent in agents:
        own = [i for i in planned if i.agent in (None, agent.name)]
        rows = Rows(shelf)
        placed, written = place_written(agent, [*own, *released], minutes, rng, rows, placing)
        for labels in came:
            came[labels].append(placed.at_us[placed.labels == labels])
        turns[agent.name] = np.bincount((placed.starts_us - START_US) // MINUTE, minlength=minutes)
        arrived[agent.name] = counted(rows.changes(written), minutes)
        sums[agent.name] = window_sums(rows.changes(placed), codes, minutes)
        say(f"{agent.name}: {len(placed.starts_us):,} turns, {len(own)} incidents")
    operations = _operations(came, [*planned, *released], minutes, gaps)
    telling, changes = _sizes(agents, planned, turns, shelf)
    delays = {agent.name: label_delay_minutes(shelf, agent.habits) for agent in agents}
    return World(
        agents, minutes, planned, gaps, arrived, sums, operations, turns, telling, changes, delays,
    )  # fmt: skip


def kept_world(
    seed: int,
    size: Size,
    *,
    healthy: bool,
    shelf: Libraries | None = None,
    placing: Placing = place,
    planning: Planning = incidents,
    folder: Path = KEPT,
    say: Callable[[str], None] = lambda line: None,
) -> World:
    """A world, simulated unless it was before by the same sources."""
    planning = incidents if healthy else planning
    key = world_key(size, placing, planning)
    name = f"{key}/{seed}-{'healthy' if healthy else 'troubled'}.world"
    shelf = shelf or Libraries(size.turns_each)
    return kept(
        folder / name,
        lambda: simulate(
            seed, size, shelf, healthy=healthy, placing=placing, planning=planning, say=say
        ),
    )


def world_key(size: Size, placing: Placing = place, planning: Planning = incidents) -> str:
    """What a world depends on beside its seed, as a short hash."""
    return digest(_SOURCES, size, placing.__qualname__, planning.__qualname__)


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
