"""Cases of the alerts about workers, labels and dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from stream_metrics.core.alerts.estimate_records import LABEL_SUMS
from tests.rules.cases import GONE, WORKER, Case, Phase, Series, counter, gauge, name

QUIET: Final = 90
LONG: Final = 180  # until every case has ended
OTHER: Final = {"instance": "worker-2:9464"}
ALERT: Final = {"severity": "critical"}
WARNING: Final = {"severity": "warning"}
HERE: Final = {**ALERT, "instance": "worker-1:9464"}
BRIDGE: Final = {"job": "stream-metrics-bridge", "instance": "bridge-1:9474"}

Fires = Mapping[int, Sequence[Mapping[str, str]]]


def rising(minutes: int, start: float, by: float) -> list[Phase]:
    """A value that changes by a constant each minute."""
    return [(1, start + by * minute) for minute in range(minutes)]


def silent(end: int) -> Fires:
    """No alert fires, checked every five minutes."""
    return dict.fromkeys(range(0, end, 5), ())


def restarted(value: float) -> tuple[Phase, ...]:
    """A counter or gauge through a restart of two minutes."""
    return (QUIET, value), (2, GONE), (60, value)


# -- labels ---------------------------------------------------------------------------------------


def _events(searches: Sequence[Phase], labels: Sequence[Phase], **more: str) -> Series:
    kinds = {"search_iteration": searches, "relevance_labels": labels}
    made: Series = {}
    for kind, phases in kinds.items():
        of = {"type": kind, "outcome": "applied", **more}
        made |= counter("streammetrics_events_total", *phases, **of)
    return made


def _waiting(phases: Sequence[tuple[int, float, float, float]]) -> Series:
    """Minutes, and a minute's labels that find their result at once, that wait, that are found."""
    return (
        counter("streammetrics_label_delay_seconds_count", *[(n, at) for n, at, _, _ in phases])
        | counter("streammetrics_labels_waiting_total", *[(n, w) for n, _, w, _ in phases])
        | counter("streammetrics_labels_found_total", *[(n, f) for n, _, _, f in phases])
    )


LABELS_STOPPED: Final = [
    Case("fires when no more labels come, and resolves when they do",
         _events([(LONG, 60)], [(QUIET, 50), (20, 0), (60, 50)]),
         {QUIET - 1: (), QUIET + 9: [ALERT], QUIET + 19: [ALERT], QUIET + 30: ()}),
    Case("goes on firing through half a day without labels",
         _events([(QUIET + 800, 60)], [(QUIET, 50), (720, 0), (80, 50)]),
         {QUIET + 9: [ALERT], QUIET + 90: [ALERT], QUIET + 719: [ALERT], QUIET + 740: ()}),
    Case("is silent where hardly anybody searches",
         _events([(LONG, 2)], [(QUIET, 2), (LONG - QUIET, 0)]), silent(LONG)),
    Case("is silent where nobody searches at night",
         _events([(QUIET, 60), (60, 0), (30, 60)], [(QUIET, 50), (60, 0), (30, 50)]), silent(LONG)),
    Case("is silent where labels come in batches",
         _events([(LONG, 60)], [(14, 0), (1, 700)] * 12), silent(LONG)),
    Case("is silent while a worker restarts", _events(restarted(60), restarted(50)), silent(150)),
    Case("is silent where one of two workers reads no labels",
         _events([(LONG, 60)], [(LONG, 50)]) | _events([(LONG, 60)], [(LONG, 0)], **OTHER),
         silent(LONG)),
]  # fmt: skip

ORPHAN_LABELS: Final = [
    Case("fires when results of labels do not come, and resolves when they do",
         _waiting([(QUIET, 30, 1, 1), (60, 20, 8, 0), (120, 30, 0, 0)]),
         {QUIET: (), QUIET + 59: [WARNING], QUIET + 179: ()}),
    Case("is silent where labels come before their results", _waiting([(LONG, 10, 10, 10)]),
         silent(LONG)),
    Case("is silent where there are few labels", _waiting([(LONG, 0.2, 0.5, 0)]), silent(LONG)),
    Case("is silent on a few that wait", _waiting([(LONG, 30, 1, 0)]), silent(LONG)),
]  # fmt: skip

