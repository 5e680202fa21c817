"""Retrieval quality: how much of what agents find is new, and how much is good."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.estimates import ESTIMATES
from deploy.dashboards.boards.queries import AGENT, turn_mean
from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import ratio, select, where_known, window
from stream_metrics.core.alerts.evidence import LEVEL
from stream_metrics.core.alerts.thresholds import LAG_SECONDS, RERANKING
from stream_metrics.core.metrics.registry import WINDOWED, Metric, metrics_at

ALL_WINDOWS: Final = ("5m", "1m", "30m", "1h", "6h", "24h")
METRIC: Final = "{{metric}}"
TURNS_LENGTH: Final = "1h"  # sums over turns are not kept for every window


def _window_ratio(numerator: str, denominator: str, by: str = "") -> str:
    """A ratio of window sums; of settled iterations only where anything has a label.

    Iterations that only repeat are settled without any label, and would show as 0.
    """
    query = ratio(window(numerator, by), window(denominator, by))
    if not denominator.startswith("settled_"):
        return query
    return f"{query} and {window('labelled_results', by)} > 0"


def _by_agent(
    title: str, description: str, numerator: str, denominator: str, **more: object
) -> Panel:
    """A ratio of window sums, a line for each agent."""
    query = Query(_window_ratio(numerator, denominator, "agent"), AGENT)
    return Panel(title, description, [query], **{"unit": "percentunit", **more})  # type: ignore[arg-type]


def _overall(
    title: str, description: str, numerator: str, denominator: str, **more: object
) -> Panel:
    """The same ratio over all chosen agents, as one number."""
    query = Query(_window_ratio(numerator, denominator))
    settings = {"unit": "percentunit", "kind": "stat", "width": 4, "height": 4, **more}
    return Panel(title, description, [query], **settings)  # type: ignore[arg-type]


def _search_mean(by: str, legend: str, metrics: str) -> Query:
    """A ranked metric's mean over searches of the last hour; sums are in billionths."""
    mean = ratio(
        window("retrieval_sum", by, TURNS_LENGTH, metric=metrics) + " / 1e9",
        window("retrieval_count", by, TURNS_LENGTH, metric=metrics),
    )
    return Query(mean, legend)


def _of_turns(metric: Metric) -> Panel:
    """A metric at the end of turns, as the registry describes it."""
    unit = "percentunit" if metric.unit == "1" else "short"
    description = f"{metric.help} Mean over turns of the last hour, all with the same weight."
    mean = turn_mean(metric.name, TURNS_LENGTH)
    return Panel(f"{metric.title} of a turn", description, [mean], unit, width=8)


def _of_loops(metric: Metric) -> Panel:
    """A count of loops as a share, as the registry describes it."""
    assert metric.series is not None
    above, below = (window(name, "agent", TURNS_LENGTH) for name in metric.series)
    description = (
        f"{metric.help} As a share, over the last hour. Empty while the state was built under "
        "dedup.tables 1 or 2."
    )
    return Panel(
        metric.title, description, [Query(ratio(above, below), AGENT)], "percentunit", width=12
    )


SRR = "Share of results whose document the turn had already returned (search result redundancy)."
SRE = (
    "Share of results in settled iterations that are new and good (search result efficiency). An "
    "iteration is settled when at least 90% of its documents have a label."
)
GAIN = "Average gain of good documents per settled iteration."
JUDGED = "Share of retrieved documents that have a label. SRE and gain depend on these labels."

