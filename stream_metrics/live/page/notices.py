"""What the rules of the page give to whoever is told of faults: what was found, in whose charge it
is, and how long a fault lasts until it is told.

The owner of the first partition tells of agents and of missing partitions, for all workers. Each
worker tells of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stream_metrics.core.alerts.alert import RUNBOOK
from stream_metrics.core.alerts.table import ALERTS
from stream_metrics.core.engine.window import parse_duration
from stream_metrics.live.links import ALERT, fill_template
from stream_metrics.live.notify.episodes import Found, Key, State, Timing
from stream_metrics.live.notify.messages import About
from stream_metrics.live.page.board import Judged
from stream_metrics.live.page.finding import FAULTS, UNKNOWN
from stream_metrics.live.page.rules import RULES, Rule

INSTANCE: Final = "instance"
PARTITIONS: Final = "partitions"  # the rule on what no worker works on

_ALERTS: Final = {alert.name: alert for alert in ALERTS}

Look = tuple[list[Found], frozenset[str]]
"""What was found, and by which rules."""


class Charges:
    """Who tells of which of some rules, and how."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._of_agents = {rule.name for rule in rules if rule.of_agent is not None}

    def of_group(self, judged: Judged) -> Look:
        """What was found of the whole group."""
        looked = frozenset({*(self._of_agents if judged.agents else ()), PARTITIONS})
        return _found(judged.states, looked, ""), looked

    def of_worker(self, judged: Judged, name: str) -> Look:
        """What was found of the worker of this name."""
        looked = frozenset(self._rules) - self._of_agents - {PARTITIONS}
        return _found(judged.states, looked, name), looked

    def timing(self, rule: str, level: str) -> Timing:
        """That of the rule's alert: how long Prometheus waits before it fires, and keeps it."""
        found = self._rules.get(rule)
        if found is None:  # of another release
            return Timing()
        rules = _ALERTS[found.alert].rules
        timed = next((one for one in rules if one.severity == level), rules[0])
        return Timing(_seconds(timed.wait), _seconds(timed.keep))

    def about(self, dimension: str, runbook_url: str | None) -> dict[str, About]:
        """How each rule is called; ``dimension`` is the label of agents."""
        return {
            name: About(
                rule.alert,
                rule.title,
                fill_template(runbook_url, ALERT, rule.alert)
                or RUNBOOK.replace("{alert}", rule.alert),
                INSTANCE if rule.of_agent is None else dimension,
            )
            for name, rule in self._rules.items()
        }


def _found(states: Sequence[Mapping[str, Any]], rules: frozenset[str], subject: str) -> list[Found]:
    return [
        Found(
            Key(state["name"], finding["agent"] or subject),
            _state(finding["level"]),
            finding["why"],
            finding["level"],
        )
        for state in states
        if state["name"] in rules
        for finding in state["findings"]
    ]


def _state(level: str) -> State:
    if level in FAULTS:
        return State.FAULT
    return State.UNSURE if level == UNKNOWN else State.FINE


def _seconds(duration: str | None) -> float:
    return parse_duration(duration) / 1e6 if duration and duration != "0s" else 0.0
