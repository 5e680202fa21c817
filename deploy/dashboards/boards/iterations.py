"""Iterations: which one stops paying, and how many are needed."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.queries import AGENT, turn_mean
from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import ratio, window
from stream_metrics.core.metrics.registry import BY_NAME
from stream_metrics.core.metrics.registry import ITERATIONS as ALL_GOOD

CURVE_WINDOWS: Final = ("1h", "24h")


def _by_iteration(name: str) -> str:
    return window(f"iteration_{name}", "iteration")


_SRR_BY_ITERATION: Final = Query(
    ratio(_by_iteration("duplicate_results"), _by_iteration("results")), "iteration {{iteration}}"
)
_LAST_GOOD: Final = BY_NAME[ALL_GOOD]

ITERATIONS = Board(
    "stream-metrics-iterations",
    "stream-metrics / Iterations",
    "Up to which iteration searching pays off, and how many a turn needs.",
    [
        Row(
            "By iteration number",
            [
                Panel(
                    "SRR by iteration",
                    "Share of results of the first, second, … iteration whose document the turn "
                    "had already returned.",
                    [_SRR_BY_ITERATION],
                    "percentunit", "bargauge", 12, 9, maximum=1,
                ),
                Panel(
                    "Gain per result by iteration",
                    "Gain of good documents first found in the first, second, … iteration, divided "
                    "by its results. Near zero, more iterations do not pay off.",
                    [Query(
                        ratio(_by_iteration("gain"), _by_iteration("results")),
                        "iteration {{iteration}}",
                    )],
                    "short", "bargauge", 12, 9, decimals=3,
                ),
                Panel(
                    "SRR by iteration over time",
                    "SRR of the first, second, … iteration over time.",
                    [_SRR_BY_ITERATION],
                    "percentunit", width=12,
                ),
                Panel(
                    "Gain by iteration over time",
                    "Gain of good documents by the iteration that first found them.",
                    [Query(_by_iteration("gain"), "iteration {{iteration}}")],
                    "short", width=12, stacked=True,
                ),
                Panel(
                    "Results by iteration", "Results by the iteration that returned them.",
                    [Query(_by_iteration("results"), "iteration {{iteration}}")],
                    "short", width=24, stacked=True,
                ),
            ],
        ),
        Row(
            "Turns, by agent",
            [
                Panel(
                    "Iterations per turn",
                    "Iterations with a search, divided by turns with a search.",
                    [Query(ratio(window("iterations", "agent"), window("turns", "agent")), AGENT)],
                    "short", decimals=2,
                ),
                Panel(
                    "Iterations for all good results (in qrels)",
                    "Mean number of iterations until a turn had found all good documents in its "
                    "qrels, over turns that found them all.",
                    [turn_mean(_LAST_GOOD.label("qrels"), "$window")], "short", decimals=2,
                ),
                Panel(
                    "Iterations for all good results (retrieved)",
                    "Mean number of iterations until a turn's last good document.",
                    [turn_mean(_LAST_GOOD.label("retrieved"), "$window")], "short", decimals=2,
                ),
            ],
        ),
    ],
    CURVE_WINDOWS,
)  # fmt: skip
