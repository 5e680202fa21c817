"""Deduplication: where redundancy comes from, and how duplicates are found."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.queries import AGENT
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
                    "By evidence", "Duplicate results by the evidence that identified them.",
                    [Query(window("duplicates", "evidence"), "{{evidence}}")],
                    "short", stacked=True,
                ),
                Panel(
                    "By first occurrence",
                    "Whether the document was first returned in the same iteration (overlapping "
                    "queries or indexes) or in an earlier one (the agent repeats itself).",
                    [Query(window("duplicates", "span"), "{{span}}")], "short", stacked=True,
                ),
                Panel(
                    "By entity type", "Duplicate results by entity type.",
                    [Query(window("duplicates", "entity_type"), "{{entity_type}}")],
                    "short", stacked=True,
                ),
                Panel(
                    "Share from earlier iterations, by agent",
                    "Share of duplicates whose document an earlier iteration had returned.",
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
                    "Pairs of results per second that share a candidate key, by kind of key.",
                    [Query(rate("streammetrics_dedup_candidates_total", "key"), "{{key}}")], "ops",
                ),
                Panel(
                    "Verdicts by step",
                    "Pairs compared per second, by deciding step and verdict.",
                    [Query(
                        rate("streammetrics_dedup_verdicts_total", "step, verdict"),
                        "{{step}}: {{verdict}}",
                    )],
                    "ops",
                ),
                Panel(
                    "Verdicts by entity type",
                    "Pairs compared per second, by entity type and verdict.",
                    [Query(
                        rate("streammetrics_dedup_verdicts_total", "entity_type, verdict"),
                        "{{entity_type}}: {{verdict}}",
                    )],
                    "ops",
                ),
                Panel(
                    "Anomalies",
                    "Per second: results with too many candidates to compare all, documents of "
                    "which a result matched one member and contradicted another, duplicates whose "
                    "texts differ, and invalid URLs.",
                    [
                        Query(rate("streammetrics_dedup_truncated_total"), "too many candidates"),
                        Query(rate("streammetrics_dedup_contradictions_total"), "contradictions"),
                        Query(
                            rate("streammetrics_same_document_other_text_total"), "text differs"
                        ),
                        Query(rate("streammetrics_urls_unparsed_total"), "invalid URL"),
                    ],
                    "ops", width=24,
                ),
            ],
        ),
    ],
    ORIGIN_WINDOWS,
)  # fmt: skip