# -- reading --------------------------------------------------------------------------------------


def _lag(*phases: Phase, partition: str = "0", **more: str) -> Series:
    of = {"topic": "search-iterations", "partition": partition, **more}
    return gauge("streammetrics_consumer_lag_seconds", *phases, **of)


PLACE: Final = {**ALERT, "partition": "0"}

CONSUMER_LAG: Final = [
    Case("is silent about a generation of state that is being built",
         _lag((60, 1))
         | gauge("streammetrics_building_consumer_lag_seconds", *rising(60, 0, 60),
                 topic="search-iterations", partition="0", **OTHER), silent(60)),
    Case("fires while lag grows, and resolves when it falls",
         _lag((20, 1), *rising(20, 0, 60), *rising(20, 1_200, -60), (20, 1)),
         {19: (), 28: [PLACE], 39: [PLACE], 50: (), 79: ()}),
    Case("fires where a worker stays an hour behind", _lag((20, 1), (60, 3_600)),
         {19: (), 40: [PLACE], 79: [PLACE]}),
    Case("is silent while a worker catches up", _lag(*rising(60, 6_000, -100)), silent(60)),
    Case("is silent on small lag that comes and goes", _lag(*[(1, 20), (1, 90)] * 30), silent(60)),
    Case("is silent on a deploy, when another worker goes on",
         _lag((20, 1), (40, GONE)) | _lag((20, GONE), (1, 30), (39, 1), **OTHER), silent(60)),
    Case("names the partition that is behind",
         _lag((20, 1), *rising(20, 0, 60)) | _lag((40, 1), partition="1"), {39: [PLACE]}),
]  # fmt: skip


def _progress(*phases: Phase, **more: str) -> Series:
    """When the loop last came round: it grows by 60 seconds a minute where it does."""
    return counter("streammetrics_last_progress_timestamp_seconds", *phases, **more)


def _obstacle(*phases: Phase, reason: str = "redis", **more: str) -> Series:
    return gauge("streammetrics_obstacles", *phases, reason=reason, **more)


def _stuck(*phases: Phase) -> Series:
    return _progress((60, 60)) | gauge("streammetrics_stuck", *phases)


NO_PROGRESS: Final = [
    Case("fires when the loop does not come round, of that worker only",
         _progress((30, 60), (30, 0)) | _progress((60, 60), **OTHER), {30: (), 37: [HERE]}),
    Case("is silent about a worker that has not begun",
         gauge("streammetrics_last_progress_timestamp_seconds", (60, 0)), silent(60)),
    Case("fires when the watchdog says so, and resolves",
         _stuck((20, 0), (10, 1), (30, 0)), {19: (), 23: [HERE], 29: [HERE], 36: ()}),
    Case("is silent where one look of the watchdog is wrong", _stuck((20, 0), (1, 1), (39, 0)),
         silent(60)),
    Case("is silent on a pause of two minutes",
         _progress((30, 60), (2, 0), (28, 60)), silent(60)),
    Case("is silent while a worker is idle", _stuck((60, 0)), silent(60)),
    *(
        Case(f"is silent about a loop that waits ({reason})",
             _progress((30, 60), (30, 0)) | _obstacle((30, 0), (30, 1), reason=reason), silent(60))
        for reason in ("redis", "dead_letters")
    ),
    Case("is not silent about a loop that stands although another worker waits",
         _progress((30, 60), (30, 0)) | _obstacle((60, 1), **OTHER), {37: [HERE]}),
    Case("is one alert about a worker that its watchdog finds stuck",
         _stuck((20, 0), (40, 1)) | _obstacle((20, 0), (40, 1), reason="watchdog"), {50: [HERE]}),
    Case("fires when a bridge does not move, and resolves",
         gauge("streammetrics_bridge_obstacles", (20, 0), (10, 1), (30, 0), **BRIDGE,
               reason="watchdog"),
         {19: (), 23: [{**HERE, **BRIDGE}], 29: [{**HERE, **BRIDGE}], 36: ()}),
]  # fmt: skip


