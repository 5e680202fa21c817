"""The alerts about workers, their services, the bridge and judges."""

from __future__ import annotations

from typing import Final, Literal

from stream_metrics.core.alerts.alert import CRITICAL, PERCENT, WARNING, Alert, Rule
from stream_metrics.core.alerts.estimate_records import BEHIND, INCOMPLETE
from stream_metrics.core.alerts.evidence import untold
from stream_metrics.core.alerts.obstacles import GAP, PROGRESS, READING, REDIS, WAITS, lasting
from stream_metrics.core.alerts.thresholds import (
    DEAD_LETTER_RECORDS,
    DEAD_LETTER_SECONDS,
    DEAD_LETTER_SHARE,
    EVIDENCE_SECONDS,
    GAP_SECONDS,
    JUDGE_LAG_SECONDS,
    LAG_GROWS_SECONDS,
    LAG_LONG_SECONDS,
    LAG_SECONDS,
    LAG_STAYS,
    LAG_STAYS_SECONDS,
    LATE_SHARE,
    MEMORY_SHARE,
    REFUSED_SHARE,
    SILENT_SECONDS,
)

_GROUP: Final = "pipeline"
_INSTANCE: Final = "{{ $labels.instance }}"
_DEAD_MINUTES: Final = f"{DEAD_LETTER_SECONDS // 60}m"
_GAP_MINUTES: Final = f"{GAP_SECONDS // 60}m"


def _all_workers(metric: str, offset: int = 0) -> str:
    at = f" offset {offset // 60}m" if offset else ""
    return f"max without (instance, pod) ({metric}{at})"


def _in_force(metric: str) -> str:
    live = 'streammetrics_generation{state="live"} > 0'
    return f"({metric}) and on (job, instance, pod) ({live})"


def _lag(offset: int = 0) -> str:
    return _all_workers("streammetrics_consumer_lag_seconds", offset)


def _increase(metric: str, over: str, *drops: str) -> str:
    without = ", ".join(("instance", "pod", *drops))
    return f"sum without ({without}) (increase({metric}[{over}]))"


_DEAD: Final = _increase("streammetrics_dead_letters_total", _DEAD_MINUTES, "reason")
_READ: Final = _increase("streammetrics_events_total", _DEAD_MINUTES, "type", "outcome")


def _bridge(metric: str, *drops: str) -> str:
    return _increase(f"streammetrics_bridge_{metric}", "15m", *drops)


_MEMORY: Final = _all_workers(
    "streammetrics_redis_memory_bytes / (streammetrics_redis_memory_limit_bytes > 0)"
)
_TWICE: Final = _bridge('refused_total{reason="two_scopes"}', "reason")
_LEFT_OUT: Final = _bridge('refused_total{reason="left_out"}', "reason")
_TOLD: Final = _bridge('traces_total{outcome="told"}', "outcome")


def _alert(
    name: str, severity: str, fires: str, expr: str, wait: str, keep: str | None, summary: str,
    description: str, *, label: Literal["agent", "instance"] | None = None,
    board: str = "pipeline", more: tuple[Rule, ...] = (),
) -> Alert:  # fmt: skip
    rule = Rule(severity.partition(",")[0], expr, wait, keep, summary, description)
    return Alert(name, _GROUP, severity, fires, board, (rule, *more), label)


