"""The rules of the page: agents by the evidence that alerts go by, the worker by their conditions.

Prometheus gathers evidence from what arrives, and waits before it alerts. The page gathers it from
the sums of all partitions, and judges lag and the like of its own worker only. With too little
data, or without that of all partitions, the page says so and does not report that all is ok.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from stream_metrics.core.alerts.alert import CRITICAL, RUNBOOK, WARNING
from stream_metrics.core.alerts.hour import LEAST_ACTIVE
from stream_metrics.core.alerts.obstacles import (
    FETCH,
    KAFKA,
    NOT_READY,
    OBSTACLES,
    PROGRESS,
    READING,
    REDIS,
    RIGHTS,
    TOPICS,
    WRITES,
    Obstacle,
    kind_of,
)
from stream_metrics.core.alerts.table import ALERTS
from stream_metrics.core.alerts.thresholds import COVERED, LABELLED_OF_DAY, LAG_SECONDS, RESULTS
from stream_metrics.core.engine.config import OTHER, WINDOW_BUCKETS
from stream_metrics.live.links import ALERT, fill_template
from stream_metrics.live.page import agent_rules, worker_rules
from stream_metrics.live.page.agent_rules import AgentRule, EvidenceRule
from stream_metrics.live.page.courses import Course
from stream_metrics.live.page.finding import FAULTS, LEVELS, NONE, OK, UNKNOWN, Finding
from stream_metrics.live.page.group import STALE_SECONDS
from stream_metrics.live.page.worker_rules import Waits, Worker, WorkerRule

MAX_NEW_AGENTS: Final = 3
KNOWN_HOURS: Final = 1 + round(
    LEAST_ACTIVE * 24 / WINDOW_BUCKETS
)  # with the last one, which is not usual

_FIRES: Final = {alert.name: alert.fires for alert in ALERTS}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; ``fires`` says when it fires, ``look`` where to look then.

    ``alert`` is the name of the alert to see, which has a runbook. ``differs`` says how that alert
    differs from the rule; without it, it goes by the same.
    """

    name: str
    title: str
    alert: str
    fires: str
    look: str
    of_agent: AgentRule | None = None
    of_worker: WorkerRule | None = None
    differs: str = ""

    @property
    def relation(self) -> str:
        """A sentence about the alert."""
        if self.differs:
            return f"The alert {self.alert} {self.differs}."
        if self.of_agent is not None:
            return f"The alert {self.alert} goes by the same evidence."
        return f"Same as the alert {self.alert}."


def _of_alert(
    name: str, title: str, alert: str, look: str, *, of_agent: AgentRule | None = None,
    of_worker: WorkerRule | None = None,
) -> Rule:  # fmt: skip
    return Rule(name, title, alert, _FIRES[alert], look, of_agent, of_worker)


def _waits(name: str, title: str, alert: str, look: str, asks: str = "") -> Rule:
    return _of_alert(name, title, alert, look, of_worker=Waits(alert, asks))


