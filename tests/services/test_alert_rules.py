"""Every alert rule fires, stays silent and resolves as expected (promtool)."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path

import pytest

from stream_metrics.core.alerts.files import prometheus_rule
from stream_metrics.core.alerts.table import ALERTS
from tests.rules import drift, judged, obstacles, shifts, workers
from tests.rules.cases import Case, document
from tests.rules.parts import GROUPS, groups_for

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"
CASES: dict[str, list[Case]] = {
    **shifts.CASES, **judged.CASES, **workers.CASES, **obstacles.CASES, **drift.CASES
}  # fmt: skip


def test_every_alert_has_cases() -> None:
    """Every alert has cases, and every case an existing alert."""
    assert {alert.name for alert in ALERTS} == set(CASES)


def test_the_rule_files_are_valid(promtool_path: str) -> None:
    """Promtool accepts the complete rule files; the cases use parts of them."""
    ask(promtool_path, "check", "rules", *map(str, RULES.glob("*.rules.yml")))


def test_the_object_of_the_operator_has_the_same_rules(promtool_path: str, tmp_path: Path) -> None:
    """Its ``spec`` is what a rule file is."""
    head, _, spec = prometheus_rule().partition("spec:\n")
    file = tmp_path / "spec.yml"
    file.write_text(textwrap.dedent(spec), encoding="utf-8")
    rules = sum(len(group["rules"]) for group in GROUPS)

    assert "kind: PrometheusRule\n" in head
    assert f"SUCCESS: {rules} rules found" in ask(promtool_path, "check", "rules", str(file))


@pytest.mark.parametrize("alert", CASES)
def test_the_rule_fires_as_expected(alert: str, promtool_path: str, tmp_path: Path) -> None:
    """In each case the alert fires or stays silent as the case expects."""
    groups = groups_for(alert)
    rules, file = tmp_path / "rules.json", tmp_path / f"{alert}.test.json"  # JSON is YAML
    rules.write_text(json.dumps({"groups": groups}), encoding="utf-8")
    names = [group["name"] for group in groups]
    text = json.dumps(document(CASES[alert], [rules.name], names, alert))
    file.write_text(text, encoding="utf-8")

    ask(promtool_path, "test", "rules", str(file))


def ask(promtool: str, *arguments: str) -> str:
    """The output of promtool; fails with it."""
    run = subprocess.run(
        [promtool, *arguments], capture_output=True, text=True, timeout=600, check=False
    )

    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
