"""Each query of each panel as Grafana asks it, and what a Prometheus answers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deploy.dashboards.boards import BOARDS
from deploy.dashboards.panels import render
from deploy.local.servers import Prometheus
from deploy.local.waiting import wait_until

RATE_INTERVAL: Final = "1m"  # what Grafana takes where scrapes are 15 seconds apart, as ours are
_VARIABLE: Final = re.compile(r"\$(\w+)")
_LABEL_VALUES: Final = re.compile(r"label_values\((.+), (\w+)\)")


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a panel, with the dashboard's variables in it, and what they are at first."""

    board: str
    panel: str
    expr: str
    chosen: Mapping[str, str]

    @property
    def filled(self) -> str:
        """The query with the variables' values."""
        return fill(self.expr, self.chosen)

    def __str__(self) -> str:
        return f"{self.board}: {self.panel}: {self.expr}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a query gave: the values of its series that are numbers."""

    asked: Asked
    values: tuple[float, ...]

    @property
    def not_zero(self) -> int:
        """How many series are not 0."""
        return sum(map(bool, self.values))


def boards() -> list[dict[str, Any]]:
    """The dashboards as Grafana reads them."""
    return [render(board, BOARDS) for board in BOARDS]


def queries() -> Iterator[Asked]:
    """Every query of every panel of every dashboard."""
    for board in boards():
        chosen = choices(board)
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield Asked(board["title"], panel["title"], target["expr"], chosen)


def choices(board: Mapping[str, Any]) -> dict[str, str]:
    """What whoever opens a dashboard has chosen: everything, and the first length of window."""
    chosen = {"__rate_interval": RATE_INTERVAL}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            chosen[variable["name"]] = variable["allValue"]
        elif variable["type"] == "custom":
            chosen[variable["name"]] = variable["current"]["value"]
    return chosen


def fill(expr: str, chosen: Mapping[str, str]) -> str:
    """An expression with values in place of variables; a variable that there is not is an error."""
    return _VARIABLE.sub(lambda found: chosen[found[1]], expr)


async def look(prometheus: Prometheus) -> list[Seen]:
    """Ask every query. Raises ServerFailed where Prometheus does not understand one."""
    seen = []
    for asked in queries():
        series = await prometheus.query(asked.filled)
        values = (float(one["value"][1]) for one in series)
        seen.append(Seen(asked, tuple(value for value in values if math.isfinite(value))))
    return seen


async def all_seen(prometheus: Prometheus, within_seconds: float) -> list[Seen]:
    """Ask until each query gives a number. Raises DeadlinePassed, and names those without."""
    last: list[Seen] = []

    async def all_there() -> bool:
        last[:] = await look(prometheus)
        return all(seen.values for seen in last)

    def empty() -> str:
        return "\n".join(["panels without data:", *(str(s.asked) for s in last if not s.values)])

    await wait_until(all_there, within_seconds, empty)
    return last


async def offered(prometheus: Prometheus) -> dict[str, list[str]]:
    """What each variable of each dashboard offers to choose from, of those that ask Prometheus."""
    found = {}
    for board in boards():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                asked = _LABEL_VALUES.fullmatch(variable["query"]["query"])
                assert asked, variable
                selector = fill(asked[1], choices(board))
                answer = await prometheus.get(
                    f"/api/v1/label/{asked[2]}/values", **{"match[]": selector}
                )
                found[f"{board['title']}: {variable['name']}"] = list(answer["data"])
    return found


async def annotated(prometheus: Prometheus) -> dict[str, int]:
    """How many marks each annotation of each dashboard would set now."""
    return {
        f"{board['title']}: {annotation['name']}": len(
            await prometheus.query(fill(annotation["expr"], choices(board)))
        )
        for board in boards()
        for annotation in board["annotations"]["list"]
    }
