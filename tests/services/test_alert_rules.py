"""Every alert rule: it fires, is silent where it should be, and resolves (promtool)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.rules import quality
from tests.rules.cases import Case, document

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"
FILES = ("recording.rules.yml", "usual.rules.yml", "bounds.rules.yml", "alerts.rules.yml")
CASES: dict[str, list[Case]] = {**quality.CASES}


@pytest.mark.parametrize("alert", CASES)
def test_the_rule_keeps_its_claims(alert: str, promtool_path: str, tmp_path: Path) -> None:
    """Each case of the alert fires and is silent as it says."""
    file = tmp_path / f"{alert}.test.json"  # JSON is YAML
    paths = [str(RULES / name) for name in FILES]
    file.write_text(json.dumps(document(CASES[alert], paths, alert), indent=1))

    run = subprocess.run(
        [promtool_path, "test", "rules", str(file)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert run.returncode == 0, run.stdout + run.stderr
