"""The rules of dashboard-linter, held to our dashboards' JSON.

Names are the tool's. Where it looks at some kinds of panels only, every panel is looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Json = Mapping[str, Any]
Scope = Literal["dashboards", "panels", "queries"]

SOURCE: Final = "${datasource}"
UNITS: Final = frozenset({"none", "short", "percentunit", "bytes", "s", "ops"})
MATCHERS: Final = {name: f'{name}=~"${name}"' for name in ("job", "instance")}
SELECTOR: Final = re.compile(r"([a-zA-Z_:]\w*)\{([^}]*)\}")
_LABEL_VALUES: Final = re.compile(r"label_values\([a-z_]+(\{[^{}]*\})?, [a-z_]+\)")
_RANGE: Final = re.compile(r"\[([^\]]*)\]")
_RATE: Final = re.compile(r"\b(?:rate|irate|increase)\($")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what it asks for, of what, and a function that gives a dashboard's complaints."""

    name: str
    asks: str
    of: Scope
    complaints: Callable[[Json], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A rule that is not applied, and why."""

    rule: str
    reason: str


def panels(board: Json) -> Iterator[Json]:
    """Everything on a dashboard but its headings."""
    return (panel for panel in board["panels"] if panel["type"] != "row")


def targets(board: Json) -> Iterator[tuple[Json, Json]]:
    """Each query of a dashboard, with its panel."""
    return ((panel, target) for panel in panels(board) for target in panel["targets"])


def variables(board: Json, kind: str) -> list[Json]:
    """The variables of a kind."""
    return [v for v in board["templating"]["list"] if v["type"] == kind]


def looked_at(boards: Sequence[Json], scope: Scope) -> int:
    """How many there are of what a rule looks at."""
    if scope == "dashboards":
        return len(boards)
    each = panels if scope == "panels" else targets
    return sum(1 for board in boards for _ in each(board))


def _one_data_source(board: Json) -> Iterator[str]:
    found = [(v["name"], v["label"], v["query"]) for v in variables(board, "datasource")]
    if found != [("datasource", "Data source", "prometheus")]:
        yield f"data source variables: {found}"


def _chosen_from(name: str) -> Callable[[Json], Iterator[str]]:
    def complaints(board: Json) -> Iterator[str]:
        found = [v for v in variables(board, "query") if v["name"] == name]
        if len(found) != 1:
            yield f"{len(found)} variables {name}"
        for variable in found:
            for key, value in (("label", name.title()), ("multi", True), ("allValue", ".+")):
                if variable[key] != value:
                    yield f"{name}: {key} is {variable[key]!r}"
            if variable["datasource"]["uid"] != SOURCE:
                yield f"{name}: of another data source"

    return complaints


def _label_values(board: Json) -> Iterator[str]:
    for variable in variables(board, "query"):
        if not _LABEL_VALUES.fullmatch(variable["query"]["query"]):
            yield f"{variable['name']}: {variable['query']['query']}"


def _filled_anew(board: Json) -> Iterator[str]:
    yield from (v["name"] for v in variables(board, "query") if v["refresh"] != 2)


def _of_the_data_source(board: Json) -> Iterator[str]:
    yield from (p["title"] for p in panels(board) if p["datasource"]["uid"] != SOURCE)
    yield from (p["title"] for p, t in targets(board) if t["datasource"]["uid"] != SOURCE)


def _described(board: Json) -> Iterator[str]:
    for panel in panels(board):
        if not panel["title"] or not panel["description"].endswith("."):
            yield panel["title"] or f"panel {panel['id']}"


def _units(board: Json) -> Iterator[str]:
    for panel in panels(board):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        if unit not in UNITS:
            yield f"{panel['title']}: {unit!r}"


def _with_queries(board: Json) -> Iterator[str]:
    for panel in panels(board):
        if not panel["targets"] or not all(target["expr"] for target in panel["targets"]):
            yield panel["title"]


def _rate_intervals(board: Json) -> Iterator[str]:
    for panel, target in targets(board):
        if not set(_RANGE.findall(target["expr"])) <= {"$__rate_interval"}:
            yield f"{panel['title']}: {target['expr']}"


def _matched_by(name: str) -> Callable[[Json], Iterator[str]]:
    def complaints(board: Json) -> Iterator[str]:
        for panel, target in targets(board):
            selectors = SELECTOR.findall(target["expr"])
            # What rules record of all workers has no instance.
            matched = [
                MATCHERS[name] in matchers or (name == "instance" and ":" in series)
                for series, matchers in selectors
            ]
            if not matched or not all(matched):
                yield f"{panel['title']}: {target['expr']}"

    return complaints


def _counters(board: Json) -> Iterator[str]:
    for panel, target in targets(board):
        for found in SELECTOR.finditer(target["expr"]):
            counter = found[1].endswith(("_total", "_bucket"))
            if counter and not _RATE.search(target["expr"][: found.start()]):
                yield f"{panel['title']}: {found[1]}"


def _uneditable(board: Json) -> Iterator[str]:
    if board["editable"] is not False:
        yield "can be edited"


RULES: Final = (
    Rule("template-datasource-rule", "one Prometheus data source variable", "dashboards",
         _one_data_source),
    Rule("template-job-rule", "a job variable with multiple values and All", "dashboards",
         _chosen_from("job")),
    Rule("template-instance-rule", "an instance variable with multiple values and All",
         "dashboards", _chosen_from("instance")),
    Rule("template-label-promql-rule", "variables have valid queries", "dashboards",
         _label_values),
    Rule("template-on-time-change-reload-rule", "variables refresh when the time range changes",
         "dashboards", _filled_anew),
    Rule("panel-datasource-rule", "the data source variable", "panels", _of_the_data_source),
    Rule("panel-title-description-rule", "a title and a description", "panels", _described),
    Rule("panel-units-rule", "a unit that Grafana knows", "panels", _units),
    Rule("panel-no-targets-rule", "a query", "panels", _with_queries),
    Rule("target-rate-interval-rule", "only `$__rate_interval` as range", "queries",
         _rate_intervals),
    Rule("target-job-rule", "the job variable in each selector", "queries", _matched_by("job")),
    Rule("target-instance-rule", "the instance variable in each selector", "queries",
         _matched_by("instance")),
    Rule("target-counter-agg-rule", "`rate` or `increase` of each counter", "queries", _counters),
    Rule("uneditable-dashboard", "not editable in Grafana", "dashboards", _uneditable),
)  # fmt: skip

EXCLUSIONS: Final = (
    Exclusion("target-promql-rule", "A real Prometheus ran each query; see above."),
    Exclusion("target-logql-rule", "No dashboard uses Loki."),
    Exclusion("target-logql-auto-rule", "No dashboard uses Loki."),
)
