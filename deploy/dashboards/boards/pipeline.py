"""Pipeline health: whether workers keep up, what they wait for, what they reject."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import quantile, rate, select, total, where_known
from stream_metrics.core.alerts.thresholds import DEAD_LETTER_SHARE, LAG_SECONDS, MEMORY_SHARE

_LAG: Final = "streammetrics_consumer_lag_seconds"

PIPELINE = Board(
    "stream-metrics-pipeline",
    "stream-metrics / Pipeline health",
    "Whether workers keep up, what they wait for, and what they reject.",
    [
        Row(
            "Now",
            [
                Panel(
                    "Workers ready", "Workers that are reading and writing.",
                    [Query(total("streammetrics_ready"))], "short", "stat", 4, 4, decimals=0,
                ),
                Panel(
                    "Oldest unread record",
                    "Age of the oldest unread record. Empty while a worker does not know.",
                    [Query(where_known(f"max({select(_LAG)})"))], "s", "stat", 4, 4,
                    thresholds=(LAG_SECONDS,),
                ),
                Panel(
                    "Partitions owned", "State partitions owned by a worker.",
                    [Query(total("streammetrics_assigned_partitions"))], "short", "stat", 4, 4,
                    decimals=0,
                ),
                Panel(
                    "Partitions halted", "State partitions that are halted.",
                    [Query(total("streammetrics_halted_partitions"))], "short", "stat", 4, 4,
                    thresholds=(1,), decimals=0,
                ),
                Panel(
                    "Redis memory", "Share of Redis's memory limit in use. Empty without a limit.",
                    [Query(
                        f"max({select('streammetrics_redis_memory_bytes')} / "
                        f"({select('streammetrics_redis_memory_limit_bytes')} > 0))"
                    )],
                    "percentunit", "stat", 4, 4, thresholds=(MEMORY_SHARE,), maximum=1,
                ),
                Panel(
                    "Versions", "Running releases.",
                    [Query(
                        f"count by (version) ({select('streammetrics_build_info')})", "{{version}}"
                    )],
                    "short", "stat", 4, 4, decimals=0,
                ),
            ],
        ),
        Row(
            "Input",
            [
                Panel(
                    "Events", "Valid events read per second, by type.",
                    [Query(rate("streammetrics_events_total", "type"), "{{type}}")], "ops",
                ),
                Panel(
                    "Event outcomes",
                    "Valid events per second, by outcome: applied, or why they change nothing.",
                    [Query(rate("streammetrics_events_total", "outcome"), "{{outcome}}")], "ops",
                ),
                Panel(
                    "Dead letters", "Share of records rejected as dead letters.",
                    [Query(
                        f"{rate('streammetrics_dead_letters_total')} / "
                        f"({rate('streammetrics_dead_letters_total')} + "
                        f"{rate('streammetrics_events_total')} > 0)",
                        "share",
                    )],
                    "percentunit", thresholds=(DEAD_LETTER_SHARE,),
                ),
                Panel(
                    "Dead letters by reason", "Dead letters per second, by reason.",
                    [Query(rate("streammetrics_dead_letters_total", "reason"), "{{reason}}")],
                    "ops",
                ),
                Panel(
                    "Lag in records",
                    "Unread records of each partition. A gap means that Kafka did not tell.",
                    [Query(
                        "max by (topic, partition) ("
                        + select("streammetrics_consumer_lag_records") + ")",
                        "{{topic}} {{partition}}",
                    )],
                    "short",
                ),
                Panel(
                    "Lag in seconds",
                    "Age of the next record to read. A gap means that Kafka did not tell.",
                    [Query(
                        f"max by (topic, partition) ({select(_LAG)})", "{{topic}} {{partition}}"
                    )],
                    "s", thresholds=(LAG_SECONDS,),
                ),
                Panel(
                    "Event-to-metric latency",
                    "Time from a record's timestamp until the windows include it.",
                    [
                        Query(
                            quantile(q, "streammetrics_event_to_metric_latency_seconds"), f"p{name}"
                        )
                        for q, name in ((0.5, 50), (0.95, 95), (0.99, 99))
                    ],
                    "s", width=24,
                ),
            ],
        ),
        Row(
            "Labels",
            [
                Panel(
                    "Label delay",
                    "Event time between a search and a label for one of its results.",
                    [
                        Query(quantile(q, "streammetrics_label_delay_seconds"), f"p{name}")
                        for q, name in ((0.5, 50), (0.95, 95))
                    ],
                    "s",
                ),
                Panel(
                    "Label matching",
                    "Labels per second that arrived before their result, were then matched, "
                    "replaced an earlier label, or expired without a result.",
                    [
                        Query(rate("streammetrics_labels_waiting_total"), "early"),
                        Query(rate("streammetrics_labels_found_total"), "matched"),
                        Query(rate("streammetrics_labels_revised_total"), "revised"),
                        Query(rate("streammetrics_labels_orphan_total"), "orphan"),
                    ],
                    "ops",
                ),
                Panel(
                    "Late changes",
                    "Iterations and turns per second that changed too late to count in a window.",
                    [Query(rate("streammetrics_late_changes_total", "window"), "{{window}}")],
                    "ops",
                ),
            ],
        ),
        Row(
            "Work and state",
            [
                Panel(
                    "Time by stage", "Seconds per second that workers spend in each stage.",
                    [Query(rate("streammetrics_batch_seconds_sum", "stage"), "{{stage}}")],
                    "percentunit", stacked=True,
                ),
                Panel(
                    "Batch size", "Records per batch, median and 95th percentile.",
                    [
                        Query(quantile(q, "streammetrics_batch_records"), f"p{name}")
                        for q, name in ((0.5, 50), (0.95, 95))
                    ],
                    "short",
                ),
                Panel(
                    "Redis round trip", "Time until Redis replies to a call.",
                    [
                        Query(quantile(q, "streammetrics_redis_round_trip_seconds"), f"p{name}")
                        for q, name in ((0.5, 50), (0.95, 95), (0.99, 99))
                    ],
                    "s",
                ),
                Panel(
                    "Conversations opened",
                    "Conversations per second needed by batches, by where they were found.",
                    [Query(rate("streammetrics_conversations_opened_total", "found"), "{{found}}")],
                    "ops", stacked=True,
                ),
                Panel(
                    "Redis memory over time", "Memory used by Redis.",
                    [Query(f"max({select('streammetrics_redis_memory_bytes')})", "used")], "bytes",
                ),
                Panel(
                    "Worker memory", "Resident memory.",
                    [Query(select("process_resident_memory_bytes"), "{{instance}}")], "bytes",
                ),
                Panel(
                    "Errors and recoveries",
                    "Per second: writes refused because another worker owns the partition, "
                    "partitions re-read, offset gaps, rebalances, and failed Redis calls.",
                    [
                        Query(rate("streammetrics_fenced_writes_total"), "fenced writes"),
                        Query(rate("streammetrics_rewinds_total"), "rewinds"),
                        Query(rate("streammetrics_offset_gaps_total"), "offset gaps"),
                        Query(rate("streammetrics_rebalances_total"), "rebalances"),
                        Query(rate("streammetrics_redis_errors_total"), "Redis errors"),
                    ],
                    "ops", width=12,
                ),
                Panel(
                    "Reasons for not being ready",
                    "1 while this reason keeps a worker from reading and writing.",
                    [Query(
                        f"max by (instance, reason) ({select('streammetrics_obstacles')})",
                        "{{instance}}: {{reason}}",
                    )],
                    "short", width=12, maximum=1,
                ),
                Panel(
                    "Window series", "Window series exported, at most 20,000 per worker.",
                    [Query(select("streammetrics_window_series"), "{{instance}}")],
                    "short", width=12,
                ),
                Panel(
                    "Series limit reached",
                    "Agents folded into other, and window series dropped. 0 unless a worker "
                    "reaches its limit.",
                    [
                        Query(total("streammetrics_agents_folded"), "agents folded"),
                        Query(total("streammetrics_window_series_cut"), "series cut"),
                    ],
                    "short", width=12,
                ),
            ],
        ),
    ],
    agents="",
)  # fmt: skip