RULES: Final = (
    _of_alert(
        "srr_spike", "SRR spike", "SRRSpike",
        "Did an index, a query rewriter or a prompt change? The worst conversations show what "
        "repeats.",
        of_agent=agent_rules.srr_spike,
    ),
    _of_alert(
        "results_drop", "Results drop", "StreamMetricsResultsDrop",
        "Is an index empty, or does a source answer with nothing?",
        of_agent=agent_rules.results_drop,
    ),
    _of_alert(
        "searches_empty", "Empty searches", "StreamMetricsSearchesEmpty",
        "Is the index of one route empty, or does its source fail?",
        of_agent=agent_rules.searches_empty,
    ),
    _of_alert(
        "searches_repeated", "Repeated searches", "StreamMetricsSearchesRepeated",
        "Does an agent loop? The worst conversations, ranked by repeated searches, are those that "
        "do.",
        of_agent=agent_rules.searches_repeated,
    ),
    _of_alert(
        "runaway_turn", "Runaway turn", "StreamMetricsRunawayTurn",
        "Does the agent loop? Its trace shows what it asks for again; stop it there.",
        of_worker=worker_rules.runaway_turns,
    ),
    _of_alert(
        "sre_drop", "SRE drop", "StreamMetricsEfficiencyDrop",
        "Did a source go missing, or the labeller change? The worst conversations show where it "
        "is low.",
        of_agent=agent_rules.sre_drop,
    ),
    _of_alert(
        "gain_drop", "Gain drop", "StreamMetricsGainDrop",
        "Do later iterations bring less? The worst conversations show wasted ones.",
        of_agent=agent_rules.gain_drop,
    ),
    _of_alert(
        "missed_retrievals", "Missed retrievals", "StreamMetricsRetrievalMissed",
        "Was the gate, or its threshold, changed?",
        of_agent=agent_rules.missed_retrievals,
    ),
    _of_alert(
        "routing_drop", "Routing drop", "StreamMetricsRoutingAccuracyDrop",
        "Did a route's source change, or the router?",
        of_agent=agent_rules.routing_drop,
    ),
    _of_alert(
        "reranking_worse", "Reranking made worse", "StreamMetricsRerankingWorse",
        "Was the reranker, or its model, changed?",
        of_agent=agent_rules.reranking_worse,
    ),
    Rule(
        "labels_missing", "Labels missing", "StreamMetricsJudgedShareLow",
        f"the share of the documents of {COVERED} that have a label is below "
        f"{LABELLED_OF_DAY:g} of what is usual, from {RESULTS} documents on; labels that always "
        "come later look the same, which the alerts about labels know",
        "Is the labeller up, and does it send to the topic that is read?",
        of_agent=agent_rules.labels_missing,
        differs="compares with what is usual so soon after the search",
    ),
    _waits("redis", "Redis unreachable", REDIS, "Does Redis run, and can this machine reach it?"),
    _waits(
        "kafka", "Kafka unreachable", KAFKA, "Do the brokers run, and can this machine reach them?"
    ),
    _waits(
        "fetch", "Fetching fails", FETCH, "Does the brokers' log report a damaged file?", KAFKA
    ),
    _waits("rights", "Rights missing", RIGHTS, "Did somebody change what this user may do?", KAFKA),
    _waits("topics", "Topics missing", TOPICS, "Was the topic deleted?", KAFKA),
    _waits(
        "writes", "Writes refused", WRITES,
        "Is there room on the disks? Does the topic exist, and are enough replicas in sync?",
        KAFKA,
    ),
    _waits(
        "reading_stopped", "Reading stopped", READING,
        "Were partitions added? Does a build need more memory than Redis has?",
        KAFKA,
    ),
    _waits(
        "no_progress", "No progress", PROGRESS,
        "Restart the worker, unless your orchestrator does. The end of its log says what is stuck.",
    ),
    _waits("not_ready", "Not ready", NOT_READY, "Is the consumer group stable?"),
    Rule(
        "partitions", "Partitions missing", "StreamMetricsPartitionsUnowned",
        f"no worker works on a partition, its worker is more than {LAG_SECONDS} s behind, or its "
        f"figures could not be read for {STALE_SECONDS:.0f} s",
        "Is the worker up that had it? /readyz of each worker says what it waits for.",
        of_worker=worker_rules.partitions,
        differs="fires while a partition has no worker; that a worker is behind, or does not reach "
        "its state, has alerts of its own",
    ),
    _of_alert(
        "lag", "Consumer lag", "StreamMetricsConsumerLagGrowing",
        "Is there more traffic than workers can take, or does Redis answer slowly?",
        of_worker=worker_rules.lag,
    ),
    _of_alert(
        "dead_letters", "Dead letters", "StreamMetricsDeadLetters",
        "stream-metrics dlq list says which records, and why.",
        of_worker=worker_rules.dead_letters,
    ),
    _of_alert(
        "memory", "State near its limit", "StreamMetricsStateNearLimit",
        "Give Redis more memory, or shorten state.ttl; beyond the limit nothing is written.",
        of_worker=worker_rules.memory,
    ),
    _of_alert(
        "offset_gaps", "Offset gap", "StreamMetricsOffsetGap",
        "docs/guides/troubleshooting.md says what to do about a halted partition.",
        of_worker=worker_rules.offset_gaps,
    ),
)  # fmt: skip


