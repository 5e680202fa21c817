"""The rules that an alert depends on: a few of some hundred in the rule files.

Each minute of a case evaluates every given rule, which dominates the run time of the cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from stream_metrics.core.alerts.alert import LOCAL
from stream_metrics.core.alerts.files import rule_groups

_RECORDED: Final = re.compile(r"\b(?:agent|job):\w+:\w+")

GROUPS: Final = [group for file in rule_groups(LOCAL).values() for group in file]
RULES: Final = [rule for group in GROUPS for rule in group["rules"]]


def name_of(rule: dict[str, Any]) -> str:
    """The name of an alert or of a recorded series."""
    return str(rule.get("alert") or rule["record"])


def asked_by(rules: Iterable[dict[str, Any]]) -> set[str]:
    """The recorded series that rules ask for."""
    return {name for rule in rules for name in _RECORDED.findall(rule["expr"])}


def groups_for(*names: str) -> list[dict[str, Any]]:
    """The groups with the rules of some names, and with what records the series they ask for."""
    needed, asked = set[str](), set(names)
    while asked:
        needed |= asked
        asked = asked_by(rule for rule in RULES if name_of(rule) in asked) - needed
    cut = (
        {**group, "rules": [rule for rule in group["rules"] if name_of(rule) in needed]}
        for group in GROUPS
    )
    return [group for group in cut if group["rules"]]
