"""Broken builds whose alert rules gather evidence that there is not, or compare wrongly."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

EVIDENCE: Final = "stream_metrics/core/alerts/evidence.py"
SHIFTS: Final = "stream_metrics/core/alerts/shifts.py"
STANDING: Final = "stream_metrics/core/alerts/standing.py"
GATHERING: Final = "stream_metrics/live/page/evidence.py"
QUALITY: Final = "stream_metrics/core/alerts/quality.py"
OBSTACLES: Final = "stream_metrics/core/alerts/obstacles.py"
LAG: Final = "stream_metrics/live/worker/lag.py"
INPUTS: Final = "stream_metrics/live/worker/inputs.py"
EPISODES: Final = "stream_metrics/live/notify/episodes.py"
NOTIFIER: Final = "stream_metrics/live/notify/notifier.py"
MEMBER: Final = "stream_metrics/live/kafka/group_source.py"

_NUMPY: Final = "tests/unit/test_told.py::test_evidence_is_that_of_the_reference_at_every_minute"
_GATHERED: Final = "tests/unit/test_evidence_gathered.py"
_FIRES: Final = "tests/services/test_alert_rules.py::test_the_rule_fires_as_expected"


def _of_evidence(name: str, breaks: str, old: str, new: str, agent: str) -> Mutation:
    """A mutation of what gathers evidence, which an agent shows against the reference."""
    edits = (Edit(SHIFTS, old, new),)
    return Mutation(name, breaks, edits, f"{_NUMPY}[{agent}]", "Not equal to tolerance")


def _of_rules(name: str, breaks: str, edit: tuple[str, str, str], alert: str) -> Mutation:
    """A mutation of rules that the cases of an alert show."""
    return Mutation(name, breaks, (Edit(*edit),), f"{_FIRES}[{alert}]", "FAILED:", service=True)


ALERTS: Final = (
    _of_evidence(
        "withdrawals as evidence",
        "forgetting healthy conversations raises evidence",
        "lowers = came.below < 0 or not came.judged",
        "lowers = not came.judged",
        "2,000 healthy results are forgotten",
    ),
    _of_evidence(
        "evidence without a cap",
        "evidence drains for hours after an incident",
        "min(max(step, -most), most), 0.0), 2.0)",
        "min(max(step, -most), most), 0.0), 1e9)",
        "a quiet agent with an incident",
    ),
    _of_evidence(
        "evidence that does not age",
        "evidence of an agent that sleeps stays all night",
        "if traffic > 0 else 1.0 - IDLE_LOSES",
        "if traffic > 0 else 1.0",
        "an agent with an incident goes to sleep",
    ),
    _of_evidence(
        "the usual day with its last hour",
        "an incident becomes part of the usual day at once",
        "self._count(minutes[-AGO], 1)",
        "self._count(minutes[-1], 1)",
        "a quiet agent with an incident",
    ),
    _of_evidence(
        "judged without labels",
        "iterations that need no labels are evidence while labels stay away",
        "lowers = came.below < 0 or not came.judged",
        "lowers = came.below < 0",
        "labels stay away",
    ),
    _of_evidence(
        "evidence that never ages without labels",
        "an alert fires for as long as labels stay away, whatever agents find meanwhile",
        "Added(steps, below if judged else 0)",
        "Added(steps, below)",
        "labels stay away in the middle of an incident",
    ),
    _of_evidence(
        "a step without a limit",
        "a single search with an NDCG near 0 raises an alert",
        "min(max(step, -most), most)",
        "max(step, -most)",
        "a quiet agent with an incident",
    ),
    _of_evidence(
        "losses without a limit",
        "one usual minute takes back the evidence of several bad ones",
        "min(max(step, -most), most)",
        "min(step, most)",
        "a quiet agent with an incident",
    ),
    _of_evidence(
        "evidence after a single minute with traffic",
        "agents are judged before anything is known of them",
        "self._below <= 0 or self._active < LEAST_ACTIVE",
        "self._below <= 0",
        "a new agent is not judged",
    ),
    _of_evidence(
        "a variance that was never measured",
        "the first hours of a new agent are judged by a variance that is far too small",
        "if count < LEAST_ACTIVE:",
        "if count < 1:",
        "a new agent is not judged",
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
    Mutation(
        "pools that age while their agents work",
        "evidence about a pool is lost although its agents have traffic",
        (Edit(SHIFTS, "sum(each.traffic for each in there)", "0"),),
        "tests/unit/test_shifts.py"
        "::test_a_pool_has_the_evidence_of_the_steps_of_its_agents_together",
        "approx",
    ),
    Mutation(
        "pools that alerts do not see",
        "agents that share an index are judged one by one",
        (Edit(STANDING, "max(own.value, of_pool.value)", "own.value"),),
        "tests/unit/test_standing.py::test_a_member_has_the_evidence_of_its_pool_if_that_is_more",
        "expected",
    ),
    _of_rules(
        "pages for small shifts",
        "a warning wakes somebody up",
        (QUALITY, "expr=shifted(figure, LARGE)", "expr=shifted(figure)"),
        "SRRSpike",
    ),
    _of_rules(
        "an alert for each worker that tells",
        "an alert ends and begins anew while partition 0 moves",
        (EVIDENCE, "max without (instance, pod, figure) ", "max without (figure) "),
        "SRRSpike",
    ),
    _of_rules(
        "old evidence taken for news",
        "all agents look fine for as long as evidence stands still",
        (EVIDENCE, "{told} > time() - {seconds}", "{told} > {seconds - seconds}"),
        "StreamMetricsEvidenceMissing",
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
