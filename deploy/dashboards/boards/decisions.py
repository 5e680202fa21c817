"""Gating and routing: whether searches are made when they are needed, and where they go."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.queries import AGENT
from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import share, window

DECISION_WINDOWS: Final = ("1h", "5m", "24h")


def _gate(**matchers: str) -> str:
    return window("gate_decisions", "agent", **matchers)


def _routes(by: str, **matchers: str) -> str:
    return window("routed_searches", by, **matchers)


_ANSWERED: Final = "~yes|no"

DECISIONS = Board(
    "stream-metrics-decisions",
    "stream-metrics / Gating and routing",
    "Whether the gate searches when it should, and which routes searches take.",
    [
        Row(
            "Gate, by agent",
            [
                Panel(
                    "Skip rate", "Share of gate decisions that skip the search.",
                    [Query(share(_gate(decision="skip"), _gate()), AGENT)], "percentunit",
                    maximum=1,
                ),
                Panel(
                    "Missed searches",
                    "Share of labelled decisions that skipped a search that was needed.",
                    [Query(
                        share(_gate(decision="skip", needed="yes"), _gate(needed=_ANSWERED)), AGENT
                    )],
                    "percentunit", maximum=1,
                ),
                Panel(
                    "Unneeded searches",
                    "Share of labelled decisions that searched when no search was needed.",
                    [Query(
                        share(_gate(decision="search", needed="no"), _gate(needed=_ANSWERED)), AGENT
                    )],
                    "percentunit", maximum=1,
                ),
                Panel(
                    "Gate efficiency",
                    "Share of labelled decisions that correctly skipped a search.",
                    [Query(
                        share(_gate(decision="skip", needed="no"), _gate(needed=_ANSWERED)), AGENT
                    )],
                    "percentunit", width=12, maximum=1,
                ),
                Panel(
                    "Gate decisions",
                    "Decisions to search or skip, by whether a search was needed.",
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
                    "Routing rate by route", "Share of routed searches that took each route.",
                    [Query(
                        f"{_routes('route')} / on() group_left() ({_routes('')} > 0)", "{{route}}"
                    )],
                    "percentunit", maximum=1, stacked=True,
                ),
                Panel(
                    "Routing accuracy by agent",
                    "Share of labelled, routed searches that took the best route.",
                    [Query(
                        share(_routes("agent", correct="yes"), _routes("agent", correct=_ANSWERED)),
                        AGENT,
                    )],
                    "percentunit", maximum=1,
                ),
                Panel(
                    "Routing accuracy by route",
                    "Share of labelled searches on each route for which it was the best route.",
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
