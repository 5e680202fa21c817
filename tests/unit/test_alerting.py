"""The alert rules use series that exist, and each alert names its audience and its runbook."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from deploy.dashboards.boards import BOARDS
from deploy.local.stack import TARGETS, prometheus_config, write_rules, write_targets
from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.series import PREFIX
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.live.prometheus.bridge import BridgeMetrics
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy" / "prometheus"
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
ALERTMANAGER: Final = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
HEADINGS: Final = ("What it means", "First look", "Likely causes and what to do", "When it ends")
FILES: Final = {path.name: path.read_text("utf-8") for path in RULES.glob("*.rules.yml")}

_ALERT: Final = re.compile(
    r"^      - alert: (\w+)\n(.*?)(?=^      - alert: |^  - name: |\Z)", re.M | re.S
)
_RECORD: Final = re.compile(r"^      - record: (\S+)$", re.M)
_RECORDED: Final = re.compile(r"\b(?:agent|job):\w+:\w+")
_SERIES: Final = re.compile(r"(?<![\w:])(streammetrics_\w+)(?:\{([^}]*)\})?")


class Alert(NamedTuple):
    """A rule's name and its text."""

    name: str
    text: str

    def value(self, key: str) -> str:
        """The value of a key; raises ``AssertionError`` if the alert lacks it."""
        found = re.search(rf"^ +{key}: (.+)$", self.text, re.M)
        assert found, f"{self.name} has no {key}"
        return found[1].strip("'")


ALERTS: Final = [Alert(*found) for found in _ALERT.findall(FILES["alerts.rules.yml"])]
EACH: Final = pytest.mark.parametrize(
    "alert", ALERTS, ids=[f"{alert.name}-{alert.value('severity')}" for alert in ALERTS]
)


@lru_cache
def exported() -> frozenset[str]:
    """Names of all series about a worker's own work."""
    registry = CollectorRegistry()
    Operations(registry, ["topic"]).lag("topic", 0, 0, 0.0)
    BridgeMetrics(registry, ["topic"]).lag("topic", 0, 0, 0.0)
    registry.register(WindowCollector(lambda: [], lambda: 0))
    return frozenset(sample.name for family in registry.collect() for sample in family.samples)


def test_every_alert_is_found() -> None:
    """The pattern of these tests finds as many alerts as the file has."""
    assert FILES["alerts.rules.yml"].count("- alert: ") == len(ALERTS) > 15


@EACH
def test_an_alert_has_a_severity_a_summary_and_a_description(alert: Alert) -> None:
    """It also waits for a while before it fires."""
    assert alert.value("severity") in ("critical", "warning")
    assert alert.value("summary")
    assert alert.value("description")
    assert re.fullmatch(r"\d+[smh]", alert.value("for"))


@EACH
def test_an_alert_links_an_existing_dashboard(alert: Alert) -> None:
    """The link sets a variable that the dashboard has."""
    link = re.fullmatch(
        r"http://localhost:3000/d/([\w-]+)(?:\?var-(\w+)=\{\{ \$labels\.\2 \| urlquery \}\})?",
        alert.value("dashboard_url"),
    )

    assert link, alert.value("dashboard_url")
    assert link[1] in {board.uid for board in BOARDS}


@EACH
def test_an_alert_has_a_runbook(alert: Alert) -> None:
    """The linked page is about the alert and has every section."""
    assert alert.value("runbook_url") == f"docs/runbooks/{alert.name}.md"
    text = (ROOT / alert.value("runbook_url")).read_text("utf-8")

    assert text.startswith(f"# {alert.name}\n")
    assert tuple(re.findall(r"^## (.+)$", text, re.M)) == HEADINGS


def test_every_runbook_belongs_to_an_alert() -> None:
    """No runbook is left over from a deleted alert."""
    assert {path.stem for path in RUNBOOKS.iterdir()} == {alert.name for alert in ALERTS}


def test_queried_recording_rules_exist() -> None:
    """Each recorded series that a rule queries is recorded exactly once."""
    recorded = [name for text in FILES.values() for name in _RECORD.findall(text)]
    asked = {name for text in FILES.values() for name in _RECORDED.findall(text)}

    assert len(recorded) == len(set(recorded))
    assert asked == set(recorded)


def test_queried_series_are_exported() -> None:
    """Rules use existing names, and of window sums existing labels and windows."""
    windows = {series.name: series for series in CODES.values()}
    for text in FILES.values():
        for name, matchers in _SERIES.findall(text):
            if name.removeprefix(PREFIX) not in windows:
                assert name in exported(), name
                continue
            series = windows[name.removeprefix(PREFIX)]
            labels = dict(re.findall(r'(\w+)=~?"([^"]*)"', matchers))
            lengths = series.windows or [window.name for window in DEFAULT_WINDOWS]
            assert labels.pop("window") in lengths, name
            assert labels.keys() <= set(series.labels), name


def test_inhibition_rules_name_existing_alerts() -> None:
    """Renaming an alert without Alertmanager's configuration fails here."""
    named = re.findall(r'alertname=~?"([^"]+)"', ALERTMANAGER.read_text("utf-8"))

    assert named
    assert {name for each in named for name in each.split("|")} <= {a.name for a in ALERTS}


def test_the_local_prometheus_has_the_configuration_of_the_containers(tmp_path: Path) -> None:
    """Only paths and targets differ."""
    shipped = (RULES / "prometheus.yml").read_text("utf-8").splitlines()
    write_targets(tmp_path, workers=["127.0.0.1:1"])
    local = prometheus_config(tmp_path, tmp_path / "rules").splitlines()

    moved = [now for was, now in zip(shipped, local, strict=True) if was != now]
    assert len(moved) == 4
    assert TARGETS not in "\n".join(local)
    assert sum(str(tmp_path) in line for line in moved) == 4
    assert (tmp_path / "workers.yml").read_text() == '[{"targets": ["127.0.0.1:1"]}]'


def test_local_alerts_link_to_the_page_of_a_worker(tmp_path: Path) -> None:
    """Without Grafana an alert links to that page; nothing else differs."""
    write_rules(tmp_path, "http://127.0.0.1:1/")
    local = {path.name: path.read_text("utf-8").splitlines() for path in tmp_path.iterdir()}

    assert local.keys() == FILES.keys()
    changed = [
        (was.strip(), now.strip())
        for name, text in FILES.items()
        for was, now in zip(text.splitlines(), local[name], strict=True)
        if was != now
    ]
    assert {was.partition(":")[0] for was, _ in changed} == {"dashboard_url"}
    assert {now.partition("{{")[0].strip("'") for _, now in changed} == {
        "dashboard_url: 'http://127.0.0.1:1/?agent=",
        "dashboard_url: 'http://127.0.0.1:1/",
        "dashboard_url: http://127.0.0.1:1/",
    }
