"""Broken builds whose alert rules gather evidence that there is not, or compare wrongly."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

EVIDENCE: Final = "stream_metrics/core/alerts/evidence.py"
GATHERING: Final = "stream_metrics/live/page/evidence.py"
QUALITY: Final = "stream_metrics/core/alerts/quality.py"
PROMQL: Final = "stream_metrics/core/alerts/promql.py"
OBSTACLES: Final = "stream_metrics/core/alerts/obstacles.py"
LAG: Final = "stream_metrics/live/worker/lag.py"
INPUTS: Final = "stream_metrics/live/worker/inputs.py"
EPISODES: Final = "stream_metrics/live/notify/episodes.py"
NOTIFIER: Final = "stream_metrics/live/notify/notifier.py"
MEMBER: Final = "stream_metrics/live/kafka/group_source.py"

_NUMPY: Final = "tests/services/test_evidence_rules.py::test_evidence_is_that_of_numpy"
_POOL: Final = (
    "tests/services/test_evidence_rules.py::test_evidence_about_a_pool_is_the_sum_over_its_agents"
)
_GATHERED: Final = "tests/unit/test_evidence_gathered.py"
_FIRES: Final = "tests/services/test_alert_rules.py::test_the_rule_fires_as_expected[SRRSpike]"


def _of_evidence(name: str, breaks: str, old: str, new: str, agent: str) -> Mutation:
    """A mutation of the rules of evidence, which an agent of the cases shows."""
    edits = (Edit(EVIDENCE, old, new),)
    return Mutation(name, breaks, edits, f"{_NUMPY}[{agent}]", "FAILED:", service=True)


def _of_rules(name: str, breaks: str, edit: tuple[str, str, str], check: str) -> Mutation:
    """A mutation of rules that promtool shows."""
    return Mutation(name, breaks, (Edit(*edit),), check, "FAILED:", service=True)


ALERTS: Final = (
    _of_evidence(
        "withdrawals as evidence",
        "forgetting healthy conversations raises evidence",
        """and ignoring (shift, part) {_of(NET, part='denominator')} >= 0""",
        """and ignoring (shift, part) {_of(NET, part='denominator')} >= -1e9""",
        "2,000 healthy results are forgotten",
    ),
    _of_evidence(
        "evidence without a cap",
        "evidence drains for hours after an incident",
        "  0, 2\\n)",
        "  0, 1e9\\n)",
        "a quiet agent with an incident",
    ),
    _of_evidence(
        "evidence that does not age",
        "evidence of an agent that sleeps stays all night",
        "IDLE_LOSES: Final = 0.01",
        "IDLE_LOSES: Final = 0.0",
        "an agent with an incident goes to sleep",
    ),
    _of_evidence(
        "resets hidden by growth",
        "a restart counts if another counter has outgrown its former value",
        "unless ignoring (agent, release) ({_RESTARTED})",
        "unless ignoring (agent, release) ({_RESTARTED} > 1e18)",
        "restarts after which counters soon pass what they were",
    ),
    _of_evidence(
        "the usual day with its last hour",
        "an incident becomes part of the usual day at once",
        '"[86370s] offset 1h"',
        '"[86370s]"',
        "a quiet agent with an incident",
    ),
    _of_evidence(
        "judged without labels",
        "iterations that need no labels are evidence while labels stay away",
        "unless ignoring (shift, part) ({_unlabelled()})",
        "unless ignoring (shift, part) ({_unlabelled()} > 1e18)",
        "labels stay away",
    ),
    _of_evidence(
        "evidence that never ages without labels",
        "an alert fires for as long as labels stay away, whatever agents find meanwhile",
        "yield Record(CUSUM, _cusum(CUSUM, _STEP, judged))",
        "yield Record(CUSUM, _cusum(CUSUM, _STEP, every))",
        "labels stay away in the middle of an incident",
    ),
    _of_evidence(
        "a step without a limit",
        "a single search with an NDCG near 0 raises an alert",
        "-{MOST:g}, {MOST:g}",
        "-1e9, 1e9",
        "a quiet agent with an incident",
    ),
    _of_evidence(
        "losses without a limit",
        "one usual minute takes back the evidence of several bad ones",
        "-{MOST:g}, {MOST:g}",
        "-1e9, {MOST:g}",
        "a quiet agent with an incident",
    ),
    _of_evidence(
        "evidence after a single minute with traffic",
        "agents are judged before anything is known of them",
        "LEAST_ACTIVE: Final = 30",
        "LEAST_ACTIVE: Final = 1",
        "a new agent is not judged",
    ),
    _of_evidence(
        "a variance that was never measured",
        "the first hours of a new agent are judged by a variance that is far too small",
        "  or ({floor})\\n)\\n",
        "  or ({floor})\\n)\\nor ({floor})\\n",
        "a new agent is not judged",
    ),
    _of_rules(
        "a pool without a limit",
        "two agents of a pool that find nothing in the same minute raise an alert",
        (
            EVIDENCE,
            "{indented(_limited(step)).strip()}",
            "{indented(_limited(step) if step == _STEP else _fresh(step)).strip()}",
        ),
        _POOL,
    ),
    Mutation(
        "evidence of every worker",
        "all workers of a group tell the evidence, as they last read it",
        (Edit(GATHERING, "if tells():", "if True:"),),
        f"{_GATHERED}::test_only_the_owner_of_partition_0_exports",
        "assert two.exported() == {}",
    ),
    Mutation(
        "hours that are read once",
        "what arrives in an hour that was read before is never evidence",
        (Edit(GATHERING, "if held is None or held.mark != mark:", "if held is None:"),),
        f"{_GATHERED}::test_hours_that_have_not_changed_are_not_read_again",
        "[place for place, _ in two.store.read] == [1]",
    ),
    Mutation(
        "minutes that are told too soon",
        "a minute is judged by the partitions that are read fastest",
        (Edit(GATHERING, "min(near or known)", "max(near or known)"),),
        f"{_GATHERED}::test_a_minute_is_told_once_all_partitions_are_read_up_to_its_end",
        "(told.minute, told.late) == (NOW - 1, ())",
    ),
    _of_rules(
        "pools that age while their agents work",
        "evidence about a pool is lost although its agents have traffic",
        (EVIDENCE, 'f"sum without (agent) ({traffic})"', 'f"0 * sum without (agent) ({traffic})"'),
        _POOL,
    ),
    _of_rules(
        "pools that alerts do not see",
        "agents that share an index are judged one by one",
        (EVIDENCE, "yield Record(LEVEL, _level())", "yield Record(LEVEL, CUSUM)"),
        _FIRES,
    ),
    _of_rules(
        "pages for small shifts",
        "a warning wakes somebody up",
        (QUALITY, "expr=shifted(figure, LARGE)", "expr=shifted(figure)"),
        _FIRES,
    ),
    Mutation(
        "an old step added again",
        "a value from before a restart of Prometheus counts as one of this minute",
        (
            Edit(
                EVIDENCE,
                'return f"({series} and timestamp({series}) > time() - 90)"',
                "return series",
            ),
        ),
        "tests/services/test_evidence_rules.py"
        "::test_what_was_recorded_before_a_restart_is_not_added_again",
        "FAILED:",
        service=True,
    ),
    Mutation(
        "expressions without parentheses",
        "generated expressions are computed in another order than formulas",
        (
            Edit(
                PROMQL,
                'return self.text if self._level >= level else f"({self.text})"',
                "return self.text",
            ),
        ),
        f"{_NUMPY}[a quiet agent with an incident]",
        "FAILED:",
        service=True,
    ),
    Mutation(
        "lag without an answer",
        "lag keeps its last value while Kafka does not tell where the topics end",
        (Edit(LAG, "if not self.known:", "if False:"),),
        "tests/unit/test_lag.py::test_lag_that_cannot_be_read_has_no_sample",
        "consumer_lag_records",
    ),
    Mutation(
        "lag of before a wait",
        "the lag of before stays while the loop of the bridge waits for something",
        (Edit(INPUTS, "            if self._logs is logs:", "            if False:"),),
        "tests/unit/test_lag.py::test_lag_grows_while_the_loop_waits_for_something",
        "sum(before) + 1",
    ),
    Mutation(
        "silence for want of a right",
        "brokers that deny a topic are called silent once the client does not see it",
        (Edit(MEMBER, "            if not done:", "            if False:"),),
        "tests/unit/test_member.py::"
        "test_a_client_that_sees_no_topic_for_want_of_a_right_is_not_waited_for",
        "TimeoutError",
    ),
    Mutation(
        "an obstacle that nobody hears of",
        "no alert asks for what workers wait for, only for what bridges do",
        (Edit(OBSTACLES, '"streammetrics_obstacles": [', '"streammetrics_stuck": ['),),
        "tests/services/test_alert_rules.py::test_the_rule_fires_as_expected"
        "[StreamMetricsRightsMissing]",
        "FAILED:",
        service=True,
    ),
    Mutation(
        "news at every look",
        "a fault that lasts is told again every minute",
        (Edit(EPISODES, "now - episode.told_at >= REPEAT_SECONDS", "True"),),
        "tests/property/test_episodes.py::test_each_fault_is_told_begins_and_ends_once",
        "at - before >= REPEAT_SECONDS",
    ),
    Mutation(
        "an end for every doubt",
        "a fault ends as soon as nothing is known of it, and is told anew afterwards",
        (Edit(EPISODES, "found.state is State.UNSURE", "False"),),
        "tests/unit/test_notices.py::test_a_restart_tells_nothing_twice",
        "'begin', 'end'",
    ),
    Mutation(
        "no patience with who refuses",
        "a recipient that answers with an error is asked again every minute",
        (Edit(EPISODES, "2.0 ** min(failures - 1, 10)", "1.0"),),
        "tests/property/test_episodes.py::test_pauses_after_failures_grow_to_five_minutes",
        "range(12, 63, 5)",
    ),
    Mutation(
        "two in charge",
        "a worker that takes over tells of agents before it knows what was told",
        (Edit(NOTIFIER, "if not self._loaded and not self._alone:", "if False:"),),
        "tests/unit/test_notices.py::"
        "test_what_others_may_have_told_is_not_told_while_it_cannot_be_read",
        "assert hook.posted == []",
    ),
)
