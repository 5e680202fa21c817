"""The rules that an alert depends on: a few of some hundred in the rule files.

Each minute of a case evaluates every given rule, which dominates the run time of the cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

_GROUP: Final = re.compile(r"^  - name: \S+\n", re.M)
_RULE: Final = re.compile(r"^      - (?:record|alert): (\S+)\n", re.M)
_RECORDED: Final = re.compile(r"\b(?:agent|job):\w+:\w+")


def rules_for(alert: str, files: Mapping[str, str]) -> dict[str, str]:
    """The rules of an alert, and those that record what they ask for, word for word.

    ``files``: the texts of rule files by name. Groups and files of which nothing is needed are left
    out. Raises ``KeyError`` where an alert or a recorded series is asked for that no file has.

    >>> files = {"a": "groups:\\n  - name: g\\n    rules:\\n"
    ...          "      - record: agent:x:sum\\n        expr: 1\\n"
    ...          "      - record: agent:y:sum\\n        expr: 2\\n"
    ...          "      - alert: A\\n        expr: agent:y:sum > 1\\n"}
    >>> print(rules_for("A", files)["a"], end="")
    groups:
      - name: g
        rules:
          - record: agent:y:sum
            expr: 2
          - alert: A
            expr: agent:y:sum > 1
    """
    rules: dict[str, list[str]] = {}
    for text in files.values():
        for name, rule in _rules(text):
            rules.setdefault(name, []).append(rule)
    needed, asked = set(), {alert}
    while asked:
        name = asked.pop()
        needed.add(name)
        asked.update(set(_RECORDED.findall("".join(rules[name]))) - needed)
    cut = {file: "".join(_groups(text, needed)) for file, text in files.items()}
    return {file: f"groups:\n{text}" for file, text in cut.items() if text}


def _rules(text: str) -> Iterable[tuple[str, str]]:
    """The rules of a file or a group, with their names."""
    starts = list(_RULE.finditer(text))
    ends = [start.start() for start in starts[1:]]
    for start, end in zip(starts, [*ends, len(text)], strict=True):
        rule = text[start.start() : end]
        yield start[1], rule.split("\n  - name: ")[0].rstrip("\n") + "\n"


def _groups(text: str, needed: set[str]) -> Iterable[str]:
    starts = list(_GROUP.finditer(text))
    ends = [start.start() for start in starts[1:]]
    for start, end in zip(starts, [*ends, len(text)], strict=True):
        kept = [rule for name, rule in _rules(text[start.start() : end]) if name in needed]
        if kept:
            yield f"{start[0]}    rules:\n{''.join(kept)}"
