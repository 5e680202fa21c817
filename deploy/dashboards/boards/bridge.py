"""The bridge: whether it keeps up, and which agents' traces it converts or refuses."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import rate, ratio, select, total
from stream_metrics.core.alerts.thresholds import LAG_SECONDS

_NAME: Final = "streammetrics_bridge_"
_TRACES: Final = f"{_NAME}traces_total"
_REFUSED: Final = f"{_NAME}refused_total"
_OF: Final = "~$agent"

BRIDGE = Board(
    "stream-metrics-bridge",
    "stream-metrics / Bridge",
    "Whether the bridge keeps up with traces, and which agents' traces it refuses, and why.",
    [
        Row(
            "Now",
            [
                Panel(
                    "Bridges ready", "Bridges that are reading and writing.",
                    [Query(total(f"{_NAME}ready"))], "short", "stat", 6, 4, decimals=0,
                ),
                Panel(
                    "Oldest unread record", "Age of the oldest unread record of traces.",
                    [Query(f"max({select(f'{_NAME}lag_seconds')})")], "s", "stat", 6, 4,
                    thresholds=(LAG_SECONDS,),
                ),
                Panel(
                    "Open traces", "Traces that are not closed yet.",
                    [Query(total(f"{_NAME}open_traces"))], "short", "stat", 6, 4, decimals=0,
                ),
                Panel(
                    "Memory of open traces", "Bytes of their spans.",
                    [Query(total(f"{_NAME}open_bytes"))], "bytes", "stat", 6, 4,
                ),
            ],
        ),
        Row(
            "Converted and refused",
            [
                Panel(
                    "Refused, by agent",
                    "Share of each agent's traces of which something was refused and that gave no "
                    "events. An agent at 100% is missing in all other figures.",
                    [Query(
                        ratio(
                            rate(_TRACES, "agent", agent=_OF, outcome="refused"),
                            rate(_TRACES, "agent", agent=_OF),
                        ),
                        "{{agent}}",
                    )],
                    "percentunit", width=12, maximum=1,
                ),
                Panel(
                    "Refused, by agent and reason",
                    "Traces, turns and spans refused per second. The bridge's log names them.",
                    [Query(
                        rate(_REFUSED, "agent, reason", agent=_OF) + " > 0",
                        "{{agent}}: {{reason}}",
                    )],
                    "ops", width=12,
                ),
                Panel(
                    "Traces converted, by agent",
                    "Traces converted to events per second: those with the outcome told.",
                    [Query(rate(_TRACES, "agent", agent=_OF, outcome="told"), "{{agent}}")],
                    "ops", width=12,
                ),
                Panel(
                    "Traces by outcome",
                    "Traces closed per second. Empty ones have neither a search nor a turn in "
                    "which a model answered.",
                    [Query(rate(_TRACES, "outcome", agent=_OF), "{{outcome}}")],
                    "ops", width=12,
                ),
            ],
        ),
        Row(
            "Input",
            [
                Panel(
                    "Spans", "Spans read per second, and those that arrived too late to be used.",
                    [
                        Query(rate(f"{_NAME}spans_total"), "spans"),
                        Query(rate(f"{_NAME}late_spans_total"), "late"),
                    ],
                    "ops",
                ),
                Panel(
                    "Lag in seconds", "Age of the next record to read.",
                    [Query(
                        f"max by (topic, partition) ({select(f'{_NAME}lag_seconds')})",
                        "{{topic}} {{partition}}",
                    )],
                    "s", thresholds=(LAG_SECONDS,),
                ),
                Panel(
                    "Dead letters", "Records and events rejected per second, by reason.",
                    [Query(rate(f"{_NAME}dead_letters_total", "reason"), "{{reason}}")], "ops",
                ),
            ],
        ),
    ],
    agents=_TRACES,
    info=f"{_NAME}build_info",
)  # fmt: skip
