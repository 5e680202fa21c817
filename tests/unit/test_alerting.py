"""The alert rules use series that exist, and each alert names its audience and its runbook."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

import pytest
import yaml
from prometheus_client import CollectorRegistry

from deploy.dashboards.boards import BOARDS
from deploy.dashboards.panels import render
from deploy.local.stack import TARGETS, prometheus_config, write_rules, write_targets
from docs.pages.alerts import runbook
from stream_metrics.core.alerts.alert import CRITICAL, WARNING, Alert, Links
from stream_metrics.core.alerts.estimate_records import ESTIMATE, LABEL_SUMS, OFF
from stream_metrics.core.alerts.files import prometheus_rule, rule_files, rule_groups
from stream_metrics.core.alerts.table import ALERTS
from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.series import PREFIX
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.judge.budget import Cost, Limits, Spending
from stream_metrics.live.judge.ledger import State
from stream_metrics.live.prometheus.bridge import BridgeMetrics
from stream_metrics.live.prometheus.judge import JudgeMetrics
from stream_metrics.live.prometheus.operations import Operations
from tests.exposition import exported_names
from tests.rules import parts

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy" / "prometheus"
ALERTMANAGER: Final = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
HEADINGS: Final = ("What it means", "First look", "Likely causes and what to do", "When it ends")

_SERIES: Final = re.compile(r"(?<![\w:])(streammetrics_\w+)(?:\{([^}]*)\})?")

EACH: Final = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


@lru_cache
def exported() -> frozenset[str]:
    """Names of all series about the work of workers, bridges and judges."""
    registry = CollectorRegistry()
    operations = Operations(registry, ["topic"], pools={"support": "handbook"})
    operations.lag("topic", 0, 0, 0.0)
    operations.agents_known(["support"])
    BridgeMetrics(registry, ["topic"]).lag("topic", 0, 0, 0.0)
    judge = CollectorRegistry()
    spending = Spending(0, Cost(), Cost(), None)
    JudgeMetrics(judge).budget(State(spending, Limits(), 1.0, incomplete_until_ms=0))
    return exported_names(registry) | exported_names(judge)


def test_the_committed_rules_are_current() -> None:
    """``deploy/prometheus`` has the files that ``stream-metrics rules`` writes, and no others."""
    committed = {path.name: path.read_text("utf-8") for path in RULES.glob("*.rules.yml")}

    assert committed == rule_files(), "run: make docs"


def test_rule_files_and_the_object_of_the_operator_have_the_rules_of_the_table() -> None:
    """Each expression and each text is read back as it is in the table, character for character."""
    groups = rule_groups()

    assert {name: yaml.safe_load(text) for name, text in rule_files().items()} == {
        f"{name}.rules.yml": {"groups": found} for name, found in groups.items()
    }
    assert yaml.safe_load(prometheus_rule())["spec"]["groups"] == [
        group for found in groups.values() for group in found
    ]


@EACH
def test_an_alert_has_severities_and_texts(alert: Alert) -> None:
    """Each of its rules says for whom it is and what it is about."""
    for rule in alert.rules:
        assert rule.severity in alert.severity
        assert rule.severity in (CRITICAL, WARNING)
        assert rule.summary
        assert rule.description.endswith(".")
        assert re.fullmatch(r"\d+[smh]", rule.wait)


@EACH
def test_an_alert_links_an_existing_dashboard(alert: Alert) -> None:
    """The dashboard has the variable that the link sets, if any."""
    (board,) = (board for board in BOARDS if board.uid == f"stream-metrics-{alert.board}")
    names = {variable["name"] for variable in render(board, BOARDS)["templating"]["list"]}

    assert alert.label is None or alert.label in names


def test_links_follow_the_templates(tmp_path: Path) -> None:
    """The stack, which has no Grafana, links alerts to the page of a worker."""
    write_rules(tmp_path, "http://127.0.0.1:1/")
    text = (tmp_path / "alerts.rules.yml").read_text("utf-8")

    assert {path.name for path in tmp_path.iterdir()} == set(rule_files())
    assert "http://127.0.0.1:1/?agent={{ $labels.agent | urlquery }}\n" in text
    assert "localhost:3000" not in text
    assert text.count("http://127.0.0.1:1/") == sum(len(alert.rules) for alert in ALERTS)


@EACH
def test_an_alert_has_a_runbook(alert: Alert) -> None:
    """The linked page says when the alert fires, and has every section."""
    text = (ROOT / Links().of(alert)["runbook_url"]).read_text("utf-8")

    assert text == runbook(alert, text), "run: make docs"
    assert tuple(re.findall(r"^## (.+)$", text, re.M)) == HEADINGS


def test_every_runbook_belongs_to_an_alert() -> None:
    """No runbook is left over from a deleted alert."""
    runbooks = {path.stem for path in (ROOT / "docs" / "runbooks").iterdir()}

    assert runbooks == {alert.name for alert in ALERTS}


def test_what_rules_ask_for_is_recorded() -> None:
    """Each recorded series is recorded once, and asked for by another rule; estimates are for
    those who look."""
    recorded = [
        (rule["record"], *rule.get("labels", {}).items())
        for rule in parts.RULES
        if "record" in rule
    ]

    assert len(recorded) == len(set(recorded))
    steps = {name for name, *_ in recorded if not name.startswith((ESTIMATE, OFF))}
    assert parts.asked_by(parts.RULES) == steps


def test_queried_series_are_exported() -> None:
    """Rules use existing names, and of window sums existing labels and windows."""
    windows = {series.name: series for series in CODES.values()}
    for rule in parts.RULES:
        for name, matchers in _SERIES.findall(rule["expr"]):
            if name.removeprefix(PREFIX) not in windows:
                assert name in exported(), name
                continue
            series = windows[name.removeprefix(PREFIX)]
            labels = dict(re.findall(r'(\w+)=~?"([^"]*)"', matchers))
            lengths = series.windows or [window.name for window in DEFAULT_WINDOWS]
            if name != LABEL_SUMS:  # estimates are recorded for all windows
                assert labels.pop("window") in lengths, name
            assert labels.keys() <= set(series.labels), name


def test_inhibition_rules_name_existing_alerts() -> None:
    """Renaming an alert without Alertmanager's configuration fails here."""
    named = re.findall(r'alertname=~?"([^"]+)"', ALERTMANAGER.read_text("utf-8"))

    assert named
    assert {name for each in named for name in each.split("|")} <= {alert.name for alert in ALERTS}


def test_the_local_prometheus_has_the_configuration_of_the_containers(tmp_path: Path) -> None:
    """Only paths and targets differ."""
    shipped = (RULES / "prometheus.yml").read_text("utf-8").splitlines()
    write_targets(tmp_path, workers=["127.0.0.1:1"])
    local = prometheus_config(tmp_path, tmp_path / "rules").splitlines()

    moved = [now for was, now in zip(shipped, local, strict=True) if was != now]
    assert len(moved) == 5
    assert TARGETS not in "\n".join(local)
    assert sum(str(tmp_path) in line for line in moved) == 5
    assert (tmp_path / "workers.yml").read_text() == '[{"targets": ["127.0.0.1:1"]}]'
