"""Retrieval quality: how much of what agents find is new, and how much is good."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.common import AGENT, turn_mean
from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import ratio, select, window
from stream_metrics.adapters.page.thresholds import (
    LAG_SECONDS,
    RERANKING,
    SRR_CRITICAL,
    SRR_WARNING,
)

ALL_WINDOWS: Final = ("5m", "1m", "30m", "1h", "6h", "24h")
METRIC: Final = "{{metric}}"
TURNS_LENGTH: Final = "1h"  # sums over turns are not kept for every window


def _by_agent(
    title: str, description: str, numerator: str, denominator: str, **more: object
) -> Panel:
    """A ratio of window sums, a line for each agent."""
    query = ratio(window(numerator, "agent"), window(denominator, "agent"))
    return Panel(title, description, [Query(query, AGENT)], **{"unit": "percentunit", **more})  # type: ignore[arg-type]


def _overall(
    title: str, description: str, numerator: str, denominator: str, **more: object
) -> Panel:
    """The same ratio over all chosen agents, as one number."""
    query = Query(ratio(window(numerator), window(denominator)))
    settings = {"unit": "percentunit", "kind": "stat", "width": 4, "height": 4, **more}
    return Panel(title, description, [query], **settings)  # type: ignore[arg-type]


def _search_mean(by: str, legend: str, metrics: str) -> Query:
    """A ranked metric's mean over searches of the last hour; sums are in billionths."""
    mean = ratio(
        window("retrieval_sum", by, TURNS_LENGTH, metric=metrics) + " / 1e9",
        window("retrieval_count", by, TURNS_LENGTH, metric=metrics),
    )
    return Query(mean, legend)


def _macro(metric: str, title: str, description: str, unit: str = "short") -> Panel:
    return Panel(title, description, [turn_mean(metric, TURNS_LENGTH)], unit, width=6)


SRR = "Share of the results whose document the turn had seen before (search result redundancy)."
SRE = (
    "Share of the results of settled iterations that are good and new (search result efficiency). "
    "An iteration is settled when at least 90% of its documents have a label."
)
GAIN = "Gain of good documents that an iteration brings on average; settled iterations only."
JUDGED = "Share of the documents found that have a label. SRE and gain rest on these."

QUALITY = Board(
    "stream-metrics-quality",
    "stream-metrics / Retrieval quality",
    "How much of what agents find is new, and how much is good.",
    [
        Row(
            "Now, over the chosen agents",
            [
                _overall(
                    "SRR", SRR, "duplicate_results", "results",
                    thresholds=(SRR_WARNING, SRR_CRITICAL), maximum=1,
                ),
                _overall("SRE", SRE, "settled_good_results", "settled_results", maximum=1),
                _overall(
                    "Gain an iteration", GAIN, "settled_gain", "settled_iterations",
                    unit="short", decimals=2,
                ),
                _overall("Judged share", JUDGED, "labelled_results", "unique_results", maximum=1),
                Panel(
                    "Results", "Results that searches returned in the window.",
                    [Query(window("results"))], "short", "stat", 4, 4, decimals=0,
                ),
                Panel(
                    "Input read up to",
                    "How far behind now the workers have read. A window shorter than this is not "
                    "silent: its events are not read yet.",
                    [Query(
                        "time() - min("
                        + select("streammetrics_complete_until_timestamp_seconds") + " > 0)"
                    )],
                    "s", "stat", 4, 4, thresholds=(LAG_SECONDS,),
                ),
            ],
        ),
        Row(
            "By agent",
            [
                _by_agent(
                    "SRR by agent", SRR, "duplicate_results", "results", width=12,
                    thresholds=(SRR_WARNING, SRR_CRITICAL),
                ),
                _by_agent(
                    "SRE by agent", SRE, "settled_good_results", "settled_results", width=12,
                ),
                _by_agent(
                    "Gain an iteration by agent", GAIN, "settled_gain", "settled_iterations",
                    unit="short", width=12,
                ),
                _by_agent(
                    "Judged share by agent", JUDGED, "labelled_results", "unique_results",
                    width=12,
                ),
                Panel(
                    "Results by agent", "Results that searches returned in the window.",
                    [Query(window("results", "agent"), AGENT)], "short", width=12, stacked=True,
                ),
                Panel(
                    "Good documents by agent", "Documents found whose label is good.",
                    [Query(window("good_results", "agent"), AGENT)], "short", width=8,
                    stacked=True,
                ),
                Panel(
                    "Searches by agent", "Searches made in the window.",
                    [Query(window("searches", "agent"), AGENT)], "short", width=8, stacked=True,
                ),
                Panel(
                    "Gain by agent", "Gain of the good documents found in the window.",
                    [Query(window("gain", "agent"), AGENT)], "short", width=8, stacked=True,
                ),
                Panel(
                    "Settled share",
                    "Share of the iterations whose documents are labelled but for few. Where it is "
                    "low, SRE and gain speak of few iterations.",
                    [Query(
                        ratio(window("settled_iterations", "agent"), window("iterations", "agent")),
                        AGENT,
                    )],
                    "percentunit", width=12,
                ),
            ],
        ),
        Row(
            "Whole turns of the last hour, by agent",
            [
                _macro(
                    "srr", "SRR of a turn",
                    "Mean over the turns of the last hour: a long turn weighs no more than a short "
                    "one.", "percentunit",
                ),
                _macro(
                    "sre", "SRE of a turn",
                    "Mean over the turns of the last hour: a long turn weighs no more than a short "
                    "one.", "percentunit",
                ),
                _macro(
                    "rag", "RAG",
                    "Mean over iterations of good gain a result; mean over the turns of the last "
                    "hour.",
                ),
                _macro("drag", "DRAG", "As RAG, an iteration worth less the later it comes."),
            ],
        ),
        Row(
            "Order of results, last hour, by agent",
            [
                Panel(
                    "NDCG of the order shown",
                    "Mean NDCG of the order shown, over the searches of the last hour whose order "
                    "before reranking is known.",
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
                    "NDCG shown by NDCG before reranking",
                    "Below 1 the reranker makes the order worse.",
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
                    "Mean over the searches of the last hour that labels or a ground truth judge. "
                    "Empty unless the settings name an NDCG.",
                    [_search_mean("agent, metric", f"{AGENT} {METRIC}", "~ndcg.*")],
                    "percentunit", width=12, maximum=1,
                ),
                Panel(
                    "Ranked metrics",
                    "Mean over the judged searches of the last hour, for each metric that the "
                    "settings name; over the chosen agents.",
                    [_search_mean("metric", METRIC, "~.+")],
                    "none", width=12, decimals=3, minimum=None,
                ),
            ],
        ),
    ],
    ALL_WINDOWS,
)  # fmt: skip
