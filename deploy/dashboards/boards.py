"""What is on which dashboard.

Thresholds are those of the alert rules (``deploy/prometheus/alerts.rules.yml``); a test compares.
"""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import Board, Panel, Query, Row
from deploy.dashboards.promql import quantile, rate, ratio, select, share, total, window

SRR_WARNING, SRR_CRITICAL = 0.25, 0.4
MISSED_SEARCHES: Final = 0.2
DEAD_LETTER_SHARE: Final = 0.02
LAG_SECONDS: Final = 120
MEMORY_SHARE: Final = 0.8
RERANKING: Final = 1.0

ALL_WINDOWS: Final = ("5m", "1m", "30m", "1h", "6h", "24h")
TURNS_LENGTH: Final = "1h"  # sums over turns are not kept for every window
DECISION_WINDOWS: Final = ("1h", "5m", "24h")
CURVE_WINDOWS: Final = ("1h", "24h")
ORIGIN_WINDOWS: Final = ("1h", "5m")

AGENT: Final = "{{agent}}"


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


def _turn_mean(metric: str, length: str) -> Query:
    """A metric's mean over turns, each at its last iteration; sums are in billionths."""
    mean = ratio(
        window("turn_metric_sum", "agent", length, metric=metric) + " / 1e9",
        window("turn_metric_count", "agent", length, metric=metric),
    )
    return Query(mean, AGENT)


def _macro(metric: str, title: str, description: str, unit: str = "short") -> Panel:
    return Panel(title, description, [_turn_mean(metric, TURNS_LENGTH)], unit, width=6)


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
                    "How long ago the input was read that the windows lack. A window younger than "
                    "this is not silent, it is not complete.",
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
    ],
    ALL_WINDOWS,
)  # fmt: skip


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
                    [_turn_mean(_LAST_GOOD + "qrels", "$window")], "short", decimals=2,
                ),
                Panel(
                    "Iterations to all good results (of those found)",
                    "Mean number of the iteration that brought a turn's last good document.",
                    [_turn_mean(_LAST_GOOD + "retrieved", "$window")], "short", decimals=2,
                ),
                Panel(
                    "RG", "Good gain an iteration; mean over turns.",
                    [_turn_mean("rg", "$window")], "short", width=12,
                ),
                Panel(
                    "DRG", "As RG, an iteration worth less the later it comes; mean over turns.",
                    [_turn_mean("drg", "$window")], "short", width=12,
                ),
            ],
        ),
    ],
    CURVE_WINDOWS,
)  # fmt: skip


def _gate(**matchers: str) -> str:
    return window("gate_decisions", "agent", **matchers)


def _routes(by: str, **matchers: str) -> str:
    return window("routed_searches", by, **matchers)


_ANSWERED: Final = "~yes|no"

DECISIONS = Board(
    "stream-metrics-decisions",
    "stream-metrics / Gating and routing",
    "Whether searches are made when they are needed, and where they go.",
    [
        Row(
            "Gate, by agent",
            [
                Panel(
                    "Skip rate", "Share of the gate's decisions that skip the search.",
                    [Query(share(_gate(decision="skip"), _gate()), AGENT)], "percentunit",
                    maximum=1,
                ),
                Panel(
                    "Missed searches",
                    "Share of the labelled decisions in which the gate skipped a search that was "
                    "needed.",
                    [Query(
                        share(_gate(decision="skip", needed="yes"), _gate(needed=_ANSWERED)), AGENT
                    )],
                    "percentunit", thresholds=(MISSED_SEARCHES,), maximum=1,
                ),
                Panel(
                    "Needless searches",
                    "Share of the labelled decisions in which the gate searched without need.",
                    [Query(
                        share(_gate(decision="search", needed="no"), _gate(needed=_ANSWERED)), AGENT
                    )],
                    "percentunit", maximum=1,
                ),
                Panel(
                    "Gate efficiency",
                    "Share of the labelled decisions that skip a search which is not needed.",
                    [Query(
                        share(_gate(decision="skip", needed="no"), _gate(needed=_ANSWERED)), AGENT
                    )],
                    "percentunit", width=12, maximum=1,
                ),
                Panel(
                    "Gate decisions", "Decisions, by what they say and what was needed.",
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
                    "Routing rate by route", "Share of the routed searches that took the route.",
                    [Query(
                        f"{_routes('route')} / on() group_left() ({_routes('')} > 0)", "{{route}}"
                    )],
                    "percentunit", maximum=1, stacked=True,
                ),
                Panel(
                    "Routing accuracy by agent",
                    "Share of the labelled routed searches that took the best route.",
                    [Query(
                        share(_routes("agent", correct="yes"), _routes("agent", correct=_ANSWERED)),
                        AGENT,
                    )],
                    "percentunit", maximum=1,
                ),
                Panel(
                    "Routing accuracy by route",
                    "Share of the labelled searches of the route for which it was the best.",
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

BOARDS: Final = (QUALITY, ITERATIONS, DECISIONS, DEDUPLICATION, PIPELINE)
