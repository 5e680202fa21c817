"""The page's rules on workers, and the verdict on all rules."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.alerts.obstacles import OBSTACLES, Obstacle
from stream_metrics.core.alerts.table import ALERTS
from stream_metrics.core.engine.config import OTHER
from stream_metrics.live.page.finding import FAULTS, NONE, OK, UNKNOWN, Finding
from stream_metrics.live.page.group import Coverage
from stream_metrics.live.page.operations import History, OperationsSample
from stream_metrics.live.page.rules import RULES, judge, pools_of, verdict
from stream_metrics.live.page.worker_rules import Worker
from tests.rules.page import course, found, srr

BY_NAME = {rule.name: rule for rule in RULES}
WELL = Worker(OperationsSample(0), History(), {}, coverage=Coverage((), 1))


def worker(name: str, now: OperationsSample, *before: OperationsSample, **reasons: str) -> Finding:
    """The findings of a worker rule."""
    rule = BY_NAME[name].of_worker
    assert rule is not None
    history = History()
    for sample in before:
        history.add(sample)
    return rule(Worker(now, history, reasons))


def test_partitions_are_not_complete_while_their_number_is_unknown() -> None:
    """There is no finding about them until then."""
    rule = BY_NAME["partitions"].of_worker
    assert rule is not None
    uncounted = Worker(OperationsSample(0), History(), {}, coverage=Coverage((), None))

    assert rule(uncounted).level == UNKNOWN


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda one: one.reason)
def test_a_worker_that_is_not_ready_says_why(obstacle: Obstacle) -> None:
    """The rule of the alert about a reason of ``/readyz`` finds it, with what it says, and since
    when; no other rule does."""
    if not obstacle.worker:
        return
    reason = "partition-3" if obstacle.reason == "halted" else obstacle.reason
    now = OperationsSample(0, halted_partitions=float(obstacle.reason == "halted"))
    waits = Worker(now, History(), {reason: "it is away."}, since={reason: 7.0})
    found = {state["alert"]: state for state in judge({}, waits) if state["level"] in FAULTS}

    assert found.keys() == {obstacle.alert}
    (finding,) = found[obstacle.alert]["findings"]
    assert finding["level"] == obstacle.severity
    assert finding["why"].endswith(f"{reason}: it is away")
    assert finding["since"] == 7.0


def test_a_worker_without_partitions_waits_for_what_keeps_them_away() -> None:
    """While it has not joined the group because Kafka is away, only that is a fault."""
    reasons = {"assignment": "not joined", "kafka": "away"}

    assert worker("kafka", OperationsSample(0), **reasons).level == CRITICAL
    assert worker("not_ready", OperationsSample(0), **reasons).level == NONE
    assert worker("not_ready", OperationsSample(0), assignment="not joined").level == CRITICAL


def test_what_only_kafka_can_tell_is_unknown_without_it() -> None:
    """Nobody knows whether topics or rights are missing while no broker answers."""
    waits = Worker(OperationsSample(0), History(), {"kafka": "away"}, since={"kafka": 5.0})
    states = {state["name"]: state["findings"] for state in judge({}, waits)}

    for name in ("fetch", "rights", "topics", "writes", "reading_stopped"):
        (finding,) = states[name]
        assert (finding["level"], finding["since"]) == (UNKNOWN, 5.0)
        assert finding["why"] == "Kafka does not answer, so this is not known"
    assert worker("rights", OperationsSample(0), rights="READ", kafka="away").level == CRITICAL


def test_every_rule_says_which_alert_is_about_it() -> None:
    """Each names an existing alert, and says how it differs unless it goes by the same."""
    known = {alert.name for alert in ALERTS}

    for rule in RULES:
        assert rule.alert in known
        assert rule.alert in rule.relation
        assert rule.relation.endswith(".")


def test_what_is_unknown_is_said_with_since_when() -> None:
    """Lag is unknown since the brokers last told the ends, memory since Redis is away."""
    now = OperationsSample(100.0, lag_known_at=40.0)
    waits = Worker(now, History(), {"redis": "away"}, since={"redis": 60.0})
    rules = {state["name"]: state["findings"][0] for state in judge({}, waits) if state["findings"]}

    assert (rules["lag"]["level"], rules["lag"]["since"]) == (UNKNOWN, 40.0)
    assert (rules["memory"]["level"], rules["memory"]["since"]) == (UNKNOWN, 60.0)


@pytest.mark.parametrize(
    ("ago", "seconds", "level"),
    [
        ({}, None, UNKNOWN),
        ({}, 120.0, OK),
        ({180: 300.0}, 120.0, OK),
        ({180: 300.0}, 121.0, WARNING),  # on its way
        ({180: 120.0}, 121.0, CRITICAL),
        ({600: 990.0, 180: 960.0}, 950.0, CRITICAL),  # hardly
        ({600: 1_001.0, 180: 960.0}, 950.0, WARNING),
        ({60: 10.0}, 500.0, WARNING),  # not known yet
    ],
)
def test_lag_is_critical_if_it_does_not_decrease(
    ago: dict[int, float], seconds: float | None, level: str
) -> None:
    """The age of the next record is compared with that of some minutes ago."""
    records = None if seconds is None else 5.0
    before = [OperationsSample(1_000.0 - at, records, was) for at, was in ago.items()]

    assert worker("lag", OperationsSample(1_000.0, records, seconds), *before).level == level


def test_dead_letters_are_a_share_of_the_last_minutes() -> None:
    """Rejections of an hour ago do not count any more."""
    old = OperationsSample(0, dead_letters=0, events=0)
    before = OperationsSample(3_000, dead_letters=500, events=1_000)

    def level(dead: int, events: int) -> str:
        now = OperationsSample(3_600, dead_letters=500 + dead, events=1_000 + events)
        return worker("dead_letters", now, old, before).level

    assert level(0, 0) == NONE
    assert level(0, 3) == OK
    assert level(0, 100) == OK
    assert level(10, 490) == OK
    assert level(11, 489) == WARNING
    assert level(50, 49) == UNKNOWN  # few
    assert worker("dead_letters", OperationsSample(3_600, dead_letters=9)).level == UNKNOWN


@pytest.mark.parametrize(
    ("used", "limit", "level"),
    [
        (None, None, UNKNOWN),
        (900, 0, OK),
        (700, 1_000, OK),
        (850, 1_000, WARNING),
    ],
)
def test_memory_is_judged_only_with_a_limit(
    used: int | None, limit: int | None, level: str
) -> None:
    """A Redis without a limit is never near it."""
    now = OperationsSample(0, memory_bytes=used, memory_limit_bytes=limit)
    assert worker("memory", now).level == level


def test_an_offset_gap_is_reported_for_fifteen_minutes() -> None:
    """Its alert lasts as long; a halted partition is reported until it continues."""
    gone, none = OperationsSample(1_000, offset_gaps=1), OperationsSample(0)

    assert worker("offset_gaps", gone).level == CRITICAL
    assert worker("offset_gaps", gone, none).level == CRITICAL
    assert worker("offset_gaps", gone, none, OperationsSample(50, offset_gaps=1)).level == OK
    assert worker("offset_gaps", OperationsSample(1_000, halted_partitions=1)).level == CRITICAL
    assert worker("offset_gaps", OperationsSample(1_000)).level == OK


def test_a_rule_has_the_worst_level_of_its_agents() -> None:
    """Every agent's finding is listed, the worst first; ``other`` is no agent and is not judged."""
    good = course([srr(10, 100)] * 50, [srr(10, 100)] * 60)
    bad = course([srr(10, 100)] * 50, [srr(80, 100)] * 60)
    agents = {"good": good, "bad": bad, "other": bad}

    states = judge(agents, Worker(OperationsSample(0), History(), {}))

    spike = next(state for state in states if state["name"] == "srr_spike")
    assert spike["level"] == CRITICAL
    assert [(found["agent"], found["level"]) for found in spike["findings"]] == [
        ("bad", CRITICAL),
        ("other", UNKNOWN),
        ("good", OK),
    ]


