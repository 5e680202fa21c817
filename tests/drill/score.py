"""The score of the alerts: detected incidents, delays and false alarms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.drill.evaluation import Firing
from tests.drill.plan import KINDS, SOON, Kind
from tests.drill.run import Drill
from tests.drill.world import MINUTE, START_US, Incident

PAGE: Final = "critical"
AFTERWARDS: Final = 15  # minutes that an alert may come after the end
WEEK: Final = 7 * 1440
WEEKS_A_MONTH: Final = 365.25 / 12 / 7


@dataclass(frozen=True, slots=True)
class Caught:
    """One incident, and how many minutes after its start its alert and the plain rule fired.

    ``change``: how many times its healthy ratio its agent's is, None of incidents of all.
    ``telling``: whether there was traffic enough to tell it from chance. ``due``: the minutes
    after which ten minutes of labelled data were there. ``turns``: its agent's in the first ten
    minutes, None of incidents of all. ``paged``: after how many minutes somebody was woken.
    """

    kind: Kind
    incident: Incident
    telling: bool
    change: float | None
    due: int
    minutes: int | None
    plain: int | None
    turns: int | None
    paged: int | None

    @property
    def real(self) -> bool:
        """Whether it was of real size from its first minute on."""
        large = self.change is None or self.change >= self.kind.times
        return self.incident.strength >= self.kind.real and large and not self.kind.slow

    @property
    def in_time(self) -> bool:
        """Whether the alert fired within ten minutes of labelled data."""
        return self.minutes is not None and self.minutes <= self.due

    @property
    def paged_in_time(self) -> bool:
        """Whether somebody was woken as soon."""
        return self.paged is not None and self.paged <= self.due

    @property
    def plain_in_time(self) -> bool:
        """The same for the plain rule."""
        return self.plain is not None and self.plain <= self.due


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """How often an alert fired in weeks in which nothing was wrong.

    ``of_agents``: that name an agent. ``of_system``: that name none. ``agent_weeks``: of the agents
    together; ``weeks``: of the system.
    """

    alert: str
    severity: str
    of_agents: int
    of_system: int
    agent_weeks: float
    weeks: float

    @property
    def alarms(self) -> int:
        """All of them."""
        return self.of_agents + self.of_system

    @property
    def a_month_and_agent(self) -> float:
        """Alarms about an agent in a month of it."""
        return self.of_agents / self.agent_weeks * WEEKS_A_MONTH

    @property
    def a_month(self) -> float:
        """Alarms about no agent in a month of the system."""
        return self.of_system / self.weeks * WEEKS_A_MONTH


def caught(drill: Drill) -> list[Caught]:
    """Each incident of a drill with what became of it, once for each alert meant for its kind."""
    found = []
    for incident in drill.incidents:
        for kind in (k for k in KINDS if k.name == incident.kind):
            late = kind.labelled and incident.agent is not None
            found.append(
                Caught(
                    kind,
                    incident,
                    drill.telling.get((incident, kind.alert), True),
                    drill.changes.get((incident, kind.alert)),
                    SOON + (drill.label_minutes[incident.agent or ""] if late else 0),
                    after(drill.firings, kind.alert, incident),
                    after(drill.firings, kind.plain, incident),
                    _turns(drill, incident),
                    after(drill.firings, kind.alert, incident, PAGE),
                )
            )
    return found


def _turns(drill: Drill, incident: Incident) -> int | None:
    if incident.agent is None:
        return None
    start = (incident.start_us - START_US) // MINUTE
    return int(drill.turns[incident.agent][start : start + SOON].sum())


def after(
    firings: Iterable[Firing], alert: str, incident: Incident, severity: str | None = None
) -> int | None:
    """Minutes until the alert fires for the incident's agent; None if it does not."""
    start = (incident.start_us - START_US) // MINUTE
    end = (incident.end_us - START_US) // MINUTE + AFTERWARDS
    first = [
        firing.start
        for firing in firings
        if firing.rule.name == alert
        and severity in (None, firing.rule.severity)
        and start <= firing.start < end
        and incident.agent in (None, firing.labels.get("agent"))
    ]
    return min(first) - start if first else None


def false_alarms(drills: Sequence[Drill]) -> list[FalseAlarms]:
    """What fired in drills without incidents, by alert and severity; silent rules too."""
    rules = {(rule.name, rule.severity) for drill in drills for rule in drill.rules}
    fired = Counter(
        (f.rule.name, f.rule.severity, f.labels.get("agent") is not None)
        for drill in drills
        for f in drill.firings
    )
    agent_weeks = sum(len(drill.agents) * drill.minutes / WEEK for drill in drills)
    weeks = sum(drill.minutes / WEEK for drill in drills)
    return [
        FalseAlarms(
            *rule, fired[*rule, True], fired[*rule, False], agent_weeks=agent_weeks, weeks=weeks
        )
        for rule in sorted(rules)
    ]


