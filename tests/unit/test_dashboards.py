"""The dashboards are the generated ones and follow the rules of dashboard-linter."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.dashboards.__main__ import FOLDER, files
from deploy.dashboards.promql import families, select
from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.series import PREFIX
from tests.rules import parts
from tests.shown.linter import RULES, SELECTOR, Rule, panels
from tests.shown.page import PAGE, cells, rules
from tests.shown.panels import queries

ROOT = Path(__file__).parents[2]
BOARDS = {path.stem: json.loads(text) for path, text in files()}


def spoil(path: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that sets ``value`` in a dashboard at a dotted path."""

    def spoiled(board: dict[str, Any]) -> dict[str, Any]:
        *way, last = path.split(".")
        place: Any = board
        for key in way:
            place = place[int(key)] if key.isdigit() else place[key]
        place[last] = value
        return board

    return spoiled


_QUERY = "panels.1.targets.0.expr"  # the first row's first panel
SPOILED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "template-datasource-rule": spoil("templating.list.0.label", "Source"),
    "template-job-rule": spoil("templating.list.1.multi", False),
    "template-instance-rule": spoil("templating.list.2.allValue", ".*"),
    "template-label-promql-rule": spoil("templating.list.1.query.query", "label_values("),
    "template-on-time-change-reload-rule": spoil("templating.list.1.refresh", 1),
    "panel-datasource-rule": spoil("panels.1.datasource", {"uid": "prometheus"}),
    "panel-title-description-rule": spoil("panels.1.description", ""),
    "panel-units-rule": spoil("panels.1.fieldConfig.defaults.unit", "apples"),
    "panel-no-targets-rule": spoil("panels.1.targets", []),
    "target-rate-interval-rule": spoil(_QUERY, 'rate(a_total{job=~"$job"}[5m])'),
    "target-job-rule": spoil(_QUERY, 'up{instance=~"$instance"}'),
    "target-instance-rule": spoil(_QUERY, 'up{job=~"$job"} / up{instance=~"$instance"}'),
    "target-counter-agg-rule": spoil(_QUERY, "a_total{}"),
    "uneditable-dashboard": spoil("editable", True),
}

PANELS = [
    pytest.param(board, panel, id=f"{name}: {panel['title']}")
    for name, board in BOARDS.items()
    for panel in panels(board)
]


def test_the_committed_dashboards_are_current() -> None:
    """``make dashboards`` would change nothing."""
    committed = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}

    assert committed == dict(files())


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_dashboard_follows_the_rules_of_the_linter(board: dict[str, Any], rule: Rule) -> None:
    """No rule of dashboard-linter reports a problem."""
    assert list(rule.complaints(board)) == []


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_a_rule_reports_a_dashboard_that_breaks_it(rule: Rule) -> None:
    """No rule passes because it checks nothing."""
    assert list(rule.complaints(SPOILED[rule.name](copy.deepcopy(BOARDS["pipeline"])))) != []


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_dashboard_shows_alerts_and_deployments(board: dict[str, Any]) -> None:
    """Both are annotations from the chosen data source."""
    assert [a["name"] for a in board["annotations"]["list"]] == ["Alerts", "Deployments"]
    assert {a["datasource"]["uid"] for a in board["annotations"]["list"]} == {"${datasource}"}
    # The one label beside alertstate that every alert has: rules sum over all others but agents'.
    asked = re.findall(r"(\w+)=", board["annotations"]["list"][0]["expr"])
    assert asked == ["job", "alertstate"]


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_counters_are_summed_over_workers(board: dict[str, Any], panel: dict[str, Any]) -> None:
    """The rate of each series is taken first, then the sum."""
    for target in panel["targets"]:
        expr = target["expr"]
        rates = re.findall(r"\brate\(", expr)
        summed = re.findall(r"(?:sum|sum by \([\w, ]+\)) ?\(rate\(", expr)
        assert len(rates) == len(summed)


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_query_uses_only_variables_of_its_dashboard(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    """Grafana's own variables are allowed too."""
    offered = {variable["name"] for variable in board["templating"]["list"]}
    for target in panel["targets"]:
        assert set(re.findall(r"\$(\w+)", target["expr"])) <= {*offered, "__rate_interval"}


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_every_window_to_choose_has_series(board: dict[str, Any], panel: dict[str, Any]) -> None:
    """No choice of the variable ``window`` leaves a panel without data."""
    lengths = {series.name: series.windows for series in CODES.values()}
    offered: list[str] = next(
        (v["query"].split(",") for v in board["templating"]["list"] if v["name"] == "window"), []
    )
    for target in panel["targets"]:
        for name, matchers in SELECTOR.findall(target["expr"]):
            found = re.search(r'window="([^"]+)"', matchers)
            if name.startswith(PREFIX) and found:
                chosen = offered if found[1] == "$window" else [found[1]]
                has = lengths[name.removeprefix(PREFIX)]
                assert has is None or set(chosen) <= set(has)


def test_panels_do_not_overlap() -> None:
    """Each cell of a dashboard's grid belongs to at most one panel."""
    for board in BOARDS.values():
        cells = [
            (x, y)
            for panel in board["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24


def test_a_query_of_an_unknown_metric_is_refused() -> None:
    """A renamed metric fails here, not in production."""
    with pytest.raises(KeyError, match="no worker exports"):
        select("streammetrics_window_nothing")
    with pytest.raises(KeyError, match="no label place"):
        select("streammetrics_ready", place="here")


def test_every_family_of_windows_is_on_a_dashboard() -> None:
    """Each exported family of window sums is queried by a panel."""
    text = "".join(text for _, text in files())
    assert [
        name for name in families() if name.startswith(PREFIX) and f"{name}{{" not in text
    ] == []


def test_what_panels_ask_of_rules_is_recorded() -> None:
    """Rules record each series that no worker exports."""
    asked = set(re.findall(r"\b\w+:\w+:\w+", "".join(text for _, text in files())))

    assert asked <= {rule.get("record") for rule in parts.RULES}


def test_the_page_about_panels_is_current() -> None:
    """It has each query as it is now, and the descriptions of the rules."""
    page = PAGE.read_text(encoding="utf-8")
    assert [str(asked) for asked in queries() if cells(asked) not in page] == [], "run: make panels"
    assert rules() in page, "run: make panels"
