"""The verdicts of the page and the alerts for the same figures: where they agree, and why not."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.rules import page_workers
from tests.rules.cases import QUIET_MINUTES
from tests.rules.page import AGREED, ALERTS, BAD_MINUTES, UNKNOWN_TO_PAGE, Agent, Judged, Unknown
from tests.rules.page_workers import COURSES, Course
from tests.rules.parts import GROUPS

Asked = Agent | Course


def asked(state: str, names: Iterable[str], by: str) -> str:
    """The query for the worst severity of each alert in ``state``, which the page shows."""
    alerts = f'ALERTS{{alertstate=~"{state}", alertname=~"{"|".join(names)}", severity='
    return (
        f'count by (alertname, severity, {by}) ({alerts}"critical"}} '
        f'or on (alertname, {by}) {alerts}"warning"}})'
    )


def alerts_of(
    promtool: str, folder: Path, subjects: Sequence[Asked], expr: str, minute: int
) -> dict[str, Judged]:
    """The alerts that ``expr`` finds in ``minute``, with their severity, by subject."""
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
                    for subject in subjects
                    for series, values in subject.series().items()
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
    found: dict[str, set[tuple[str, str]]] = {subject.name: set() for subject in subjects}
    for labels in re.findall(r"\{([^{}]+)\} 1E\+00", output):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[of.get("agent") or of["job"]].add((of["alertname"], of["severity"]))
    return {subject: frozenset(alerts) for subject, alerts in found.items()}


def of_agents(promtool: str, folder: Path, agents: Sequence[Agent]) -> dict[str, Judged]:
    """The alerts that fire for each agent."""
    expr = asked("firing", ALERTS.values(), "agent")
    return alerts_of(promtool, folder, agents, expr, QUIET_MINUTES + BAD_MINUTES - 1)


@pytest.mark.long
def test_page_and_alerts_agree_on_the_windows_of_the_page(
    promtool_path: str, tmp_path: Path
) -> None:
    """They agree on every agent on both sides of each threshold and each minimum."""
    alerts = of_agents(promtool_path, tmp_path, AGREED)

    assert {agent.name: agent.page() for agent in AGREED} == alerts
    assert {alert for several in alerts.values() for alert, _ in several} == set(ALERTS.values())


@pytest.mark.parametrize("unknown", UNKNOWN_TO_PAGE, ids=lambda unknown: unknown.agent.name)
def test_page_and_alerts_differ_only_for_documented_reasons(
    unknown: Unknown, promtool_path: str, tmp_path: Path
) -> None:
    """If only one of them reports an agent, the reason is one that the documentation lists."""
    assert unknown.agent.page() == unknown.page
    assert of_agents(promtool_path, tmp_path, [unknown.agent]) == {
        unknown.agent.name: unknown.alerts
    }


def test_page_and_alerts_agree_on_workers(promtool_path: str, tmp_path: Path) -> None:
    """They agree on each scenario of a worker, except that alerts wait before they fire."""
    names = page_workers.ALERTS.values()
    expr = asked("pending|firing", names, "job")
    alerts = alerts_of(promtool_path, tmp_path, COURSES, expr, page_workers.MINUTES - 1)

    assert {course.name: course.page() for course in COURSES} == alerts
    assert {alert for several in alerts.values() for alert, _ in several} == set(names)
