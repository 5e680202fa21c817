"""The verdicts of the page and the alerts on the same workers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.rules import page_workers
from tests.rules.page import Judged
from tests.rules.page_workers import COURSES, Course
from tests.rules.parts import GROUPS


def asked(names: Iterable[str]) -> str:
    """The query for the worst severity of each alert, which the page shows before it fires."""
    alerts = f'ALERTS{{alertname=~"{"|".join(names)}", severity='
    return (
        f'count by (alertname, severity, job) ({alerts}"critical"}} '
        f'or on (alertname, job) {alerts}"warning"}})'
    )


def alerts_of(
    promtool: str, folder: Path, courses: Sequence[Course], expr: str, minute: int
) -> dict[str, Judged]:
    """The alerts that ``expr`` finds in ``minute``, with their severity, by course."""
    rules = folder / "rules.json"  # JSON is YAML
    rules.write_text(json.dumps({"groups": GROUPS}), encoding="utf-8")
    document = {
        "rule_files": [rules.name],
        "group_eval_order": [group["name"] for group in GROUPS],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": series, "values": values}
                    for course in courses
                    for series, values in course.series().items()
                ],
                # No sample is expected, so that promtool tells what it got.
                "promql_expr_test": [
                    {"expr": expr, "eval_time": f"{minute}m"},
                    {"expr": "vector(1)", "eval_time": "0m"},
                ],
            }
        ],
    }
    file = folder / "page.test.json"  # JSON is YAML
    file.write_text(json.dumps(document), encoding="utf-8")
    run = subprocess.run(
        [promtool, "test", "rules", str(file)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    output = run.stdout + run.stderr
    assert "vector(1)" in output, output  # it came as far as the last question
    found: dict[str, set[tuple[str, str]]] = {course.name: set() for course in courses}
    for labels in re.findall(r"\{([^{}]+)\} 1E\+00", output):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[of["job"]].add((of["alertname"], of["severity"]))
    return {name: frozenset(alerts) for name, alerts in found.items()}


def test_page_and_alerts_agree_on_workers(promtool_path: str, tmp_path: Path) -> None:
    """They agree on each scenario of a worker, except that alerts wait before they fire."""
    names = page_workers.ALERTS.values()
    minute = page_workers.MINUTES - 1
    alerts = alerts_of(promtool_path, tmp_path, COURSES, asked(names), minute)

    assert {course.name: course.page() for course in COURSES} == alerts
    assert {alert for several in alerts.values() for alert, _ in several} == set(names)
