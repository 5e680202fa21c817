"""What alerts ask for: the rules that record it, and the sums of windows that these are made of.

Prometheus evaluates only alerts that numpy does not judge. They ask for few of the recorded series,
and these for few windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_RULE: Final = re.compile(r"^      - (?:record|alert): (\S+)\n(?:(?: {8}.*)?\n)+", re.MULTILINE)
_RECORDED: Final = re.compile(r"\b(?:agent|job|pool|window):\w+:\w+")


def rule_texts(text: str) -> dict[str, str]:
    """The rules of a file by name; those of one name are together."""
    found: dict[str, str] = {}
    for match in _RULE.finditer(text):
        found[match[1]] = found.get(match[1], "") + match[0]
    return found


def without(text: str, names: Iterable[str]) -> str:
    """A file of rules without those of some names."""
    left_out = frozenset(names)
    return _RULE.sub(lambda match: "" if match[1] in left_out else match[0], text)


def recorded_for(alerts: Iterable[str], files: Sequence[Path]) -> list[str]:
    """What is left of rule files if only what alerts need is recorded; '' if nothing is.

    A file may ask for what files before it record.

    >>> recorded_for(["up == 0"], [Path(__file__).with_name("plain.rules.yml")])
    ['']
    """
    wanted = {name for text in alerts for name in _RECORDED.findall(text)}
    left: list[str] = []
    for file in reversed(files):
        text = file.read_text(encoding="utf-8")
        rules = rule_texts(text)
        chosen = wanted & rules.keys()
        wanted |= {name for rule in chosen for name in _RECORDED.findall(rules[rule])}
        left.append(without(text, rules.keys() - chosen) if chosen else "")
    return left[::-1]
