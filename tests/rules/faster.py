"""The rules with a second for each minute, so that tests need not wait for hours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
FLAGS: Final = ["--query.lookback-delta=5s"]
"""Prometheus' lookback, which is five minutes by default, on the same scale."""


def faster(groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups on that scale: ranges, offsets, waiting times and the interval of evaluation."""
    return [
        {
            **group,
            "interval": "1s",
            "rules": [
                {
                    **rule,
                    "expr": _expression(rule["expr"]),
                    **{
                        key: _duration(rule[key])
                        for key in rule.keys() & {"for", "keep_firing_for"}
                    },
                }
                for rule in group["rules"]
            ],
        }
        for group in groups
    ]


def _expression(expr: str) -> str:
    return re.sub(
        r"(\[|:|offset )(\d+[smhd])\b", lambda found: found[1] + _duration(found[2]), expr
    )


def _duration(text: str) -> str:
    """A duration on the scale.

    >>> _duration("10m"), _duration("86370s")
    ('10000ms', '1439500ms')
    """
    return f"{int(text[:-1]) * _SECONDS[text[-1]] * 1_000 // 60}ms"
