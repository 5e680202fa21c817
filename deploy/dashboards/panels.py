"""Panels, rows and dashboards as Grafana's JSON (schema 39, Grafana 10.4 and later)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

COLUMNS: Final = 24
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Kind = Literal["stat", "timeseries", "bargauge", "table"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and the legend of its series (in Grafana's ``{{label}}`` form)."""

    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: its queries, unit and thresholds.

    ``thresholds`` are the values above which it is orange or red, with ``low`` below which.
    """

    title: str
    description: str
    queries: Sequence[Query]
    unit: str
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    thresholds: Sequence[float] = ()
    low: bool = False
    minimum: float | None = 0.0
    maximum: float | None = None
    decimals: int | None = None
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard.

    ``windows`` are the values of its variable ``window``, ``agents`` is the series from which its
    variable ``agent`` gets its values; without them there is no such variable. ``info`` is the
    series with the version of each instance.
    """

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    windows: Sequence[str] = ()
    agents: str = "streammetrics_window_results"
    info: str = "streammetrics_build_info"


def render(board: Board, siblings: Sequence[Board]) -> Json:
    """The dashboard as Grafana's JSON."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": ["stream-metrics"],
        "editable": False,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "weekStart": "",
        "fiscalYearStartMonth": 0,
        "liveNow": False,
        "annotations": {"list": _annotations(board.info)},
        "templating": {"list": _variables(board)},
        "links": [_link(other) for other in siblings if other.uid != board.uid],
        "panels": list(_placed(board.rows)),
    }


def _placed(rows: Sequence[Row]) -> list[Json]:
    placed: list[Json] = []
    top = 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": place,
                "panels": [],
            }
        )
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            placed.append(_panel(panel, len(placed) + 1, place))
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
    return placed


def _panel(panel: Panel, number: int, place: Mapping[str, int]) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel.kind),
        "targets": [_target(panel, query, at) for at, query in enumerate(panel.queries)],
        "transformations": [{"id": "merge", "options": {}}] if panel.kind == "table" else [],
    }


def _target(panel: Panel, query: Query, at: int) -> Json:
    instant = query.instant or panel.kind in ("bargauge", "table")
    return {
        "refId": chr(ord("A") + at),
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": instant,
        "range": not instant,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _defaults(panel: Panel) -> Json:
    defaults: Json = {
        "unit": panel.unit,
        "color": {"mode": "thresholds" if panel.kind != "timeseries" else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": _steps(panel)},
        "noValue": "no data",
    }
    for name, value in (
        ("min", panel.minimum),
        ("max", panel.maximum),
        ("decimals", panel.decimals),
    ):
        if value is not None:
            defaults[name] = value
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if panel.thresholds else "off"},
        }
    return defaults


def _steps(panel: Panel) -> list[Json]:
    if not panel.thresholds:
        return [{"color": "blue", "value": None}]
    colours = ("orange", "red") if len(panel.thresholds) > 1 else ("red",)
    if panel.low:
        ascending = sorted(panel.thresholds)
        after = [*reversed(colours[: len(ascending) - 1]), "green"]
        return [
            {"color": colours[-1], "value": None},
            *({"color": c, "value": v} for c, v in zip(after, ascending, strict=True)),
        ]
    steps = zip(colours, sorted(panel.thresholds), strict=True)
    return [{"color": "green", "value": None}, *({"color": c, "value": v} for c, v in steps)]


def _options(kind: Kind) -> Json:
    if kind == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "table":
        return {"showHeader": True, "cellHeight": "sm"}
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if kind == "bargauge":
        return {"displayMode": "basic", "orientation": "horizontal", "reduceOptions": reduce}
    return {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": reduce,
        "textMode": "auto",
    }


def _annotations(info: str) -> list[Json]:
    return [
        {
            "name": "Alerts",
            "datasource": SOURCE,
            "enable": True,
            "iconColor": "red",
            "expr": 'ALERTS{job=~"$job", alertstate="firing"}',
            "step": "60s",
            "titleFormat": "{{alertname}}",
            "textFormat": "{{agent}} {{instance}}",
            "tagKeys": "severity",
        },
        {
            "name": "Deployments",
            "datasource": SOURCE,
            "enable": True,
            "iconColor": "blue",
            "expr": (
                f'count by (version) ({info}{{job=~"$job"}}) '
                f'unless count by (version) ({info}{{job=~"$job"}} offset 2m)'
            ),
            "step": "60s",
            "titleFormat": "stream-metrics {{version}}",
            "textFormat": "first seen",
            "tagKeys": "version",
        },
    ]


def _variables(board: Board) -> list[Json]:
    listed: list[Json] = [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "regex": "",
            "hide": 0,
            "multi": False,
            "includeAll": False,
            "current": {},
        },
        _values("job", "Job", f"label_values({board.info}, job)"),
        _values("instance", "Instance", f'label_values({board.info}{{job=~"$job"}}, instance)'),
    ]
    if board.agents:
        expr = f'label_values({board.agents}{{job=~"$job"}}, agent)'
        listed.append(_values("agent", "Agent", expr))
    if board.windows:
        listed.append(_choice("window", "Window", board.windows))
    return listed


def _values(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"Variable-{name}", "qryType": 1},
        "refresh": 2,
        "sort": 1,
        "regex": "",
        "hide": 0,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def _choice(name: str, label: str, values: Sequence[str]) -> Json:
    options = [{"text": v, "value": v, "selected": v == values[0]} for v in values]
    return {
        "name": name,
        "label": label,
        "type": "custom",
        "query": ",".join(values),
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "current": options[0],
        "options": options,
    }


def _link(board: Board) -> Json:
    return {
        "type": "link",
        "title": board.title,
        "url": f"/d/{board.uid}",
        "icon": "dashboard",
        "tooltip": board.description,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "asDropdown": False,
        "tags": [],
    }
