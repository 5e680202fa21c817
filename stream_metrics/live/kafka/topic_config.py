"""Checks that the configuration of the internal topic cannot lose records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

Config = Mapping[str, str]

_CREATE_TIME: Final = "CreateTime"
# Settings that must be at least those of the input topics, and what happens if not. -1: unlimited.
_AT_LEAST: Final = {
    "retention.ms": "copies keep their records' times, so Kafka would delete them early",
    "max.message.bytes": "the topic would reject the largest records",
}
_TIMES_AT_LEAST: Final = dict.fromkeys(
    ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
    "the topic would reject some records' times",
)


def topic_config_problems(internal: Config, inputs: Sequence[Config]) -> list[str]:
    """What to change in the internal topic's configuration, given those of the input topics.

    >>> topic_config_problems({"cleanup.policy": "compact"}, [])
    ['cleanup.policy is compact, which keeps one event of each conversation; set it to delete']
    """
    problems = []
    policy = internal.get("cleanup.policy", "delete")
    if policy != "delete":
        problems.append(
            f"cleanup.policy is {policy}, which keeps one event of each conversation; set it to "
            "delete"
        )
    stamps = internal.get("message.timestamp.type", _CREATE_TIME)
    if stamps != _CREATE_TIME:
        problems.append(
            f"message.timestamp.type is {stamps}, which replaces records' times; set it to "
            f"{_CREATE_TIME}"
        )
    if _limit(internal, "retention.bytes") < math.inf:
        problems.append(
            "retention.bytes is set, which may delete records before they are read; set it to -1"
        )
    stamped = [c for c in inputs if c.get("message.timestamp.type", _CREATE_TIME) == _CREATE_TIME]
    problems += _too_low(internal, inputs, _AT_LEAST)
    problems += _too_low(internal, stamped, _TIMES_AT_LEAST)
    return problems


def _too_low(internal: Config, inputs: Sequence[Config], at_least: Mapping[str, str]) -> list[str]:
    problems = []
    for name, otherwise in at_least.items():
        needed = max(inputs, key=lambda config: _limit(config, name), default={})
        if _limit(internal, name) < _limit(needed, name):
            wanted = needed.get(name, "-1")
            problems.append(f"{name} is {internal[name]}: {otherwise}; set it to {wanted}")
    return problems


def _limit(config: Config, name: str) -> float:
    value = int(config.get(name, "-1"))
    return math.inf if value == -1 else value