PIPELINE: Final = (
    _alert(
        "StreamMetricsConsumerLagGrowing", CRITICAL,
        f"a partition is {LAG_SECONDS // 60} minutes behind and falling further behind, or "
        f"{LAG_LONG_SECONDS // 60} minutes behind and hardly catching up",
        f"({_lag()} > {LAG_SECONDS}\n  and {_lag()} > {_lag(LAG_GROWS_SECONDS)}\n) or (\n"
        f"  {_lag()} > {LAG_LONG_SECONDS}\n"
        f"  and {_lag()} > {LAG_STAYS:g} * {_lag(LAG_STAYS_SECONDS)}\n)",
        "3m", "5m", "The worker falls behind on {{ $labels.topic }}",
        "Partition {{ $labels.partition }} of {{ $labels.topic }} is "
        "{{ $value | humanizeDuration }} behind, and comes no nearer. The windows lack what is not "
        "read yet.",
    ),
    # Waits that do not end by themselves: somebody must start a build or free memory.
    _alert(
        READING, f"{CRITICAL}, {WARNING} for a build",
        "workers have stopped reading because topics have other partition counts than the state, "
        "or a build waits for memory in Redis",
        'max without (instance, pod, reason) (streammetrics_obstacles{reason="partitions"}) == 1',
        "2m", "5m", "Workers read nothing more: a topic has other partitions than the state",
        "Partitions were added since the state was built. Its figures stand still until "
        "stream-metrics build has built it anew. /readyz names the topics and both counts.",
        more=(
            Rule(
                WARNING,
                "max without (instance, pod, reason) "
                '(streammetrics_obstacles{reason="reading"}) == 1',
                "10m", "5m", "A build waits for room in Redis",
                "Redis is too full to build another generation of state beside the one in force, "
                "whose figures go on. The build goes on once 83% of maxmemory or less is used.",
            ),
        ),
    ),
    _alert(
        PROGRESS, CRITICAL,
        "a worker or a bridge answers requests but makes no progress",
        "time() - (streammetrics_last_progress_timestamp_seconds > 0) > "
        f"{SILENT_SECONDS} unless on (job, instance, pod) ({WAITS})\n"
        "or streammetrics_stuck == 1\n"
        f"or max without (reason) ({lasting(PROGRESS)})",
        "2m", "5m", f"{_INSTANCE} does not move",
        f"{_INSTANCE} answers, but its loop has not come round for minutes, or nothing "
        "moves though there is something to read. /readyz and its log say what it waits for.",
        label="instance",
    ),
    _alert(
        "StreamMetricsDeadLetters", WARNING,
        f"over {DEAD_LETTER_SHARE:.0%} of the records of {DEAD_LETTER_SECONDS // 60} minutes are "
        f"rejected; from {DEAD_LETTER_RECORDS} records on",
        f"{_DEAD}\n  / ({_DEAD} + {_READ} >= {DEAD_LETTER_RECORDS})\n  > {DEAD_LETTER_SHARE:g}",
        "5m", "10m", "Records are set aside",
        f"{PERCENT} of the records of the last {DEAD_LETTER_SECONDS // 60} minutes became dead "
        "letters. `stream-metrics dlq list` shows them with their reasons.",
    ),
    _alert(
        REDIS, CRITICAL,
        "a worker has not been able to use Redis for a minute: it is away, or refuses its writes",
        lasting(REDIS),
        "1m", None, f"Worker {_INSTANCE} cannot use Redis",
        f"{_INSTANCE} gets no answer from Redis, or Redis refuses its writes (full, read-only, "
        "loading, no rights), and so it waits. Its /readyz quotes Redis. No event is lost; the "
        "figures stand still.",
        label="instance",
    ),
    _alert(
        "StreamMetricsStateNearLimit", f"{WARNING}, {CRITICAL} at the limit",
        f"Redis uses over {MEMORY_SHARE:.0%} of its `maxmemory`, or all of it",
        f"{_MEMORY} > {MEMORY_SHARE:g}",
        "10m", "10m", "Redis is nearly full",
        f"Redis uses {PERCENT} of its memory limit. At the limit it refuses writes, and the "
        "workers wait.",
        more=(
            Rule(
                CRITICAL, f"{_MEMORY} >= 1", "1m", "5m", "Redis is full",
                f"Redis uses {PERCENT} of its memory limit and refuses writes, so the workers "
                "wait. Raise the limit first; the runbook says how. No event is lost.",
            ),
        ),
    ),
    _alert(
        GAP, CRITICAL,
        "Kafka no longer has records that the state needs, or a partition is halted",
        f"increase(streammetrics_offset_gaps_total[{_GAP_MINUTES}]) > 0\n"
        "or (streammetrics_offset_gaps_total > 0\n"
        f"  unless streammetrics_offset_gaps_total offset {_GAP_MINUTES})\n"
        "or sum without (topic) (streammetrics_halted_partitions) > 0\n"
        f"or max without (reason) ({lasting(GAP)})",
        "1m", "15m", f"Kafka lacks records that the state of {_INSTANCE} needs",
        "Records between the state and the log are gone, or a partition stands still for another "
        "reason of policy. Its figures do not go on by themselves.",
        label="instance",
    ),
    # Of the workers of the state in force: those of a build have partitions of their own.
    _alert(
        "StreamMetricsPartitionsUnowned", CRITICAL,
        "no worker has worked on a partition for five minutes",
        "sum without (instance, pod) (\n"
        f"  {_in_force('streammetrics_assigned_partitions + streammetrics_halted_partitions')}\n"
        ") < max without (instance, pod) (\n"
        f"  {_in_force('streammetrics_state_partitions')}\n)",
        "5m", None, "Some partitions have no worker",
        "Only {{ $value | humanize }} of the state's partitions are worked on. The figures lack "
        "the events of the others. The page of any worker says which these are.",
    ),
    # Without a worker that answers, there is none that could tell: an alert of its own says so.
    _alert(
        "StreamMetricsEvidenceMissing", CRITICAL,
        "workers run, but none tells the evidence about agents, or what is told is "
        f"{EVIDENCE_SECONDS // 60} minutes old and comes no nearer",
        untold(EVIDENCE_SECONDS),
        "5m", None, "No worker tells how agents do",
        "Workers run, but none tells the evidence about agents, or only an old one, so no alert "
        "about what agents find begins or ends. The worker that has partition 0 tells it; its log "
        "says why it does not.",
    ),
    _alert(
        "StreamMetricsCardinalityCapReached", WARNING,
        "there are more agents or routes than the limit; the rest are counted as `other`",
        "sum without (instance, pod) (\n  streammetrics_agents_folded\n"
        "  + streammetrics_window_series_cut\n"
        "  + increase(streammetrics_agents_beyond_limit_total[1h])\n"
        "  + increase(streammetrics_routes_beyond_limit_total[1h])\n) > 0",
        "15m", "15m", "More agents or routes than have series of their own",
        "Some agents or routes are added up under `other`, because all places are taken. Sums over "
        "everything stay right.",
    ),
    _alert(
        "StreamMetricsTargetDown", CRITICAL,
        "Prometheus cannot scrape a worker, or knows none",
        'up{job="stream-metrics"} == 0 or absent(up{job="stream-metrics"})',
        "2m", None, f"Worker {_INSTANCE} does not answer",
        f"Prometheus cannot scrape {_INSTANCE} of job stream-metrics, or knows no worker at all. "
        "Its partitions move to other workers, if there are any.",
        label="instance",
    ),
    _alert(
        "StreamMetricsBridgeBehind", CRITICAL,
        f"the bridge is down, waits, or is {LAG_SECONDS // 60} minutes behind on the topic of "
        "traces",
        f"{_all_workers('streammetrics_bridge_lag_seconds')} > {LAG_SECONDS}\n"
        "or streammetrics_bridge_ready == 0\n"
        'or (up{job="stream-metrics-bridge"} == 0\n'
        '  and max_over_time(up{job="stream-metrics-bridge"}[1d]) == 1)',
        "3m", "5m", "Traces do not become events",
        "The bridge is down, waits for something, or is minutes behind on the topic of traces. "
        "What agents do that are known by their traces is missing in the windows. Its /readyz and "
        "its log say what it waits for.",
        board="bridge",
    ),
    _alert(
        "StreamMetricsBridgeRefuses", WARNING,
        f"the bridge refuses over {REFUSED_SHARE:.0%} of the traces of an agent, or over "
        f"{LATE_SHARE:.0%} of the spans arrive too late",
        _bridge('traces_total{outcome="refused"}', "outcome")
        + f"\n  / {_bridge('traces_total', 'outcome')} > {REFUSED_SHARE:g}\n"
        + f"or {_bridge('late_spans_total')}\n  / {_bridge('spans_total')} > {LATE_SHARE:g}",
        "5m", "10m",
        f"{PERCENT} of what the bridge reads{{{{ with $labels.agent }}}} of {{{{ . }}}}"
        "{{ end }} is not used",
        f"Over {REFUSED_SHARE:.0%} of the traces of an agent were refused, or over "
        f"{LATE_SHARE:.0%} of all spans arrived after their trace was told. The figures lack what "
        "these traces would tell. streammetrics_bridge_refused_total has the reasons of each "
        "agent; the log of the bridge names traces, spans and the settings that help.",
        board="bridge",
    ),
    _alert(
        "StreamMetricsBridgeScopes", WARNING,
        "two instrumentations record the same searches of an agent, or `otlp.scopes` leaves out "
        "all of its traces",
        f"{_TWICE} > 0\nor (\n  {_LEFT_OUT} > 0\n  unless on (job, agent)\n  {_TOLD} > 0\n)",
        "2m", "10m", "The instrumentation of {{ $labels.agent }} has to be chosen",
        "Two instrumentations of {{ $labels.agent }} record the same searches, so that the bridge "
        "uses the first trace of each and refuses the second; or otlp.scopes leaves out all traces "
        "of this agent. The log of the bridge has the line to set.",
        board="bridge",
    ),
    _alert(
        "StreamMetricsJudgeBehind", WARNING,
        f"a judge is down, waits, or is {JUDGE_LAG_SECONDS // 60} minutes behind, or judges have "
        "so many turns yet to label that nothing is estimated from a model's labels",
        f"{_all_workers('streammetrics_judge_lag_seconds')} > {JUDGE_LAG_SECONDS}\n"
        "or streammetrics_judge_ready == 0\n"
        'or (up{job="stream-metrics-judge"} == 0\n'
        '  and max_over_time(up{job="stream-metrics-judge"}[1d]) == 1)\n'
        f"or count without (agent, release, figure, window) ({BEHIND})",
        "10m", "5m", "A model's labels are missing",
        "A judge is down, waits for something, or has more to do than it can. What it has not "
        "labelled yet is missing in the estimates of the last hours, or there are none. Its "
        "/readyz and its log say what it waits for.",
        board="quality",
    ),
    _alert(
        "StreamMetricsJudgeBudgetSpent", WARNING,
        "the judges have spent the day's budget, so that the sample ends until midnight, UTC",
        f"{_all_workers(INCOMPLETE)} > time()",
        "1m", None, "The judges' budget of today is spent",
        "Nothing more of today is labelled by the model. Windows that reach back into today have "
        "no combined estimate. The log of a judge has calls and tokens; a lower judge.rate, or "
        "more tokens or money a day, would suffice for a whole day.",
        board="quality",
    ),
)  # fmt: skip