def _added(*phases: Phase, **more: str) -> Series:
    return _obstacle(*phases, reason="partitions", **more)


READING_STOPPED: Final = [
    Case("is one alert however many workers have stopped, and resolves",
         _added((20, 0), (30, 1), (30, 0))
         | _added((20, 0), (30, 1), (30, 0), **OTHER),
         {19: (), 24: [ALERT], 49: [ALERT], 57: ()}),
    Case("fires where one of two workers knows that partitions were added",
         _added((60, 0)) | _added((20, 0), (40, 1), **OTHER),
         {19: (), 24: [ALERT], 59: [ALERT]}),
    Case("warns of a build that waits for room",
         _obstacle((20, 0), (30, 1), (30, 0), reason="reading"), {29: (), 32: [WARNING], 57: ()}),
    Case("is silent while a build waits now and then",
         _obstacle(*[(8, 1), (2, 0)] * 6, reason="reading"), silent(60)),
    Case("is silent on any other reason",
         _obstacle((60, 1)) | _added((60, 0)), silent(60)),
]  # fmt: skip


def _letters(events: Sequence[Phase], letters: Sequence[Phase]) -> Series:
    return counter(
        "streammetrics_events_total", *events, type="search_iteration", outcome="applied"
    ) | counter("streammetrics_dead_letters_total", *letters, reason="invalid")


DEAD_LETTERS: Final = [
    Case("fires when records are set aside, and resolves",
         _letters([(120, 95)], [(30, 0), (20, 5), (70, 0)]),
         {29: (), 49: [WARNING], 80: (), 110: ()}),
    Case("is silent on few of many", _letters([(60, 99)], [(60, 1)]), silent(60)),
    Case("is silent where hardly anything comes", _letters([(60, 3)], [(60, 3)]), silent(60)),
    Case("is silent while a worker restarts", _letters(restarted(95), restarted(1)), silent(150)),
]  # fmt: skip


REDIS: Final = [
    Case("fires while Redis is away, and resolves at once",
         _obstacle((20, 0), (10, 1), (20, 0)), {19: (), 22: [HERE], 29: [HERE], 31: ()}),
    Case("is silent on a moment", _obstacle((20, 0), (1, 1), (20, 0)), silent(40)),
    Case("is silent when Kafka is away", _obstacle((40, 1), reason="kafka"), silent(40)),
    Case("is silent while a worker restarts", _obstacle(*restarted(0)), silent(150)),
]  # fmt: skip


def _memory(*phases: Phase, limit: float = 100.0) -> Series:
    return gauge("streammetrics_redis_memory_bytes", *phases) | gauge(
        "streammetrics_redis_memory_limit_bytes", (sum(n for n, _ in phases), limit)
    )


STATE: Final = [
    Case("fires when Redis fills up, and resolves", _memory((20, 70), (30, 85), (30, 60)),
         {19: (), 29: (), 31: [WARNING], 49: [WARNING], 62: ()}),
    Case("is critical when Redis is full", _memory((20, 70), (9, 100), (30, 70)),
         {20: (), 22: [ALERT], 29: [ALERT], 45: ()}),
    Case("is silent on a short peak", _memory((20, 70), (8, 95), (30, 70)), silent(58)),
    Case("is silent below the limit", _memory(*[(1, 70), (1, 79)] * 30), silent(60)),
    Case("is silent where there is no limit", _memory((60, 95), limit=0.0), silent(60)),
]  # fmt: skip


