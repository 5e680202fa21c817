"""Pipeline health: whether workers keep up, what they wait for, what they set aside."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import quantile, rate, select, total
from stream_metrics.adapters.page.thresholds import DEAD_LETTER_SHARE, LAG_SECONDS, MEMORY_SHARE

_LAG: Final = "streammetrics_consumer_lag_seconds"

PIPELINE = Board(
    "stream-metrics-pipeline",
    "stream-metrics / Pipeline health",
    "Whether the workers keep up, what they wait for, and what they set aside.",
    [
        Row(
            "Now",
            [
                Panel(
                    "Workers ready", "Workers that read and write.",
                    [Query(total("streammetrics_ready"))], "short", "stat", 4, 4, decimals=0,
                ),
                Panel(
                    "Oldest record unread", "Age of the oldest record that is not read yet.",
                    [Query(f"max({select(_LAG)})")], "s", "stat", 4, 4, thresholds=(LAG_SECONDS,),
                ),
                Panel(
                    "Partitions owned", "State partitions that some worker owns.",
                    [Query(total("streammetrics_assigned_partitions"))], "short", "stat", 4, 4,
                    decimals=0,
                ),
                Panel(
                    "Partitions halted", "State partitions that stand still by policy.",
                    [Query(total("streammetrics_halted_partitions"))], "short", "stat", 4, 4,
                    thresholds=(1,), decimals=0,
                ),
                Panel(
                    "Redis memory", "Share of Redis's memory limit that is used; none without one.",
                    [Query(
                        f"max({select('streammetrics_redis_memory_bytes')} / "
                        f"({select('streammetrics_redis_memory_limit_bytes')} > 0))"
                    )],
                    "percentunit", "stat", 4, 4, thresholds=(MEMORY_SHARE,), maximum=1,
                ),
                Panel(
                    "Versions", "Releases that run.",
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
                    "Events", "Valid events read a second, by type.",
                    [Query(rate("streammetrics_events_total", "type"), "{{type}}")], "ops",
                ),
                Panel(
                    "What became of events",
                    "Valid events a second, by outcome: applied, or a reason why they change "
                    "nothing.",
                    [Query(rate("streammetrics_events_total", "outcome"), "{{outcome}}")], "ops",
                ),
                Panel(
                    "Dead letters", "Share of the records that were set aside.",
                    [Query(
                        f"{rate('streammetrics_dead_letters_total')} / "
                        f"({rate('streammetrics_dead_letters_total')} + "
                        f"{rate('streammetrics_events_total')} > 0)",
                        "share",
                    )],
                    "percentunit", thresholds=(DEAD_LETTER_SHARE,),
                ),
                Panel(
                    "Dead letters by reason", "Records set aside a second.",
                    [Query(rate("streammetrics_dead_letters_total", "reason"), "{{reason}}")],
                    "ops",
                ),
                Panel(
                    "Lag in records", "Records behind the end of the partition.",
                    [Query(
                        "max by (topic, partition) ("
                        + select("streammetrics_consumer_lag_records") + ")",
                        "{{topic}} {{partition}}",
                    )],
                    "short",
                ),
                Panel(
                    "Lag in seconds", "Age of the next record to read.",
                    [Query(
                        f"max by (topic, partition) ({select(_LAG)})", "{{topic}} {{partition}}"
                    )],
                    "s", thresholds=(LAG_SECONDS,),
                ),
                Panel(
                    "Event to metric", "Time from a record's timestamp until the windows count it.",
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
                    "Label delay", "Event time from a search to a label for one of its results.",
                    [
                        Query(quantile(q, "streammetrics_label_delay_seconds"), f"p{name}")
                        for q, name in ((0.5, 50), (0.95, 95))
                    ],
                    "s",
                ),
                Panel(
                    "Labels that wait",
                    "Labels a second that came before their result, whose result then came, that "
                    "replaced an earlier one, and whose result never came.",
                    [
                        Query(rate("streammetrics_labels_waiting_total"), "came before"),
                        Query(rate("streammetrics_labels_found_total"), "found their result"),
                        Query(rate("streammetrics_labels_revised_total"), "revised"),
                        Query(rate("streammetrics_labels_orphan_total"), "orphan"),
                    ],
                    "ops",
                ),
                Panel(
                    "Late changes",
                    "Iterations and turns a second that changed after a window had passed them.",
                    [Query(rate("streammetrics_late_changes_total", "window"), "{{window}}")],
                    "ops",
                ),
            ],
        ),
        Row(
            "Work and state",
            [
                Panel(
                    "Time by stage", "Seconds a second that workers spend in each stage.",
                    [Query(rate("streammetrics_batch_seconds_sum", "stage"), "{{stage}}")],
                    "percentunit", stacked=True,
                ),
                Panel(
                    "Batch", "Records in a batch, median and 95th percentile.",
                    [
                        Query(quantile(q, "streammetrics_batch_records"), f"p{name}")
                        for q, name in ((0.5, 50), (0.95, 95))
                    ],
                    "short",
                ),
                Panel(
                    "Redis round trip", "Time until Redis answers a call.",
                    [
                        Query(quantile(q, "streammetrics_redis_round_trip_seconds"), f"p{name}")
                        for q, name in ((0.5, 50), (0.95, 95), (0.99, 99))
                    ],
                    "s",
                ),
                Panel(
                    "Conversations opened",
                    "Conversations a second that a batch needed, by where they were.",
                    [Query(rate("streammetrics_conversations_opened_total", "found"), "{{found}}")],
                    "ops", stacked=True,
                ),
                Panel(
                    "Redis memory over time", "Memory that Redis uses.",
                    [Query(f"max({select('streammetrics_redis_memory_bytes')})", "used")], "bytes",
                ),
                Panel(
                    "Memory of workers", "Resident memory.",
                    [Query(select("process_resident_memory_bytes"), "{{instance}}")], "bytes",
                ),
                Panel(
                    "What went wrong",
                    "A second: writes refused because another worker owns the partition, "
                    "partitions read again, offset gaps, rebalances, calls that Redis refused.",
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
                    "What workers wait for", "1 while this keeps a worker from its work.",
                    [Query(
                        f"max by (instance, reason) ({select('streammetrics_obstacles')})",
                        "{{instance}}: {{reason}}",
                    )],
                    "short", width=12, maximum=1,
                ),
                Panel(
                    "Series", "Window series that workers export; 20,000 each at most.",
                    [Query(select("streammetrics_window_series"), "{{instance}}")],
                    "short", width=12,
                ),
                Panel(
                    "Beyond the limits",
                    "Agents counted as other in a scrape, and window series left out: 0 unless a "
                    "worker has more than it may export.",
                    [
                        Query(total("streammetrics_agents_folded"), "agents folded"),
                        Query(total("streammetrics_window_series_cut"), "series cut"),
                    ],
                    "short", width=12,
                ),
            ],
        ),
    ],
    agents=False,
)  # fmt: skip
