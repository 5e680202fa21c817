"""The bridge's page: which agents' traces are used, which are refused, and what helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from aiohttp import hdrs, web
from jinja2 import Environment, PackageLoader, StrictUndefined

from stream_metrics import __version__
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.telemetry import HELP, Interpretation, Reason, Refusal
from stream_metrics.live.auth import AUTHENTICATED
from stream_metrics.live.health import Health
from stream_metrics.live.page.bridge_rules import RecentTraces
from stream_metrics.live.page.server import HEADERS, add_assets

RELOAD_SECONDS: Final = 10
Label = Callable[[str | None], str]

_TEMPLATE: Final = Environment(
    loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined
).get_template("bridge.html")


@dataclass(slots=True)
class Refused:
    """How often something of an agent was refused for a reason, and the latest case.

    A trace lists its first refusals only, so there may be no case of a reason.
    """

    agent: str
    reason: Reason
    number: int = 0
    latest: Refusal | None = None
    at: datetime | None = None


class BridgePage:
    """Counts closed traces since the start, and serves them as a page at ``path``.

    Alone it is at ``/``. ``traces`` is where commands find them. ``recent`` has what rules judge.
    """

    def __init__(self, health: Health, path: str = "/", traces: str = "kafka:TOPIC") -> None:
        self._health = health
        self._path = path
        self._kept = traces
        self.recent = RecentTraces()
        self._traces: dict[str, Counter[str]] = {}
        self._refused: dict[tuple[str, str], Refused] = {}

    def trace_closed(self, agent: str, outcome: str) -> None:
        """Note a closed trace of an agent."""
        self._traces.setdefault(agent, Counter())[outcome] += 1
        self.recent.trace_closed(agent, outcome)

    def refused(self, interpretation: Interpretation, label: Label, now: datetime) -> None:
        """Note refusals; ``label`` gives agents the names under which they are counted."""
        by_reason: dict[tuple[str, str], Refused] = {}
        for (agent, reason), number in interpretation.by_agent.items():
            known = self._refused.setdefault((label(agent), reason), Refused(label(agent), reason))
            known.number += number
            self.recent.refused(known.agent, reason, number)
            by_reason[known.agent, reason] = known
        for one in reversed(interpretation.refusals):  # the first one is shown
            known = by_reason[label(one.agent), one.reason]
            known.latest, known.at = one, now

    def add_to(self, app: web.Application) -> None:
        """Add the page to an application, and its assets if nothing else does."""
        if self._path == "/":
            add_assets(app)
        app.router.add_get(self._path, self._page)

    def render(self, *, reasons: bool) -> str:
        """The page as HTML; with the reasons why the bridge is not ready only if ``reasons``."""
        total = sum(map(Counter.total, self._traces.values()))
        return _TEMPLATE.render(
            version=__version__,
            engine=ENGINE,
            reload_seconds=RELOAD_SECONDS,
            ready=self._health.ready,
            reasons=self._health.unready_reasons() if reasons else {},
            total=total,
            told=sum(counts["told"] for counts in self._traces.values()),
            agents=sorted(self._traces.items()),
            refused=self._sorted_refused(),
            help=HELP,
            inner=(inner := self._path != "/"),
            title="Traces · stream-metrics" if inner else "stream-metrics bridge",
            process="process" if inner else "bridge",
            kept=self._kept,
            missing=any(reason != "left_out" for _, reason in self._refused)
            or any(of["left_out"] and not of["told"] for of in self._traces.values()),
            now=datetime.now(UTC),
        )

    def _sorted_refused(self) -> list[Refused]:
        return sorted(self._refused.values(), key=lambda one: (-one.number, one.agent))

    async def _page(self, _: web.Request) -> web.Response:
        headers = {**HEADERS, hdrs.CACHE_CONTROL: "no-store"}
        text = self.render(reasons=AUTHENTICATED.get())
        return web.Response(text=text, content_type="text/html", headers=headers)