def _gaps(gaps: Sequence[Phase], halted: Sequence[Phase]) -> Series:
    return counter("streammetrics_offset_gaps_total", *gaps, topic="search-iterations") | gauge(
        "streammetrics_halted_partitions", *halted
    )


GAPS: Final = [
    Case("fires on a gap, and resolves",
         _gaps([(20, 0), (1, 1), (70, 0)], [(91, 0)]), {19: (), 24: [HERE], 34: [HERE], 70: ()}),
    Case("fires on a gap that was there at the first scrape, and resolves",
         gauge("streammetrics_offset_gaps_total", (90, 1), topic="search-iterations"),
         {5: [HERE], 60: ()}),
    Case("is silent about a gap of a state that is being built",
         counter("streammetrics_building_offset_gaps_total", (20, 0), (1, 1), (70, 0),
                 topic="search-iterations"), silent(90)),
    Case("fires while a partition is halted",
         _gaps([(90, 0)], [(20, 0), (20, 1), (50, 0)]), {19: (), 22: [HERE], 39: [HERE], 70: ()}),
    Case("fires while a partition of a bridge is halted",
         gauge("streammetrics_bridge_obstacles", (20, 0), (20, 1), (50, 0), **BRIDGE,
               reason="halted"),
         {19: (), 22: [{**HERE, **BRIDGE}], 39: [{**HERE, **BRIDGE}], 70: ()}),
    Case("is silent while a worker restarts",
         _gaps(restarted(0), [(QUIET, 0), (2, GONE), (60, 0)]), silent(150)),
]  # fmt: skip


KEYS: Final = [
    Case("fires while a worker finds topics keyed differently, and resolves",
         gauge("streammetrics_topics_keyed_differently", (20, 0), (30, 1), (60, 0)),
         {19: (), 24: (), 30: [WARNING], 49: [WARNING], 90: ()}),
    Case("is one alert however many workers find it",
         gauge("streammetrics_topics_keyed_differently", (60, 1))
         | gauge("streammetrics_topics_keyed_differently", (60, 1), **OTHER), {30: [WARNING]}),
    Case("is silent while a worker restarts",
         gauge("streammetrics_topics_keyed_differently", *restarted(0)), silent(150)),
]  # fmt: skip


def _cap(folded: Sequence[Phase], beyond: Sequence[Phase]) -> Series:
    return (
        gauge("streammetrics_agents_folded", *folded)
        | gauge("streammetrics_window_series_cut", *[(n, v and 0) for n, v in folded])
        | counter("streammetrics_agents_beyond_limit_total", *beyond)
        | counter("streammetrics_routes_beyond_limit_total", *[(n, v and 0) for n, v in beyond])
    )


CAP: Final = [
    Case("fires when agents find no place, and resolves",
         _cap([(LONG, 0)], [(20, 0), (30, 5), (130, 0)]),
         {19: (), 45: [WARNING], 60: [WARNING], 160: ()}),
    Case("fires when agents are folded", _cap([(20, 0), (30, 2)], [(50, 0)]), {49: [WARNING]}),
    Case("is silent where all have a place", _cap([(60, 0)], [(60, 0)]), silent(60)),
    Case("is silent while a worker restarts",
         _cap([(QUIET, 0), (2, GONE), (60, 0)], restarted(0)), silent(150)),
]  # fmt: skip


def _runaway(*phases: Phase, **more: str) -> Series:
    return gauge("streammetrics_runaway_turn_iterations", *phases, agent="support", **more)


