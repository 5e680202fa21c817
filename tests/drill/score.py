"""How well the alerts did: what they caught and how soon, and whom they woke for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from tests.drill.evaluation import Firing
from tests.drill.plan import KINDS, Kind
from tests.drill.run import Drill
from tests.drill.world import MINUTE, START_US, Agent, Incident

SOON: Final = 10  # minutes
ENOUGH_TURNS: Final = 20  # in ten minutes
AFTERWARDS: Final = 15  # minutes that an alert may come after the end
WEEK: Final = 7 * 1440
WEEKS_A_MONTH: Final = 365.25 / 12 / 7


@dataclass(frozen=True, slots=True)
class Caught:
    """One incident, and after how many minutes of data its alert and the plain rule fired.

    ``busy``: whether there was traffic enough to tell within ten minutes.
    """

    kind: Kind
    incident: Incident
    busy: bool
    minutes: int | None
    plain: int | None


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
    agents = {agent.name: agent for agent in drill.agents}
    found = []
    for incident in drill.incidents:
        for kind in (k for k in KINDS if k.name == incident.kind):
            start = _known(kind, incident, agents)
            busy = incident.agent is None or _busy(drill, incident)
            found.append(
                Caught(
                    kind,
                    incident,
                    busy,
                    _after(drill.firings, kind.alert, incident, start),
                    _after(drill.firings, kind.plain, incident, start),
                )
            )
    return found


def _known(kind: Kind, incident: Incident, agents: dict[str, Agent]) -> int:
    """The minute from which data shows the incident: labels come some time after."""
    start_us = incident.start_us
    if kind.labelled and incident.agent is not None:
        start_us += int(agents[incident.agent].habits.label_delay_seconds * 1e6)
    return (start_us - START_US) // MINUTE


def _busy(drill: Drill, incident: Incident) -> bool:
    assert incident.agent is not None
    start = (incident.start_us - START_US) // MINUTE
    return int(drill.turns[incident.agent][start : start + SOON].sum()) >= ENOUGH_TURNS


def _after(firings: Iterable[Firing], alert: str, incident: Incident, start: int) -> int | None:
    """Minutes until the alert fires for the incident's agent; None if it does not."""
    end = (incident.end_us - START_US) // MINUTE + AFTERWARDS
    first = [
        max(firing.start, start)
        for firing in firings
        if firing.rule.name == alert
        and firing.start < end
        and firing.end > start
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


def woken_for_others(drill: Drill) -> list[Firing]:
    """Alerts about an agent, none of the plain rules, that began while its own day was healthy."""
    troubled: dict[str, list[tuple[int, int]]] = {}
    for incident in drill.incidents:
        span = ((incident.start_us - START_US) // MINUTE, (incident.end_us - START_US) // MINUTE)
        troubled.setdefault(incident.agent or "", []).append(span)
    day = 1440
    return [
        firing
        for firing in drill.firings
        if firing.rule.severity
        and (agent := firing.labels.get("agent")) is not None
        and not any(
            start <= firing.start < end + day
            for start, end in (*troubled.get(agent, ()), *troubled.get("", ()))
        )
    ]


def catch_table(found: Sequence[Caught]) -> list[str]:
    """The rows of the table of what was caught."""
    lines = [
        "| what goes wrong | strength | incidents | within 10 min | minutes, median (90%) | "
        "plain rule within 10 min | median (90%) |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for strength in kind.strengths:
            of = [c for c in found if c.kind == kind and c.incident.strength == strength and c.busy]
            if of:
                real = " (real)" if strength >= kind.real else ""
                ours, plain = [c.minutes for c in of], [c.plain for c in of]
                lines.append(
                    f"| {kind.says} | {strength:g}{real} | {len(of)} | {_share(ours)} | "
                    f"{_spread(ours)} | {_share(plain)} | {_spread(plain)} |"
                )
    return lines


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


def real(found: Sequence[Caught]) -> list[Caught]:
    """Those of real size from their first minute on, with traffic enough."""
    return [c for c in found if c.busy and c.incident.strength >= c.kind.real and not c.kind.slow]


def share_soon(minutes: Sequence[int | None]) -> float:
    """The share that was caught within ten minutes of data; 0 of none, which shows nothing."""
    return sum(m is not None and m <= SOON for m in minutes) / max(1, len(minutes))


def _share(minutes: Sequence[int | None]) -> str:
    return f"{share_soon(minutes):.0%}"


def _spread(minutes: Sequence[int | None]) -> str:
    """Median and ninth decile of all, missed ones being the slowest."""
    ordered = sorted(m if m is not None else 10**9 for m in minutes)
    middle, late = median(ordered), ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return f"{_minutes(middle)} ({_minutes(late)})"


def _minutes(value: float) -> str:
    return "missed" if value >= 10**8 else f"{value:g}"
