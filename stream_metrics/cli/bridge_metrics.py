"""The metrics of a bridge, with what it logs and shows of refusals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from stream_metrics.core.telemetry import HELP, Interpretation, agent_of, page_ids_message
from stream_metrics.core.telemetry.interpretation import EXPLAINED, FOLLOWING
from stream_metrics.core.telemetry.interpreter import InterpretedTrace
from stream_metrics.core.telemetry.recordings import MAX_REMEMBERED, SOON_NS
from stream_metrics.live.page.bridge import BridgePage
from stream_metrics.live.prometheus.bridge import BridgeMetrics, outcome_of

REFUSAL_LOG_INTERVAL_SECONDS: Final = 60.0  # per agent and reason
LOGGED_ONCE: Final = frozenset({"two_scopes", "left_out"})  # per service; only a setting ends them
MAX_LOGGED: Final = 10_000
FORGOTTEN: Final = (
    f"more than the latest {MAX_REMEMBERED:,} searches of a service came within "
    f"{SOON_NS // (60 * 10**9)} minutes: one that two instrumentations record counts twice if its "
    "second trace comes later than that; name the scope to use in otlp.scopes"
)

log = structlog.get_logger(__name__)


class LoggedBridgeMetrics(BridgeMetrics):
    """The metrics, and log lines about refusals: one a minute for each agent and reason, and a
    single one for each service whose scopes have to be chosen, and each agent whose ids name pages
    or that follows another in a trace.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        page: BridgePage,
        topics: Iterable[str],
        agents: Iterable[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(registry, topics, agents)
        self._page, self._clock = page, clock
        self._forgot = False
        self._of_pages: set[str] = set()  # agents
        self._following: set[str] = set()
        self._logged: dict[tuple[str, str], float] = {}  # when a line may be written again

    def trace_closed(self, interpreted: InterpretedTrace) -> None:
        """Count a closed trace, show it on the page, and log its refusals."""
        super().trace_closed(interpreted)
        interpretation = interpreted.interpretation
        agent = self.agent_label(agent_of(interpretation))
        self._page.trace_closed(agent, outcome_of(interpreted))
        if interpreted.forgotten and not self._forgot:
            self._forgot = True
            log.warning("searches forgotten", why=FORGOTTEN)
        for turn in interpretation.turns:
            if turn.page_ids:
                self._log_page_ids(turn.agent, turn.page_ids)
        if interpretation.following:
            self._log_following(agent_of(interpretation))

    def read(self, spans: int, late: int) -> None:
        """Count spans read, and late ones among them, for the page, too."""
        super().read(spans, late)
        self._page.recent.spans(spans, late)

    def refused(self, interpretation: Interpretation) -> None:
        """Count refusals, show them on the page, and log them."""
        super().refused(interpretation)
        self._page.refused(interpretation, self.agent_label, datetime.now(UTC))
        now = self._clock()
        for one in interpretation.refusals:
            once = one.reason in LOGGED_ONCE
            who = (one.service or "") if once else self.agent_label(one.agent)
            if now >= self._logged.get((who, one.reason), -math.inf):
                if len(self._logged) >= MAX_LOGGED:
                    del self._logged[next(iter(self._logged))]
                again = math.inf if once else now + REFUSAL_LOG_INTERVAL_SECONDS
                self._logged[who, one.reason] = again
                log.warning(
                    "refused",
                    agent=one.agent,
                    service=one.service,
                    reason=one.reason,
                    trace_id=one.trace_id,
                    span_id=one.span_id,
                    why=one.message,
                    help=f"{HELP[one.reason]}; {EXPLAINED}",
                )

    def _log_following(self, agent: str | None) -> None:
        label = self.agent_label(agent)
        if label not in self._following:
            self._following.add(label)
            log.warning("agents follow one another in a trace", agent=agent, why=FOLLOWING)

    def _log_page_ids(self, agent: str | None, names: tuple[str, ...]) -> None:
        label = self.agent_label(agent)
        if label not in self._of_pages:
            self._of_pages.add(label)
            log.warning("ids name pages", agent=agent, why=page_ids_message(agent, names))