SUPPORT: Final = {**ALERT, "agent": "support"}
RUNAWAY: Final = [
    Case("fires within a minute, and resolves when the turn has stopped",
         _runaway((20, 0), (10, 60), (30, 0)), {19: (), 20: [SUPPORT], 29: [SUPPORT], 34: ()}),
    Case("goes on firing while a worker restarts, and reads the next iteration",
         _runaway((20, 0), (10, 60), (1, GONE), (1, 0), (10, 61), (20, 0)),
         {29: [SUPPORT], 30: [SUPPORT], 31: [SUPPORT], 41: [SUPPORT], 50: ()}),
    Case("is one alert where a partition has moved to another worker",
         _runaway((20, 0), (20, 60)) | _runaway((25, 0), (15, 64), **OTHER),
         {19: (), 24: [SUPPORT], 39: [SUPPORT]}),
    Case("is silent where no turn runs away", _runaway((60, 0)), silent(60)),
]  # fmt: skip

TARGET: Final = [
    Case("fires when a worker does not answer, of that one, and resolves",
         gauge("up", (20, 1), (10, 0), (20, 1)) | gauge("up", (50, 1), **OTHER),
         {19: (), 23: [HERE], 29: [HERE], 31: ()}),
    Case("fires when there is no worker at all", gauge("up", (20, 1), (20, GONE)),
         {19: (), 35: [ALERT]}),
    Case("is silent on one scrape that fails", gauge("up", (20, 1), (1, 0), (20, 1)), silent(40)),
    Case("is silent on a deploy, when a target goes and another comes",
         gauge("up", (20, 1), (20, GONE)) | gauge("up", (20, GONE), (20, 1), **OTHER), silent(40)),
]  # fmt: skip


def _evidence(
    minutes: int, *tells: range, still: int | None = None, of: Mapping[str, str] = {}
) -> Series:
    """Workers of the state in force, and the end of the last minute that one has told of.

    From minute ``still`` on, that stands still.
    """
    text = ["_"] * minutes
    for at in (minute for part in tells for minute in part):
        text[at] = str(60 * (at if still is None else min(at, still)) - 60)
    for part in tells:
        if part.stop < minutes:
            text[part.stop] = "stale"
    told = name("streammetrics_evidence_timestamp_seconds", **{**WORKER, **of})
    workers = gauge("streammetrics_generation", (minutes, 3), state="live", **of)
    return {told: " ".join(text)} | workers


def _told_from(first: int, a_minute: int, minutes: int) -> Series:
    """The end of the minute that is told, which goes on by so many seconds a minute."""
    told = name("streammetrics_evidence_timestamp_seconds", **WORKER)
    return {told: f"{first}+{a_minute}x{minutes}"}


EVIDENCE: Final = [
    Case("is silent while a worker tells", _evidence(60, range(60)), silent(60)),
    Case("fires when no worker tells, and resolves",
         _evidence(60, range(20), range(40, 60)), {22: (), 26: [ALERT], 39: [ALERT], 41: ()}),
    Case("fires when what is told stands still", _evidence(60, range(60), still=20),
         {28: (), 36: [ALERT], 59: [ALERT]}),
    Case("is silent while a backlog is read", _evidence(40) | _told_from(-10_000, 180, 40),
         silent(40)),
    Case("fires where what is told is old and comes no nearer",
         _evidence(40) | _told_from(-1_000, 60, 40), {4: (), 6: [ALERT], 39: [ALERT]}),
    Case("fires where workers are of a version that tells none", _evidence(20), {10: [ALERT]}),
    Case("is silent while partition 0 moves to another worker",
         _evidence(60, range(20)) | _evidence(60, range(23, 60), of=OTHER), silent(60)),
    Case("is of the cluster in which no worker tells",
         _evidence(40, range(40), of={"cluster": "eu"})
         | _evidence(40, range(20), of={"cluster": "us"}),
         {39: [{**ALERT, "cluster": "us"}]}),
    Case("is silent where no worker answers, of which another alert tells",
         gauge("streammetrics_generation", (3, 3), (57, GONE), state="live"), silent(60)),
    Case("is silent about state that is being built",
         gauge("streammetrics_generation", (60, 3), state="building"), silent(60)),
]  # fmt: skip

