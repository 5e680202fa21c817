"""Every alert rule: it fires, is silent where it should be, and resolves (promtool)."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.rules import drift, quality, workers
from tests.rules.cases import Case, document

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"
FILES = ("recording.rules.yml", "usual.rules.yml", "bounds.rules.yml", "alerts.rules.yml")
CASES: dict[str, list[Case]] = {**quality.CASES, **workers.CASES, **drift.CASES}


def test_every_alert_has_cases() -> None:
    """None is left out, and none is of an alert that is gone."""
    text = (RULES / "alerts.rules.yml").read_text(encoding="utf-8")

    assert set(re.findall(r"- alert: (\w+)", text)) == set(CASES)


@pytest.mark.parametrize("alert", CASES)
def test_the_rule_keeps_its_claims(alert: str, promtool_path: str, tmp_path: Path) -> None:
    """Each case of the alert fires and is silent as it says."""
    file = tmp_path / f"{alert}.test.json"  # JSON is YAML
    paths = [RULES / name for name in FILES]
    groups = [
        group
        for path in paths
        for group in re.findall(r"^  - name: (\S+)", path.read_text(encoding="utf-8"), re.M)
    ]
    text = json.dumps(document(CASES[alert], [str(path) for path in paths], groups, alert))
    file.write_text(text, encoding="utf-8")

    run = subprocess.run(
        [promtool_path, "test", "rules", str(file)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert run.returncode == 0, run.stdout + run.stderr
