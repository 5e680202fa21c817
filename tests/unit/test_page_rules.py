"""The page's rules: each fires on what it is for, and neither on little nor on what is usual."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.adapters.page import conditions
from stream_metrics.adapters.page.conditions import (
    BASELINE,
    CRITICAL,
    LONG,
    OK,
    SHORT,
    UNKNOWN,
    WARNING,
    Finding,
    Window3,
    Worker,
)
from stream_metrics.adapters.page.operating import History, Operating
from stream_metrics.adapters.page.rules import RULES, judge
from stream_metrics.engine.windows import DEFAULT_WINDOWS

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.rules.yml"
BY_NAME = {rule.name: rule for rule in RULES}
Sums = dict[str, int]


def agent(name: str, short: Sums, long: Sums, baseline: Sums) -> Finding:
    """What an agent rule finds."""
    rule = BY_NAME[name].of_agent
    assert rule is not None
    return rule(Window3(short, long, baseline))


def worker(name: str, now: Operating, *before: Operating, **reasons: str) -> Finding:
    """What a worker rule finds."""
    rule = BY_NAME[name].of_worker
    assert rule is not None
    history = History()
    for sample in before:
        history.add(sample)
    return rule(Worker(now, history, reasons))


def srr(results: int, duplicates: int) -> Sums:
    """Sums with this SRR."""
    return {"r": results, "d": duplicates}


@pytest.mark.parametrize(
    ("short", "long", "baseline", "level"),
    [
        (srr(50, 30), srr(400, 240), srr(9_000, 1_800), CRITICAL),
        (srr(50, 20), srr(400, 160), srr(9_000, 1_800), WARNING),
        (srr(50, 10), srr(400, 240), srr(9_000, 1_800), OK),  # over again
        (srr(50, 30), srr(400, 80), srr(9_000, 1_800), OK),  # a blip
        (srr(50, 20), srr(400, 160), srr(9_000, 3_600), OK),  # as always
        (srr(0, 0), srr(400, 240), srr(9_000, 1_800), OK),  # no traffic now
        (srr(50, 30), srr(199, 150), srr(9_000, 1_800), UNKNOWN),
    ],
)
def test_an_srr_spike_is_high_unusual_and_goes_on(
    short: Sums, long: Sums, baseline: Sums, level: str
) -> None:
    """It takes both windows above the threshold and above 1.5 times what is usual."""
    assert agent("srr_spike", short, long, baseline).level == level


@pytest.mark.parametrize(
    ("name", "codes"), [("sre_drop", ("sg", "sr")), ("gain_drop", ("sG", "si"))]
)
@pytest.mark.parametrize(
    ("short", "long", "level"),
    [(30, 60, WARNING), (30, 30, CRITICAL), (100, 30, OK), (30, 90, OK)],
)
def test_a_drop_is_far_below_what_is_usual(
    name: str, codes: tuple[str, str], short: int, long: int, level: str
) -> None:
    """Both windows must be below, and settled iterations are what counts."""
    part, whole = codes
    usual = {part: 1_000, whole: 1_000}

    found = agent(name, {part: short, whole: 100}, {part: 3 * long, whole: 300}, usual)

    assert found.level == level
    assert agent(name, {}, {part: 0, whole: 10}, usual).level == UNKNOWN
    assert agent(name, {}, {part: 0, whole: 300}, {}).level == UNKNOWN


@pytest.mark.parametrize(
    ("short", "long", "level"),
    [(0, 0, CRITICAL), (40, 40, CRITICAL), (0, 60, OK), (60, 40, OK), (100, 100, OK)],
)
def test_results_drop_where_searches_find_less_than_half(short: int, long: int, level: str) -> None:
    """In both windows, also where they find nothing at all."""
    usual = {"r": 10_000, "s": 1_000}

    found = agent("results_drop", {"r": short, "s": 10}, {"r": 10 * long, "s": 100}, usual)

    assert found.level == level
    assert agent("results_drop", {}, {"r": 0, "s": 49}, usual).level == UNKNOWN
    assert agent("results_drop", {}, {"r": 0, "s": 100}, {}).level == UNKNOWN


def test_missed_retrievals_are_skips_that_were_needed() -> None:
    """More than a fifth of the labelled decisions is a warning."""
    assert agent("missed_retrievals", {}, {"q|skip|yes": 21, "q|search|yes": 79}, {}).level == (
        WARNING
    )
    assert agent("missed_retrievals", {}, {"q|skip|yes": 19, "q|search|yes": 81}, {}).level == OK
    assert agent("missed_retrievals", {}, {"q|skip|yes": 9}, {}).level == UNKNOWN


def test_routing_drops_against_what_is_usual() -> None:
    """A router that was never good is not reported anew."""
    usual = {"R|a|yes": 900, "R|a|no": 100}

    assert agent("routing_drop", {}, {"R|a|yes": 70, "R|a|no": 30}, usual).level == WARNING
    assert agent("routing_drop", {}, {"R|a|yes": 85, "R|a|no": 15}, usual).level == OK
    assert agent("routing_drop", {}, {"R|a|yes": 7, "R|a|no": 3}, usual).level == UNKNOWN


def test_reranking_made_worse_compares_the_two_orders() -> None:
    """The order shown must not have a lower NDCG than the one before it."""
    worse = {"kc": 100, "ks|shown": 90, "ks|baseline": 100}
    better = {"kc": 100, "ks|shown": 110, "ks|baseline": 100}

    assert agent("reranking_worse", {}, worse, {}).level == WARNING
    assert "10% worse" in agent("reranking_worse", {}, worse, {}).why
    assert "10% better" in agent("reranking_worse", {}, better, {}).why
    assert agent("reranking_worse", {}, {**worse, "kc": 3}, {}).level == UNKNOWN


@pytest.mark.parametrize(
    ("long", "baseline", "level"),
    [
        ({"l": 0, "u": 300}, {"l": 500, "u": 9_000}, CRITICAL),
        ({"l": 30, "u": 300}, {"l": 500, "u": 9_000}, WARNING),
        ({"l": 200, "u": 300}, {"l": 500, "u": 9_000}, OK),
        ({"l": 0, "u": 300}, {"l": 0, "u": 9_000}, UNKNOWN),  # nobody labels here
        ({"l": 0, "u": 10}, {"l": 500, "u": 9_000}, UNKNOWN),
    ],
)
def test_missing_labels_are_missed_only_where_they_came_before(
    long: Sums, baseline: Sums, level: str
) -> None:
    """Where nothing was ever labelled nothing has stopped."""
    assert agent("labels_missing", {}, long, baseline).level == level


def test_a_worker_that_is_not_ready_says_why() -> None:
    """Each reason of ``/readyz`` is in the sentence."""
    found = worker("not_ready", Operating(0), redis="cannot be reached")

    assert (found.level, found.why) == (CRITICAL, "redis: cannot be reached")
    assert worker("not_ready", Operating(0)).level == OK


@pytest.mark.parametrize(
    ("seconds", "level"), [(None, UNKNOWN), (1.0, OK), (121.0, WARNING), (301.0, CRITICAL)]
)
def test_lag_is_judged_by_age(seconds: float | None, level: str) -> None:
    """It is the age of the next record that counts."""
    records = None if seconds is None else 5.0
    assert worker("lag", Operating(0, records, seconds)).level == level


def test_dead_letters_are_a_share_of_the_last_minutes() -> None:
    """What was turned away an hour ago does not count any more."""
    old = Operating(0, dead_letters=0, events=0)
    before = Operating(3_500, dead_letters=500, events=1_000)

    def level(dead: int, events: int) -> str:
        now = Operating(3_600, dead_letters=500 + dead, events=1_000 + events)
        return worker("dead_letters", now, old, before).level

    assert level(0, 100) == OK
    assert level(10, 490) == OK
    assert level(15, 485) == WARNING
    assert level(100, 400) == CRITICAL
    assert level(3, 0) == OK  # few
    assert level(0, 0) == UNKNOWN


@pytest.mark.parametrize(
    ("used", "limit", "level"),
    [
        (0, 0, UNKNOWN),
        (900, 0, OK),
        (700, 1_000, OK),
        (850, 1_000, WARNING),
        (950, 1_000, CRITICAL),
    ],
)
def test_memory_is_judged_where_there_is_a_limit(used: int, limit: int, level: str) -> None:
    """A Redis without a limit is never near it."""
    now = Operating(0, memory_bytes=used, memory_limit_bytes=limit)
    assert worker("memory", now).level == level


def test_an_offset_gap_stays_until_the_worker_is_started_again() -> None:
    """Records are gone for good, and somebody has to decide."""
    assert worker("offset_gaps", Operating(0, offset_gaps=1)).level == CRITICAL
    assert worker("offset_gaps", Operating(0)).level == OK


def test_a_rule_has_the_worst_level_of_its_agents() -> None:
    """Every agent's finding is there, the worst first; ``other`` is nobody and is left out."""
    bad = Window3(srr(50, 30), srr(400, 240), srr(9_000, 1_800))
    good = Window3(srr(50, 5), srr(400, 40), srr(9_000, 900))
    agents = {"good": good, "bad": bad, "other": bad}

    states = judge(agents, Worker(Operating(0), History(), {}))

    spike = next(state for state in states if state["name"] == "srr_spike")
    assert spike["level"] == CRITICAL
    assert [found["agent"] for found in spike["findings"]] == ["bad", "good"]