BRIDGE_ALERT: Final = {**ALERT, "job": BRIDGE["job"]}
BRIDGE_WARNING: Final = {**WARNING, "job": BRIDGE["job"]}
REFUSED_WARNING: Final = {**BRIDGE_WARNING, "agent": "support"}


def _bridge_lag(*phases: Phase) -> Series:
    of = {**BRIDGE, "topic": "traces", "partition": "0"}
    return gauge("streammetrics_bridge_lag_seconds", *phases, **of)


def _bridge_read(
    told: Sequence[Phase],
    refused: Sequence[Phase],
    late: Sequence[Phase],
    refused_agent: str = "support",
) -> Series:
    traces = "streammetrics_bridge_traces_total"
    return (
        counter(traces, *told, **BRIDGE, agent="support", outcome="told")
        | counter(traces, *refused, **BRIDGE, agent=refused_agent, outcome="refused")
        | counter("streammetrics_bridge_spans_total", *[(n, 500) for n, _ in told], **BRIDGE)
        | counter("streammetrics_bridge_late_spans_total", *late, **BRIDGE)
    )


BRIDGE_BEHIND: Final = [
    Case("fires when it is minutes behind, and resolves",
         _bridge_lag((20, 1), (20, 300), (30, 1)),
         {19: (), 25: [BRIDGE_ALERT], 39: [BRIDGE_ALERT], 50: ()}),
    Case("fires when it waits", gauge("streammetrics_bridge_ready", (20, 1), (20, 0), **BRIDGE),
         {19: (), 25: [BRIDGE_ALERT]}),
    Case("fires when it is down that was up",
         gauge("up", (20, 1), (20, 0), **BRIDGE), {19: (), 25: [BRIDGE_ALERT]}),
    Case("is silent where none was ever up", gauge("up", (60, 0), **BRIDGE), silent(60)),
    Case("is silent on a minute behind", _bridge_lag((60, 60)), silent(60)),
    Case("is silent on a restart",
         gauge("streammetrics_bridge_ready", (20, 1), (2, 0), (20, 1), **BRIDGE), silent(40)),
]  # fmt: skip
BRIDGE_REFUSES: Final = [
    Case("fires when many traces are refused, and resolves",
         _bridge_read([(120, 50)], [(30, 0), (30, 10), (60, 0)], [(120, 0)]),
         {29: (), 45: [REFUSED_WARNING], 59: [REFUSED_WARNING], 110: ()}),
    Case("fires for the agent of which all is refused, however little that is of everything",
         _bridge_read([(60, 500)], [(10, 0), (50, 1)], [(60, 0)], refused_agent="billing"),
         {9: (), 30: [REFUSED_WARNING | {"agent": "billing"}]}),
    Case("fires when many spans are late",
         _bridge_read([(60, 50)], [(60, 0)], [(20, 0), (40, 50)]), {19: (), 40: [BRIDGE_WARNING]}),
    Case("is silent on a few",
         _bridge_read([(60, 50)], [(60, 1)], [(60, 1)]), silent(60)),
]  # fmt: skip


def _bridge_scopes(reason: str, refused: Sequence[Phase], told: Sequence[Phase]) -> Series:
    of = {**BRIDGE, "agent": "support"}
    return counter("streammetrics_bridge_refused_total", *refused, **of, reason=reason) | counter(
        "streammetrics_bridge_traces_total", *told, **of, outcome="told"
    )


BRIDGE_SCOPES: Final = [
    Case("fires while two instrumentations record the same searches, and resolves",
         _bridge_scopes("two_scopes", [(20, 0), (30, 5), (60, 0)], [(110, 5)]),
         {19: (), 25: [REFUSED_WARNING], 49: [REFUSED_WARNING], 100: ()}),
    Case("fires for an agent of which all traces are left out",
         _bridge_scopes("left_out", [(20, 0), (30, 5)], [(50, 0)]),
         {19: (), 25: [REFUSED_WARNING]}),
    Case("is silent where another instrumentation of the agent was chosen",
         _bridge_scopes("left_out", [(60, 5)], [(60, 5)]), silent(60)),
    Case("is silent on other refusals",
         _bridge_scopes("truncated", [(60, 5)], [(60, 0)]), silent(60)),
]  # fmt: skip