def most_pages(drills: Sequence[Drill]) -> int:
    """Of the drills' agents, the most pages about one."""
    pages = Counter(
        (number, agent)
        for number, drill in enumerate(drills)
        for firing in drill.firings
        if firing.rule.severity == PAGE and (agent := firing.labels.get("agent")) is not None
    )
    return max(pages.values(), default=0)


def calm(drill: Drill) -> dict[str, NDArray[np.bool_]]:
    """By agent, the minutes without an incident of its own or of all, and a day after the last."""
    found = {agent.name: np.ones(drill.minutes, np.bool_) for agent in drill.agents}
    for incident in drill.incidents:
        start = (incident.start_us - START_US) // MINUTE
        end = (incident.end_us - START_US) // MINUTE + 1440
        for agent in [incident.agent] if incident.agent is not None else list(found):
            found[agent][start:end] = False
    return found


def woken_for_others(drill: Drill) -> list[Firing]:
    """Alerts about an agent, none of the plain rules, that began in a calm minute of it."""
    minutes = calm(drill)
    return [
        firing
        for firing in drill.firings
        if firing.rule.severity
        and (agent := firing.labels.get("agent")) is not None
        and minutes[agent][firing.start]
    ]


def catch_table(found: Sequence[Caught]) -> list[str]:
    """The rows of the table of what was caught."""
    lines = [
        "| incident | strength | enough traffic | in time | minutes, median (90%) | "
        "plain rule in time | median (90%) | less traffic | in time | plain rule in time |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        of_kind = [one for one in found if one.kind == kind]
        for strength, size in product(kind.strengths, ("", " (too small)", " (real)")):
            of = [c for c in of_kind if c.incident.strength == strength and _size(c) == size]
            if not of:
                continue
            enough, less = [c for c in of if c.telling], [c for c in of if not c.telling]
            ours = [c.minutes for c in enough]
            plain = [c.plain for c in enough]
            lines.append(
                f"| {kind.says} | {strength:g}{size} | {len(enough)} | {_share(enough, _ours)} | "
                f"{spread(ours)} | {_share(enough, _plain)} | {spread(plain)} | "
                f"{len(less)} | {_share(less, _ours)} | {_share(less, _plain)} |"
            )
    return lines


def _size(one: Caught) -> str:
    """What the table says of its size: of real strength, it may still move its agent too little."""
    if one.incident.strength < one.kind.real:
        return ""
    return " (real)" if one.real or one.kind.slow else " (too small)"


def late_table(found: Sequence[Caught]) -> list[str]:
    """One row for each incident of real size, with traffic enough, that was late or missed."""
    late = [one for one in real(found) if not one.in_time]
    rows = [
        f"| {one.kind.says} | {one.incident.strength:g} | {one.incident.agent or 'all'} | "
        f"{'-' if one.turns is None else one.turns} | {one.due} | {_when(one.minutes)} | "
        f"{_when(one.plain)} |"
        for one in late
    ]
    head = [
        "| incident | strength | agent | turns in ten minutes | due after | alert after | "
        "plain rule after |",
        "|---|---|---|---|---|---|---|",
    ]
    return [*head, *rows] if rows else []


def _when(minutes: int | None) -> str:
    return "missed" if minutes is None else f"{minutes}"


def _ours(one: Caught) -> bool:
    return one.in_time


def _plain(one: Caught) -> bool:
    return one.plain_in_time


def alarm_table(found: Sequence[FalseAlarms]) -> list[str]:
    """The rows of the table of false alarms."""
    lines = [
        "| alert | severity | false alarms | about an agent, per month and agent | "
        "about no agent, per month |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        lines.append(
            f"| {one.alert} | {one.severity or 'plain rule'} | {one.alarms} | "
            f"{one.a_month_and_agent:.2f} | {one.a_month:.2f} |"
        )
    return lines


def real(found: Sequence[Caught], *, telling: bool = True) -> list[Caught]:
    """Those of real size, with traffic enough, or with less."""
    return [one for one in found if one.real and one.telling == telling]


def share_in_time(found: Sequence[Caught], *, plain: bool = False) -> float:
    """The share that was caught in time; 0 of none, which shows nothing."""
    return sum(map(_plain if plain else _ours, found)) / max(1, len(found))


def _share(found: Sequence[Caught], of: Callable[[Caught], bool]) -> str:
    return f"{sum(map(of, found)) / len(found):.0%}" if found else "-"


def spread(minutes: Sequence[int | None]) -> str:
    """Median and ninth decile of all, missed ones being the slowest."""
    if not minutes:
        return "-"
    ordered = sorted(m if m is not None else 10**9 for m in minutes)
    middle, late = median(ordered), ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return f"{_minutes(middle)} ({_minutes(late)})"


def _minutes(value: float) -> str:
    return "missed" if value >= 10**8 else f"{value:g}"
