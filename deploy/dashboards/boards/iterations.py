"""Iterations: which one stops paying, and how many are needed."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.common import AGENT, turn_mean
from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import ratio, window

CURVE_WINDOWS: Final = ("1h", "24h")


def _by_iteration(name: str) -> str:
    return window(f"iteration_{name}", "iteration")


_SRR_BY_ITERATION: Final = Query(
    ratio(_by_iteration("duplicate_results"), _by_iteration("results")), "iteration {{iteration}}"
)
_LAST_GOOD: Final = "iterations_for_all_good_results_"

ITERATIONS = Board(
    "stream-metrics-iterations",
    "stream-metrics / Iterations",
    "Which iteration stops paying, and how many are needed.",
    [
        Row(
            "By number of the iteration",
            [
                Panel(
                    "SRR by iteration",
                    "Share of the results of the first, second, … iteration of turns that the turn "
                    "had seen before.",
                    [_SRR_BY_ITERATION],
                    "percentunit", "bargauge", 12, 9, maximum=1,
                ),
                Panel(
                    "Gain a result by iteration",
                    "Gain of good documents first found by the first, second, … iteration, by its "
                    "results. Where it falls to nothing, further iterations do not pay.",
                    [Query(
                        ratio(_by_iteration("gain"), _by_iteration("results")),
                        "iteration {{iteration}}",
                    )],
                    "short", "bargauge", 12, 9, decimals=3,
                ),
                Panel(
                    "SRR by iteration over time", "As above, over time.",
                    [_SRR_BY_ITERATION],
                    "percentunit", width=12,
                ),
                Panel(
                    "Gain by iteration over time",
                    "Gain of good documents, by the iteration that first found them.",
                    [Query(_by_iteration("gain"), "iteration {{iteration}}")],
                    "short", width=12, stacked=True,
                ),
                Panel(
                    "Results by iteration", "Results, by the iteration that returned them.",
                    [Query(_by_iteration("results"), "iteration {{iteration}}")],
                    "short", width=24, stacked=True,
                ),
            ],
        ),
        Row(
            "Turns, by agent",
            [
                Panel(
                    "Iterations a turn", "Iterations that searched, by turns that searched.",
                    [Query(ratio(window("iterations", "agent"), window("turns", "agent")), AGENT)],
                    "short", decimals=2,
                ),
                Panel(
                    "Iterations to all good results (known by qrels)",
                    "Mean number of the iteration by which a turn had found every good document "
                    "that its qrels name; turns that found them all.",
                    [turn_mean(_LAST_GOOD + "qrels", "$window")], "short", decimals=2,
                ),
                Panel(
                    "Iterations to all good results (of those found)",
                    "Mean number of the iteration that brought a turn's last good document.",
                    [turn_mean(_LAST_GOOD + "retrieved", "$window")], "short", decimals=2,
                ),
                Panel(
                    "RG", "Good gain an iteration; mean over turns.",
                    [turn_mean("rg", "$window")], "short", width=12,
                ),
                Panel(
                    "DRG", "As RG, an iteration worth less the later it comes; mean over turns.",
                    [turn_mean("drg", "$window")], "short", width=12,
                ),
            ],
        ),
    ],
    CURVE_WINDOWS,
)  # fmt: skip
