"""Gating and routing: whether searches are made when they are needed, and where they go."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.common import AGENT
from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import share, window
from stream_metrics.adapters.page.thresholds import MISSED

DECISION_WINDOWS: Final = ("1h", "5m", "24h")


def _gate(**matchers: str) -> str:
    return window("gate_decisions", "agent", **matchers)


def _routes(by: str, **matchers: str) -> str:
    return window("routed_searches", by, **matchers)


_ANSWERED: Final = "~yes|no"

DECISIONS = Board(
    "stream-metrics-decisions",
    "stream-metrics / Gating and routing",
    "Whether searches are made when they are needed, and where they go.",
    [
        Row(
            "Gate, by agent",
            [
                Panel(
                    "Skip rate", "Share of the gate's decisions that skip the search.",
                    [Query(share(_gate(decision="skip"), _gate()), AGENT)], "percentunit",
                    maximum=1,
                ),
                Panel(
                    "Missed searches",
                    "Share of the labelled decisions in which the gate skipped a search that was "
                    "needed.",
                    [Query(
                        share(_gate(decision="skip", needed="yes"), _gate(needed=_ANSWERED)), AGENT
                    )],
                    "percentunit", thresholds=(MISSED["5m"],), maximum=1,
                ),
                Panel(
                    "Needless searches",
                    "Share of the labelled decisions in which the gate searched without need.",
                    [Query(
                        share(_gate(decision="search", needed="no"), _gate(needed=_ANSWERED)), AGENT
                    )],
                    "percentunit", maximum=1,
                ),
                Panel(
                    "Gate efficiency",
                    "Share of the labelled decisions that skip a search which is not needed.",
                    [Query(
                        share(_gate(decision="skip", needed="no"), _gate(needed=_ANSWERED)), AGENT
                    )],
                    "percentunit", width=12, maximum=1,
                ),
                Panel(
                    "Gate decisions", "Decisions, by what they say and what was needed.",
                    [Query(
                        window("gate_decisions", "decision, needed"),
                        "{{decision}}, needed: {{needed}}",
                    )],
                    "short", width=12, stacked=True,
                ),
            ],
        ),
        Row(
            "Routes",
            [
                Panel(
                    "Routing rate by route", "Share of the routed searches that took the route.",
                    [Query(
                        f"{_routes('route')} / on() group_left() ({_routes('')} > 0)", "{{route}}"
                    )],
                    "percentunit", maximum=1, stacked=True,
                ),
                Panel(
                    "Routing accuracy by agent",
                    "Share of the labelled routed searches that took the best route.",
                    [Query(
                        share(_routes("agent", correct="yes"), _routes("agent", correct=_ANSWERED)),
                        AGENT,
                    )],
                    "percentunit", maximum=1,
                ),
                Panel(
                    "Routing accuracy by route",
                    "Share of the labelled searches of the route for which it was the best.",
                    [Query(
                        share(_routes("route", correct="yes"), _routes("route", correct=_ANSWERED)),
                        "{{route}}",
                    )],
                    "percentunit", maximum=1,
                ),
            ],
        ),
    ],
    DECISION_WINDOWS,
)  # fmt: skip