Pools = Mapping[str, Mapping[str, Course]]
"""The courses of agents that share something, such as an index, by its name and by agent."""


def pools_of(pools: Mapping[str, str], courses: Mapping[str, Course]) -> Pools:
    """The pools of some agents; ``pools`` are their names, by agent."""
    by_pool: dict[str, dict[str, Course]] = {}
    for agent, course in courses.items():
        if agent in pools and agent != OTHER:
            by_pool.setdefault(pools[agent], {})[agent] = course
    return by_pool


def judge(
    agents: Mapping[str, Course],
    now: Worker,
    rules: Sequence[Rule] = RULES,
    runbook_url: str | None = None,
    pools: Pools | None = None,
) -> list[dict[str, Any]]:
    """The state of every rule: its level, and its findings, the worst first.

    ``runbook_url`` is a template for links to runbooks. A fault of one of ``pools`` is a finding
    about each of its agents.
    """
    states = []
    for rule in rules:
        findings = sorted(
            _findings(rule, agents, now, pools or {}), key=lambda f: LEVELS.index(f.level)
        )
        states.append(
            {
                "name": rule.name,
                "title": rule.title,
                "alert": rule.alert,
                "relation": rule.relation,
                "runbook": RUNBOOK.replace("{alert}", rule.alert),
                "runbook_url": fill_template(runbook_url, ALERT, rule.alert),
                "fires": rule.fires,
                "look": rule.look,
                "of": "agent" if rule.of_agent else "worker",
                "level": findings[0].level if findings else NONE,
                "findings": [
                    {
                        "level": f.level,
                        "agent": f.agent,
                        "why": f.why,
                        "above": f.above,
                        "since": f.since,
                    }
                    for f in findings
                ],
            }
        )
    return states


def verdict(
    states: Sequence[Mapping[str, Any]],
    reasons: Mapping[str, str],
    fresh: Sequence[str] = (),
    building: int = 0,
    unread: str = "",
) -> dict[str, str]:
    """The summary at the top of the page: ``level``, ``title`` and ``text``.

    ``states`` are the result of ``judge``, ``reasons`` why the worker is not ready, ``fresh`` the
    agents without usual values yet, ``unread`` why the worker's metrics could not be read. The
    level is that of the worst fault; without faults it is ``ok`` only if every rule with something
    to judge has enough data, and at least one rule has judged an agent.
    """
    rules = Counter(state["level"] for state in states)
    faults = [f["level"] for state in states for f in state["findings"] if f["level"] in FAULTS]
    counts = _counts(rules)
    if building:
        title = f"Generation {building} of the state is being built"
        text = (
            "Its figures appear once it takes the place of the one in force. Until then, see the "
            "page of a worker of that one."
        )
        level = WARNING if reasons else UNKNOWN
        return {"level": level, "title": f"{title}, and waits" if reasons else title, "text": text}
    if "partitions" in reasons:
        text = "They go on once `stream-metrics build` has built the state anew; see below."
        title = "Figures stand still: topics have other partition counts than the state"
        return {"level": CRITICAL, "title": title, "text": text}
    if waits_for := waiting(reasons):
        text = "Figures stand as they were last written, and go on from there."
        return {"level": CRITICAL, "title": f"Waiting for {waits_for.waits_for}", "text": text}
    if faults:
        many = len(faults) > 1
        title = f"{len(faults)} things need a look" if many else "One thing needs a look"
        return {"level": min(faults, key=LEVELS.index), "title": title, "text": counts}
    if unread:
        title = "The metrics of this worker could not be read"
        text = f"{unread}. Its log has more. {counts}"
        return {"level": WARNING, "title": title, "text": text}
    of_agents = [state for state in states if state["of"] == "agent"]
    if not any(state["findings"] for state in of_agents):
        text = "Figures appear with the first search."
        return {"level": UNKNOWN, "title": "No searches yet", "text": text}
    if rules[UNKNOWN]:
        title = f"Too little data to judge: {rules[UNKNOWN]} of {len(states)} rules"
        others = _counts(rules - Counter({UNKNOWN: rules[UNKNOWN]}))
        parts = [part for part in (others, _new_agents_text(fresh)) if part]
        return {"level": UNKNOWN, "title": title, "text": " ".join(parts)}
    if all(state["level"] == NONE for state in of_agents):
        return {"level": UNKNOWN, "title": "No searches to judge", "text": counts}
    return {"level": OK, "title": "Nothing is wrong", "text": counts}