JUDGE: Final = {"job": "stream-metrics-judge", "instance": "judge-1:9484"}
JUDGE_WARNING: Final = {**WARNING, "job": JUDGE["job"]}


def _judge(metric: str, *phases: Phase, **labels: str) -> Series:
    return gauge(f"streammetrics_judge_{metric}", *phases, **JUDGE, **labels)


LABELLED: Final = gauge(
    LABEL_SUMS, (60, 100), agent="support", window="24h", figure="sre", sample="both", sum="n"
)
JUDGE_BEHIND: Final = [
    Case("fires when it is a quarter of an hour behind, and resolves",
         _judge("lag_seconds", (20, 1), (20, 1_000), (30, 1), topic="searches", partition="0"),
         {19: (), 29: (), 31: [JUDGE_WARNING], 39: [JUDGE_WARNING], 50: ()}),
    Case("fires when it waits", _judge("ready", (20, 1), (20, 0)), {29: (), 31: [JUDGE_WARNING]}),
    Case("fires when it is down that was up", gauge("up", (20, 1), (20, 0), **JUDGE),
         {29: (), 31: [JUDGE_WARNING]}),
    Case("fires while it has too many turns to label for an estimate",
         LABELLED | _judge("due_turns", (20, 5), (20, 6), (20, 5)),
         {29: (), 31: [WARNING], 39: [WARNING], 59: ()}),
    Case("is silent where none was ever up", gauge("up", (60, 0), **JUDGE), silent(60)),
    Case("is silent where labels come from elsewhere", LABELLED, silent(60)),
    Case("is silent on a few minutes behind",
         _judge("lag_seconds", (60, 600), topic="searches", partition="0"), silent(60)),
    Case("is silent on a restart", _judge("ready", (20, 1), (5, 0), (20, 1)), silent(45)),
]  # fmt: skip
JUDGE_SPENT: Final = [
    Case("fires until the day ends whose budget was spent",
         _judge("incomplete_until_timestamp_seconds", (20, GONE), (40, 50 * 60)),
         {19: (), 22: [JUDGE_WARNING], 49: [JUDGE_WARNING], 51: ()}),
    Case("is silent on a day before today",
         _judge("incomplete_until_timestamp_seconds", (60, 0)), silent(60)),
]  # fmt: skip

CASES: Final = {
    "StreamMetricsJudgeBehind": JUDGE_BEHIND,
    "StreamMetricsJudgeBudgetSpent": JUDGE_SPENT,
    "StreamMetricsBridgeBehind": BRIDGE_BEHIND,
    "StreamMetricsBridgeScopes": BRIDGE_SCOPES,
    "StreamMetricsBridgeRefuses": BRIDGE_REFUSES,
    "StreamMetricsLabelsStopped": LABELS_STOPPED,
    "StreamMetricsOrphanLabels": ORPHAN_LABELS,
    "StreamMetricsTopicsKeyedDifferently": KEYS,
    "StreamMetricsConsumerLagGrowing": CONSUMER_LAG,
    "StreamMetricsReadingStopped": READING_STOPPED,
    "StreamMetricsNoProgress": NO_PROGRESS,
    "StreamMetricsDeadLetters": DEAD_LETTERS,
    "StreamMetricsRedisUnreachable": REDIS,
    "StreamMetricsStateNearLimit": STATE,
    "StreamMetricsOffsetGap": GAPS,
    "StreamMetricsCardinalityCapReached": CAP,
    "StreamMetricsRunawayTurn": RUNAWAY,
    "StreamMetricsTargetDown": TARGET,
    "StreamMetricsEvidenceMissing": EVIDENCE,
}
