"""Prometheus is given all that the alerts ask for which numpy does not judge, and no more."""

from __future__ import annotations

import re

from tests.drill.asked import recorded_for, rule_texts, without
from tests.drill.evaluation import (
    ALERTS,
    BY_NUMPY,
    OF_JUDGES,
    alert_texts,
    recorded_codes,
    recording,
)

RULES = """groups:
  - name: one
    rules:
      - record: agent:a:sum
        expr: sum(a)
      - alert: A
        expr: |
          agent:a:sum > 1
          or b
  - name: two
    rules:
      - alert: A
        expr: c
      - alert: B
        expr: agent:b:sum > 1
"""


def test_a_rule_goes_and_its_group_stays() -> None:
    """Also if it is the last of its group."""
    assert rule_texts(RULES).keys() == {"agent:a:sum", "A", "B"}
    assert without(RULES, {"A", "B"}) == RULES[: RULES.index("      - alert: A")] + (
        "  - name: two\n    rules:\n"
    )


def test_whatever_is_left_asks_only_for_what_is_recorded() -> None:
    """And nothing is recorded that nobody asks for."""
    texts = [*alert_texts(), *recording()]
    recorded = {name for text in recording() for name in rule_texts(text)}

    assert {name for text in texts for name in re.findall(r"\w+:\w+:\w+", text)} == recorded


def test_every_alert_is_judged_by_numpy_or_by_prometheus() -> None:
    """And by one of them only, but for those about judges."""
    every = {name for file in ALERTS for name in rule_texts(file.read_text(encoding="utf-8"))}
    left = {name for text in alert_texts() for name in rule_texts(text)}

    assert every > BY_NUMPY
    assert left == every - BY_NUMPY - OF_JUDGES


def test_windows_of_labels_and_of_drift_are_recorded() -> None:
    """Six sums of each agent instead of sixty-five."""
    codes = recorded_codes()

    assert {window: set(of) for window, of in codes.items()} == {
        "5m": {"u", "l"}, "1h": {"u", "l"}, "24h": {"r", "d"},
    }  # fmt: skip


def test_without_an_alert_nothing_is_recorded() -> None:
    """Each file is empty then."""
    assert recorded_for(["up == 0"], ALERTS) == ["", ""]