def test_the_page_is_not_green_with_agents_that_are_not_judged() -> None:
    """Agents without their own series may be at fault."""
    good = course([srr(10, 100)] * 50, [srr(10, 100)] * 60)
    silent = course([], [])
    now, history = OperationsSample(600, 0.0, 0.0, events=10, memory_bytes=1), History()
    history.add(OperationsSample(0))
    rules = [rule for rule in RULES if rule.name in ("srr_spike", "dead_letters", "lag")]

    def level(**agents: Any) -> str:
        return verdict(judge(agents, Worker(now, history, {}), rules), {})["level"]

    assert level(good=good) == OK
    assert level(good=good, other=silent) == OK
    assert level(good=good, other=good) == UNKNOWN


def test_without_an_agent_nothing_is_fine() -> None:
    """Before the first search neither an agent rule nor the page is green."""
    states = judge({}, Worker(OperationsSample(0), History(), {}))

    assert {state["level"] for state in states if state["of"] == "agent"} == {NONE}
    assert verdict(states, {})["title"] == "No searches yet"
    assert verdict(states, {})["level"] == UNKNOWN


def test_a_rule_without_a_verdict_on_one_agent_is_not_fine() -> None:
    """Another agent is fine; the page names the new one."""
    known = course([found(900, 100)] * 50, [found(900, 100)] * 60)
    fresh = course([], [found(900, 100)] * 60)

    states = judge({"known": known, "fresh": fresh}, Worker(OperationsSample(0), History(), {}))

    drop = next(state for state in states if state["name"] == "results_drop")
    assert drop["level"] == UNKNOWN
    assert [(f["agent"], f["level"]) for f in drop["findings"]] == [
        ("fresh", UNKNOWN),
        ("known", OK),
    ]