def test_without_an_agent_rules_know_nothing() -> None:
    """Before the first search no agent rule claims that all is well."""
    states = judge({}, Worker(Operating(0), History(), {}))

    assert {state["level"] for state in states if state["of"] == "agent"} == {UNKNOWN}


def test_rules_speak_of_windows_that_are_kept_by_default() -> None:
    """The windows that rules compare are among the default ones."""
    assert {SHORT, LONG, BASELINE} <= {window.name for window in DEFAULT_WINDOWS}


@pytest.mark.parametrize(
    ("alert", "threshold"),
    [
        ("SRRSpike", f"> {conditions.SRR_WARNING:g}"),
        ("SRRSpike", f"> {conditions.SRR_CRITICAL:g}"),
        ("SRRSpike", f"> {conditions.SRR_OF_USUAL:g} *"),
        ("SRRSpike", f">= {conditions.RESULTS}"),
        ("StreamMetricsResultsDrop", f"< {conditions.RESULTS_DROP:g} *"),
        ("StreamMetricsEfficiencyDrop", f"< {conditions.DROP_WARNING:g} *"),
        ("StreamMetricsGainDrop", f"< {conditions.DROP_WARNING:g} *"),
        ("StreamMetricsRetrievalMissed", f"> {conditions.MISSED_WARNING:g}"),
        ("StreamMetricsRoutingAccuracyDrop", f"- {conditions.ROUTING_DROP:g}"),
        ("StreamMetricsConsumerLagGrowing", f"> {conditions.LAG_WARNING_SECONDS:g}"),
        ("StreamMetricsDeadLetters", f"> {conditions.DEAD_WARNING:g}"),
        ("StreamMetricsStateNearLimit", f"> {conditions.MEMORY_WARNING:g}"),
    ],
)
def test_thresholds_are_those_of_the_alerts(alert: str, threshold: str) -> None:
    """Page and pager do not contradict each other on what is much."""
    rules = ALERTS.read_text(encoding="utf-8").split("- alert: ")
    found = [rule for rule in rules if rule.splitlines()[0] == alert]

    assert any(f"{threshold}\n" in rule or f"{threshold} " in rule for rule in found)


def test_the_line_on_the_chart_is_where_the_rule_has_it() -> None:
    """The page draws the warning's threshold."""
    charts = (Path(conditions.__file__).parent / "static" / "course.js").read_text("utf-8")

    assert re.findall(r"threshold: \{ value: ([\d.]+)", charts) == [f"{conditions.SRR_WARNING:g}"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_is_explained(rule: Any) -> None:
    """It has a title, says when it fires and where to look, and judges agents or the worker."""
    assert re.fullmatch(r"[a-z_]+", rule.name)
    assert rule.title
    assert rule.fires
    assert rule.look
    assert (rule.of_agent is None) != (rule.of_worker is None)