def waiting(reasons: Iterable[str]) -> Obstacle | None:
    """What the worker waits for first; None if it reads, although a partition may be halted, or
    more be sent than it reads."""
    kinds = {kind_of(reason) for reason in reasons} - {"halted", "backlog"}
    return next((obstacle for obstacle in OBSTACLES if obstacle.reason in kinds), None)


def _new_agents_text(agents: Sequence[str]) -> str:
    """When usual values of new agents will be known.

    >>> _new_agents_text(["a", "b", "c", "d", "e"])
    'What is usual for a, b, c and 2 more is known after about 3 hours of searches.'
    """
    if not agents:
        return ""
    more = len(agents) - MAX_NEW_AGENTS
    *named, last = [*agents[:MAX_NEW_AGENTS], *([f"{more} more"] if more > 0 else [])]
    who = f"{', '.join(named)} and {last}" if named else last
    return f"What is usual for {who} is known after about {KNOWN_HOURS} hours of searches."


def _counts(rules: Mapping[str, int]) -> str:
    """The number of rules without a fault, without enough data, and with nothing to judge."""

    def said(level: str, one: str, many: str) -> list[str]:
        count = rules.get(level, 0)
        return [f"{count} rule {one}" if count == 1 else f"{count} rules {many}"] if count else []

    parts = (
        *said(OK, "finds no fault", "find no fault"),
        *said(UNKNOWN, "cannot tell", "cannot tell"),
        *said(NONE, "has nothing to judge", "have nothing to judge"),
    )
    return f"{'; '.join(parts)}." if parts else ""


def _findings(
    rule: Rule, agents: Mapping[str, Course], now: Worker, pools: Pools
) -> Iterator[Finding]:
    if rule.of_worker is not None:
        yield rule.of_worker(now)
    elif rule.of_agent is not None:
        faults = _faults_of(rule.of_agent, pools) if isinstance(rule.of_agent, EvidenceRule) else {}
        for agent, course in agents.items():
            finding = replace(rule.of_agent(course), agent=agent)
            if agent == OTHER and finding.level != NONE:  # a mixture has no usual values
                finding = Finding(
                    UNKNOWN, "agents without series of their own are not judged", agent
                )
            fault = faults.get(agent, finding)
            if LEVELS.index(fault.level) < LEVELS.index(finding.level):
                finding = replace(
                    finding, level=fault.level, why=f"{fault.why}; by itself: {finding.why}"
                )
            yield _with_missing_partitions(now.coverage.missing, finding)


def _faults_of(rule: EvidenceRule, pools: Pools) -> dict[str, Finding]:
    """What is wrong with pools, by agent; an alert would fire for each of these agents."""
    return {
        agent: Finding(
            level, f"over all agents of {name} together, this has shifted by more than chance"
        )
        for name, courses in pools.items()
        if (level := rule.level_of(courses.values())) is not None
        for agent, course in courses.items()
        if rule.counts(course)
    }


def _with_missing_partitions(missing: str, finding: Finding) -> Finding:
    """The finding if sums lack the latest events of some partitions: it cannot be ok then."""
    if not missing:
        return finding
    level = finding.level if finding.level in FAULTS else UNKNOWN
    return replace(finding, level=level, why=f"{finding.why}, without the latest of {missing}")