def states_of(*levels: str) -> list[dict[str, Any]]:
    """States of rules about one agent, with these levels."""
    return [
        {"level": level, "of": "agent", "findings": [{"level": level, "agent": "a"}]}
        for level in levels
    ]


@pytest.mark.parametrize(
    ("levels", "level", "title", "text"),
    [
        (
            [OK, OK, NONE], OK, "Nothing is wrong",
            "2 rules find no fault; 1 rule has nothing to judge.",
        ),
        (
            [OK, UNKNOWN, UNKNOWN, NONE], UNKNOWN, "Too little data to judge: 2 of 4 rules",
            "1 rule finds no fault; 1 rule has nothing to judge.",
        ),
        ([NONE, NONE], UNKNOWN, "No searches to judge", "2 rules have nothing to judge."),
        (
            [WARNING, UNKNOWN, OK], WARNING, "One thing needs a look",
            "1 rule finds no fault; 1 rule cannot tell.",
        ),
        ([WARNING, CRITICAL], CRITICAL, "2 things need a look", ""),
    ],
)  # fmt: skip
def test_the_page_is_green_only_if_every_rule_has_a_verdict(
    levels: list[str], level: str, title: str, text: str
) -> None:
    """At least one rule must apply."""
    assert verdict(states_of(*levels), {}) == {"level": level, "title": title, "text": text}


def test_the_banner_names_agents_without_a_baseline() -> None:
    """It says how long collecting one takes, and names them only if something is not judged."""
    assert verdict(states_of(OK, UNKNOWN), {}, ["a", "b"])["text"] == (
        "1 rule finds no fault. What is usual for a and b is known after about 3 hours of searches."
    )
    assert verdict(states_of(OK), {}, ["a"])["text"] == "1 rule finds no fault."


@pytest.mark.parametrize(
    ("reason", "title"),
    [
        ("redis", "Waiting for Redis"),
        ("kafka", "Waiting for Kafka"),
        ("repartition_kafka", "Waiting for Kafka"),
        ("something new", "Waiting for something else"),
        ("partitions", "Figures stand still: topics have other partition counts than the state"),
    ],
)
def test_a_waiting_worker_is_not_green(reason: str, title: str) -> None:
    """Whatever the rules find, the page begins with the reason of the wait."""
    found = verdict(states_of(OK), {reason: "cannot be reached"})

    assert (found["level"], found["title"]) == (CRITICAL, title)


@pytest.mark.parametrize("reason", ["partition-3", "backlog"])
def test_what_does_not_stop_all_reading_is_not_waited_for(reason: str) -> None:
    """The banner does not say that figures stand; a rule finds the halted partition, or that more
    is sent than can be read at once."""
    assert verdict(states_of(OK), {reason: "so it is"})["level"] == OK


@pytest.mark.parametrize(
    ("reasons", "level", "more"),
    [({}, UNKNOWN, ""), ({"reading": "Redis is full"}, WARNING, ", and waits")],
)
def test_the_page_of_a_build_shows_no_verdict(
    reasons: dict[str, str], level: str, more: str
) -> None:
    """It is not green, as nothing is judged, and reports no fault of the figures in force."""
    found = verdict(states_of(OK), reasons, building=2)

    assert found["level"] == level
    assert found["title"] == f"Generation 2 of the state is being built{more}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_is_explained(rule: Any) -> None:
    """It has a title, says when it fires and where to look, and is about agents or the worker."""
    assert re.fullmatch(r"[a-z_]+", rule.name)
    assert rule.title
    assert rule.fires
    assert rule.look
    assert (rule.of_agent is None) != (rule.of_worker is None)


def test_a_fault_of_a_pool_is_shown_for_the_agents_whose_alerts_fire() -> None:
    """These have traffic in the last half hour, and it is known what is usual for them."""
    day, bad = [srr(25, 100)] * 50, [srr(14, 20)] * 2
    always = [srr(97, 100)] * 50
    agents = {
        "a": course(day, bad),
        "b": course(day, bad),
        "hardly worse": course(always, [srr(1, 1), *[srr(0, 0)] * 2]),
        "asleep": course(day, []),
        "not lately": course(day, [*bad, *[srr(0, 0)] * 35]),
        "new": course(day[:3], bad),
        OTHER: course(day, bad),
        "of no pool": course(day, bad),
    }
    members = dict.fromkeys(agents.keys() - {"of no pool"}, "the index")
    pools = pools_of(members, agents)

    (state,) = judge(agents, WELL, [BY_NAME["srr_spike"]], pools=pools)
    (alone,) = judge(agents, WELL, [BY_NAME["srr_spike"]])

    faults = [one for one in state["findings"] if one["level"] == CRITICAL]
    assert {one["agent"] for one in faults} == {"a", "b", "hardly worse"}
    assert all(
        one["why"].startswith("over all agents of the index together, this has shifted")
        for one in faults
    )
    assert {one["level"] for one in alone["findings"]} == {UNKNOWN, NONE}
