"""Every alert rule fires, stays silent and resolves as expected (promtool)."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.rules import drift, quality, workers
from tests.rules.cases import Case, document
from tests.rules.needed import rules_for

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"
FILES = ("recording.rules.yml", "usual.rules.yml", "bounds.rules.yml", "alerts.rules.yml")
CASES: dict[str, list[Case]] = {**quality.CASES, **workers.CASES, **drift.CASES}


def test_every_alert_has_cases() -> None:
    """Every alert has cases, and every case an existing alert."""
    text = (RULES / "alerts.rules.yml").read_text(encoding="utf-8")

    assert set(re.findall(r"- alert: (\w+)", text)) == set(CASES)


def test_the_rule_files_are_valid(promtool_path: str) -> None:
    """Promtool accepts the complete rule files; the cases use parts of them."""
    ask(promtool_path, "check", "rules", *(str(RULES / name) for name in FILES))


@pytest.mark.parametrize("alert", CASES)
def test_the_rule_fires_as_expected(alert: str, promtool_path: str, tmp_path: Path) -> None:
    """In each case the alert fires or stays silent as the case expects."""
    rules = rules_for(alert, {name: (RULES / name).read_text(encoding="utf-8") for name in FILES})
    for name, part in rules.items():
        (tmp_path / name).write_text(part, encoding="utf-8")
    groups = [
        group for part in rules.values() for group in re.findall(r"^  - name: (\S+)", part, re.M)
    ]
    file = tmp_path / f"{alert}.test.json"  # JSON is YAML
    text = json.dumps(document(CASES[alert], list(rules), groups, alert))
    file.write_text(text, encoding="utf-8")

    ask(promtool_path, "test", "rules", str(file))


def ask(promtool: str, *arguments: str) -> None:
    """Run promtool; fails with its output."""
    run = subprocess.run(
        [promtool, *arguments], capture_output=True, text=True, timeout=600, check=False
    )

    assert run.returncode == 0, run.stdout + run.stderr
