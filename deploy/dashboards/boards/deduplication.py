"""Deduplication: where redundancy comes from, and how duplicates are found."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.common import AGENT
from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import rate, share, window

ORIGIN_WINDOWS: Final = ("1h", "5m")

DEDUPLICATION = Board(
    "stream-metrics-deduplication",
    "stream-metrics / Deduplication",
    "Where redundancy comes from, and how duplicates are found.",
    [
        Row(
            "Duplicates in the window",
            [
                Panel(
                    "By evidence", "Duplicate results, by what proves them.",
                    [Query(window("duplicates", "evidence"), "{{evidence}}")],
                    "short", stacked=True,
                ),
                Panel(
                    "By where the document was seen first",
                    "In the same iteration (overlapping queries or indexes), or in an earlier one "
                    "(the agent asks again).",
                    [Query(window("duplicates", "span"), "{{span}}")], "short", stacked=True,
                ),
                Panel(
                    "By type of entity", "Duplicate results, by the type of what was found.",
                    [Query(window("duplicates", "entity_type"), "{{entity_type}}")],
                    "short", stacked=True,
                ),
                Panel(
                    "Share found earlier, by agent",
                    "Share of the duplicates whose document an earlier iteration had found.",
                    [Query(
                        share(
                            window("duplicates", "agent", span="earlier_iteration"),
                            window("duplicates", "agent"),
                        ),
                        AGENT,
                    )],
                    "percentunit", width=24, maximum=1,
                ),
            ],
        ),
        Row(
            "Candidates and verdicts",
            [
                Panel(
                    "Candidates by key",
                    "Pairs of results a second that share a candidate key, by its kind.",
                    [Query(rate("streammetrics_dedup_candidates_total", "key"), "{{key}}")], "ops",
                ),
                Panel(
                    "Verdicts by step",
                    "Pairs compared a second, by the step that decided and what it said.",
                    [Query(
                        rate("streammetrics_dedup_verdicts_total", "step, verdict"),
                        "{{step}}: {{verdict}}",
                    )],
                    "ops",
                ),
                Panel(
                    "Verdicts by type of entity", "Pairs compared a second.",
                    [Query(
                        rate("streammetrics_dedup_verdicts_total", "entity_type, verdict"),
                        "{{entity_type}}: {{verdict}}",
                    )],
                    "ops",
                ),
                Panel(
                    "What looks wrong",
                    "A second: results with more candidates than are compared, documents matched "
                    "in one member and contradicted in another, duplicates whose text differs, and "
                    "URLs that could not be parsed.",
                    [
                        Query(rate("streammetrics_dedup_truncated_total"), "too many candidates"),
                        Query(rate("streammetrics_dedup_contradictions_total"), "contradictions"),
                        Query(
                            rate("streammetrics_same_document_other_text_total"), "text differs"
                        ),
                        Query(rate("streammetrics_urls_unparsed_total"), "URL not parsed"),
                    ],
                    "ops", width=24,
                ),
            ],
        ),
    ],
    ORIGIN_WINDOWS,
)  # fmt: skip