QUALITY = Board(
    "stream-metrics-quality",
    "stream-metrics / Retrieval quality",
    "How much of what agents find is new, and how much is good.",
    [
        Row(
            "Now, over the selected agents",
            [
                _overall(
                    "SRR", SRR, "duplicate_results", "results", maximum=1,
                ),
                _overall("SRE", SRE, "settled_good_results", "settled_results", maximum=1),
                _overall(
                    "Gain per iteration", GAIN, "settled_gain", "settled_iterations",
                    unit="short", decimals=2,
                ),
                _overall("Judged share", JUDGED, "labelled_results", "unique_results", maximum=1),
                Panel(
                    "Results", "Results returned in the window.",
                    [Query(window("results"))], "short", "stat", 4, 4, decimals=0,
                ),
                Panel(
                    "Input delay",
                    "How far the workers are behind the current time. A shorter window is empty "
                    "because its events have not been read yet. Empty while a worker does not "
                    "know.",
                    [Query(where_known(
                        "time() - min("
                        + select("streammetrics_complete_until_timestamp_seconds") + ")"
                    ))],
                    "s", "stat", 4, 4, thresholds=(LAG_SECONDS,),
                ),
            ],
        ),
        Row(
            "By agent",
            [
                _by_agent(
                    "SRR by agent", SRR, "duplicate_results", "results", width=12,
                ),
                _by_agent(
                    "SRE by agent", SRE, "settled_good_results", "settled_results", width=12,
                ),
                _by_agent(
                    "Gain per iteration by agent", GAIN, "settled_gain", "settled_iterations",
                    unit="short", width=12,
                ),
                _by_agent(
                    "Judged share by agent", JUDGED, "labelled_results", "unique_results",
                    width=12,
                ),
                Panel(
                    "Results by agent", "Results returned in the window.",
                    [Query(window("results", "agent"), AGENT)], "short", width=12, stacked=True,
                ),
                Panel(
                    "Good documents by agent", "Good documents retrieved in the window.",
                    [Query(window("good_results", "agent"), AGENT)], "short", width=8,
                    stacked=True,
                ),
                Panel(
                    "Searches by agent", "Searches in the window.",
                    [Query(window("searches", "agent"), AGENT)], "short", width=8, stacked=True,
                ),
                Panel(
                    "Gain by agent", "Gain of good documents retrieved in the window.",
                    [Query(window("gain", "agent"), AGENT)], "short", width=8, stacked=True,
                ),
                Panel(
                    "Settled share",
                    "Share of iterations with labels for at least 90% of their documents. If it is "
                    "low, SRE and gain describe only a few iterations.",
                    [Query(
                        ratio(window("settled_iterations", "agent"), window("iterations", "agent")),
                        AGENT,
                    )],
                    "percentunit", width=12,
                ),
            ],
        ),
        ESTIMATES,
        Row(
            "What alerts look at",
            [
                Panel(
                    "Evidence of shifts",
                    "Evidence that a figure of an agent has shifted against its last day, in units "
                    "of the threshold: alerts fire above 1, and it is 2 at most. Needs a few hours "
                    "of traffic.",
                    [Query(
                        f"max by (agent, figure) ({select(LEVEL, agent='~$agent')})",
                        "{{agent}}: {{figure}}",
                    )],
                    "short", width=24, thresholds=(1.0,), decimals=2,
                ),
            ],
        ),
        Row(
            "Whole turns of the last hour, by agent",
            [_of_turns(metric) for metric in WINDOWED if not metric.bases],
        ),
        Row(
            "Loops, last hour, by agent",
            [
                *(_of_loops(metric) for metric in metrics_at("count")),
                Panel(
                    "Turns that run away",
                    "Iterations of the longest turn that has alerts.runaway_iterations or more "
                    "and goes on; 0 without one.",
                    [Query(
                        "max by (agent) ("
                        + select("streammetrics_runaway_turn_iterations", agent="~$agent")
                        + ")",
                        AGENT,
                    )],
                    "short", width=24, decimals=0,
                ),
            ],
        ),
        Row(
            "Order of results, last hour, by agent",
            [
                Panel(
                    "NDCG of the order shown",
                    "Mean NDCG of the order shown, over searches of the last hour that also have "
                    "the order before reranking.",
                    [Query(
                        ratio(
                            window("rerank_ndcg_sum", "agent", TURNS_LENGTH, order="shown")
                            + " / 1e9",
                            window("rerank_ndcg_count", "agent", TURNS_LENGTH),
                        ),
                        AGENT,
                    )],
                    "percentunit", width=12, maximum=1,
                ),
                Panel(
                    "NDCG shown / NDCG before reranking",
                    "Below 1, reranking makes the order worse.",
                    [Query(
                        ratio(
                            window("rerank_ndcg_sum", "agent", TURNS_LENGTH, order="shown"),
                            window("rerank_ndcg_sum", "agent", TURNS_LENGTH, order="baseline"),
                        ),
                        AGENT,
                    )],
                    "none", width=12, thresholds=(RERANKING,), low=True, decimals=3,
                    minimum=None,
                ),
            ],
        ),
        Row(
            "Ranked retrieval, last hour (metrics.retrieval)",
            [
                Panel(
                    "NDCG",
                    "Mean over searches of the last hour with labels or ground truth. Empty unless "
                    "metrics.retrieval includes an NDCG.",
                    [_search_mean("agent, metric", f"{AGENT} {METRIC}", "~ndcg.*")],
                    "percentunit", width=12, maximum=1,
                ),
                Panel(
                    "Ranked metrics",
                    "Mean over searches of the last hour with labels or ground truth, for each "
                    "metric in metrics.retrieval.",
                    [_search_mean("metric", METRIC, "~.+")],
                    "none", width=12, decimals=3, minimum=None,
                ),
            ],
        ),
    ],
    ALL_WINDOWS,
)  # fmt: skip
