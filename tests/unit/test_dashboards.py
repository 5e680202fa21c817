"""The dashboards are those that the code gives, and keep the rules of dashboard-linter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.dashboards import boards
from deploy.dashboards.__main__ import FOLDER, files
from deploy.dashboards.promql import families, select
from stream_metrics.adapters.prometheus.windows import PREFIX
from stream_metrics.engine.cells import CODES

ROOT = Path(__file__).parents[2]
BOARDS = {path.stem: json.loads(text) for path, text in files()}
SELECTOR = re.compile(r"([a-zA-Z_:]\w*)\{([^}]*)\}")


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything on a board but its headings."""
    return (panel for panel in board["panels"] if panel["type"] != "row")


PANELS = [
    pytest.param(board, panel, id=f"{name}: {panel['title']}")
    for name, board in BOARDS.items()
    for panel in panels(board)
]


def test_the_committed_dashboards_are_current() -> None:
    """``make dashboards`` changes nothing."""
    made = dict(files())
    assert {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")} == made


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_board_is_set_up_as_the_linter_asks(board: dict[str, Any]) -> None:
    """Not editable; one data source, jobs and instances to choose, filled in anew with the time."""
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}

    assert board["editable"] is False
    assert [v["name"] for v in variables.values() if v["type"] == "datasource"] == ["datasource"]
    assert (variables["datasource"]["label"], variables["datasource"]["query"]) == (
        "Data source",
        "prometheus",
    )
    for name in ("job", "instance"):
        variable = variables[name]
        assert (variable["label"], variable["type"]) == (name.title(), "query")
        assert variable["datasource"]["uid"] == "${datasource}"
        assert (variable["multi"], variable["allValue"]) == (True, ".+")
    for variable in variables.values():
        if variable["type"] == "query":
            assert variable["refresh"] == 2
            assert variable["query"]["query"].startswith("label_values(")


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_board_shows_alerts_and_deployments(board: dict[str, Any]) -> None:
    """Both are annotations of the chosen data source."""
    assert [a["name"] for a in board["annotations"]["list"]] == ["Alerts", "Deployments"]
    assert {a["datasource"]["uid"] for a in board["annotations"]["list"]} == {"${datasource}"}
    # The one label beside alertstate that every alert has: rules sum over all others but agents'.
    asked = re.findall(r"(\w+)=", board["annotations"]["list"][0]["expr"])
    assert asked == ["job", "alertstate"]


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_panel_says_what_it_shows(board: dict[str, Any], panel: dict[str, Any]) -> None:
    """It has a title, a description, a unit, the chosen data source and a query."""
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    assert panel["targets"]


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_query_asks_for_the_chosen_workers(board: dict[str, Any], panel: dict[str, Any]) -> None:
    """Each selector has job and instance; a counter is summed, its rate over Grafana's interval."""
    for target in panel["targets"]:
        expr = target["expr"]
        assert SELECTOR.findall(expr)
        for name, matchers in SELECTOR.findall(expr):
            assert 'job=~"$job"' in matchers
            assert 'instance=~"$instance"' in matchers
            if name.endswith(("_total", "_bucket")) or "rate(" in expr:
                assert re.search(
                    rf"(?:sum|sum by \([\w, ]+\)) ?\(rate\({name}\{{[^}}]*\}}"
                    r"\[\$__rate_interval\]\)\)",
                    expr,
                )


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_query_uses_only_what_its_board_lets_choose(
    board: dict[str, Any], panel: dict[str, Any]
) -> None:
    """Every variable in a query is one of the board, or Grafana's own."""
    offered = {variable["name"] for variable in board["templating"]["list"]}
    for target in panel["targets"]:
        assert set(re.findall(r"\$(\w+)", target["expr"])) <= {*offered, "__rate_interval"}


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_window_is_one_that_the_series_have(board: dict[str, Any], panel: dict[str, Any]) -> None:
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
    """No cell of a board's grid is taken twice."""
    for board in BOARDS.values():
        cells = [
            (x, y)
            for panel in board["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24


def test_a_name_that_no_worker_exports_is_refused() -> None:
    """So that a renamed metric breaks the dashboards here, not in production."""
    with pytest.raises(KeyError, match="no worker exports"):
        select("streammetrics_window_nothing")
    with pytest.raises(KeyError, match="no label place"):
        select("streammetrics_ready", place="here")


def test_every_family_of_windows_is_on_a_dashboard() -> None:
    """None is exported that nobody looks at."""
    text = "".join(text for _, text in files())
    assert [
        name for name in families() if name.startswith(PREFIX) and f"{name}{{" not in text
    ] == []


@pytest.mark.parametrize(
    ("alert", "threshold"),
    [
        ("SRRSpike", boards.SRR_WARNING),
        ("SRRSpike", boards.SRR_CRITICAL),
        ("RetrievalMissed", boards.MISSED_SEARCHES),
        ("DeadLetters", boards.DEAD_LETTER_SHARE),
        ("ConsumerLagGrowing", boards.LAG_SECONDS),
        ("StateNearLimit", boards.MEMORY_SHARE),
        ("RerankingWorse", boards.RERANKING),
    ],
)
def test_thresholds_are_those_of_the_alerts(alert: str, threshold: float) -> None:
    """A line on a panel is where the alert's rule has it."""
    rules = (ROOT / "deploy/prometheus/alerts.rules.yml").read_text("utf-8").split("- alert: ")
    exprs = [rule for rule in rules if rule.splitlines()[0].endswith(alert)]
    assert any(re.search(rf"[<>] {threshold:g}\b", expr) for expr in exprs)
