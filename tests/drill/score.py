"""How well the alerts did: what they caught and how soon, and whom they woke for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.drill.evaluation import Firing
from tests.drill.plan import KINDS, Kind
from tests.drill.run import Drill
from tests.drill.world import MINUTE, START_US, Incident

SOON: Final = 10  # minutes
# Four standard errors keep chance from waking people, 1.65 more are for 95 incidents of 100.
TELLING: Final = 5.65  # standard errors, of the turns of half of ``SOON``
AFTERWARDS: Final = 15  # minutes that an alert may come after the end
WEEK: Final = 7 * 1440
WEEKS_A_MONTH: Final = 365.25 / 12 / 7


@dataclass(frozen=True, slots=True)
class Caught:
    """One incident, and how many minutes after its start its alert and the plain rule fired.

    ``telling``: whether there was traffic enough to tell it from chance. ``due``: the minutes
    after which ten minutes of labelled data were there.
    """

    kind: Kind
    incident: Incident
    telling: bool
    due: int
    minutes: int | None
    plain: int | None

    @property
    def real(self) -> bool:
        """Whether it was of real size from its first minute on."""
        return self.incident.strength >= self.kind.real and not self.kind.slow

    @property
    def in_time(self) -> bool:
        """Whether the alert fired within ten minutes of labelled data."""
        return self.minutes is not None and self.minutes <= self.due

    @property
    def plain_in_time(self) -> bool:
        """The same for the plain rule."""
        return self.plain is not None and self.plain <= self.due


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """How often an alert fired in weeks in which nothing was wrong, over all agents."""

    alert: str
    severity: str
    alarms: int
    weeks: float
    """Of the agents together."""

    @property
    def a_month(self) -> float:
        """Alarms in a month of one agent."""
        return self.alarms / self.weeks * WEEKS_A_MONTH


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
                    _telling(drill, incident, kind),
                    SOON + (drill.label_minutes[incident.agent or ""] if late else 0),
                    _after(drill.firings, kind.alert, incident),
                    _after(drill.firings, kind.plain, incident),
                )
            )
    return found


def _telling(drill: Drill, incident: Incident, kind: Kind) -> bool:
    """Whether half of the first ten minutes' turns tell the incident from chance."""
    effect = drill.effects.get((incident, kind.alert))
    if effect is None or incident.agent is None:
        return True
    start = (incident.start_us - START_US) // MINUTE
    turns = int(drill.turns[incident.agent][start : start + SOON].sum())
    return effect * sqrt(turns / 2) >= TELLING


def _after(firings: Iterable[Firing], alert: str, incident: Incident) -> int | None:
    """Minutes until the alert fires for the incident's agent; None if it does not."""
    start = (incident.start_us - START_US) // MINUTE
    end = (incident.end_us - START_US) // MINUTE + AFTERWARDS
    first = [
        firing.start
        for firing in firings
        if firing.rule.name == alert
        and start <= firing.start < end
        and incident.agent in (None, firing.labels.get("agent"))
    ]
    return min(first) - start if first else None


def false_alarms(drills: Sequence[Drill]) -> list[FalseAlarms]:
    """What fired in drills without incidents, by alert and severity; silent rules too."""
    rules = {(rule.name, rule.severity) for drill in drills for rule in drill.rules}
    weeks = sum(len(drill.agents) * drill.minutes / WEEK for drill in drills)
    return [
        FalseAlarms(
            name, severity,
            sum(
                (f.rule.name, f.rule.severity) == (name, severity)
                for drill in drills for f in drill.firings
            ),
            weeks,
        )
        for name, severity in sorted(rules)
    ]  # fmt: skip


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
        "| what goes wrong | strength | traffic enough | in time | minutes, median (90%) | "
        "plain rule in time | median (90%) | less traffic | in time | plain rule in time |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for strength in kind.strengths:
            of = [c for c in found if c.kind == kind and c.incident.strength == strength]
            if not of:
                continue
            size = " (real)" if strength >= kind.real else ""
            enough, less = [c for c in of if c.telling], [c for c in of if not c.telling]
            ours = [c.minutes for c in enough]
            plain = [c.plain for c in enough]
            lines.append(
                f"| {kind.says} | {strength:g}{size} | {len(enough)} | {_share(enough, _ours)} | "
                f"{_spread(ours)} | {_share(enough, _plain)} | {_spread(plain)} | "
                f"{len(less)} | {_share(less, _ours)} | {_share(less, _plain)} |"
            )
    return lines


def _ours(one: Caught) -> bool:
    return one.in_time


def _plain(one: Caught) -> bool:
    return one.plain_in_time


def alarm_table(found: Sequence[FalseAlarms]) -> list[str]:
    """The rows of the table of false alarms."""
    lines = [
        "| alert | severity | false alarms | agent-weeks | a month and agent |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        lines.append(
            f"| {one.alert} | {one.severity or 'plain rule'} | {one.alarms} | {one.weeks:.0f} | "
            f"{one.a_month:.2f} |"
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


def _spread(minutes: Sequence[int | None]) -> str:
    """Median and ninth decile of all, missed ones being the slowest."""
    if not minutes:
        return "-"
    ordered = sorted(m if m is not None else 10**9 for m in minutes)
    middle, late = median(ordered), ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return f"{_minutes(middle)} ({_minutes(late)})"


def _minutes(value: float) -> str:
    return "missed" if value >= 10**8 else f"{value:g}"
