"""The page's rules: each fires on its fault, and neither on little data nor on usual values."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.live.page.conditions import (
    NONE,
    OK,
    UNKNOWN,
    Finding,
)
from stream_metrics.live.page.group import Coverage
from stream_metrics.live.page.operations import History, OperationsSample
from stream_metrics.live.page.rules import RULES, Rule, judge, verdict
from stream_metrics.live.page.worker_rules import Worker
from tests.rules.page import with_day

BY_NAME = {rule.name: rule for rule in RULES}
Sums = dict[str, int]


def agent(name: str, usual: Sums, **windows: Sums) -> Finding:
    """The findings of an agent rule if only the named windows are unusual; ``m5`` is 5m.

    ``usual`` are also the sums of the day before the last hour.
    """
    rule = BY_NAME[name].of_agent
    assert rule is not None
    sums = {window.name: usual for window in DEFAULT_WINDOWS}
    return rule(
        with_day(sums | {f"{key[1:]}{key[0]}": found for key, found in windows.items()}, usual)
    )


def worker(name: str, now: OperationsSample, *before: OperationsSample, **reasons: str) -> Finding:
    """The findings of a worker rule."""
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
    ("usual", "windows", "level"),
    [
        (0.1, {"m1": 0.5, "m5": 0.5}, CRITICAL),
        (0.1, {"m1": 0.3, "m5": 0.5}, WARNING),
        (0.1, {"m5": 0.5, "m30": 0.5}, CRITICAL),
        (0.1, {"m5": 0.3, "m30": 0.5}, WARNING),
        (0.1, {"m1": 0.5}, OK),  # a blip
        (0.1, {"m30": 0.5}, OK),  # ended
        (0.4, {"m1": 0.5, "m5": 0.5}, OK),  # as usual
        (0.4, {"m1": 0.7, "m5": 0.7}, CRITICAL),
    ],
)
def test_an_srr_spike_is_high_unusual_and_lasting(
    usual: float, windows: dict[str, float], level: str
) -> None:
    """Two windows must exceed the threshold and 1.5 times the baseline."""
    found = {name: srr(1_000, int(1_000 * ratio)) for name, ratio in windows.items()}
    assert agent("srr_spike", srr(10_000, int(10_000 * usual)), **found).level == level


def test_a_spike_is_described_with_its_window_and_baseline() -> None:
    """The sentence has the share, the longer of the two windows, and the baseline."""
    found = agent("srr_spike", srr(10_000, 1_000), m5=srr(900, 450), m30=srr(1_000, 480))

    assert found.why == (
        "48% of its results in 30m repeat what the turn had already; usually it is 10%"
    )


@pytest.mark.parametrize(
    ("name", "codes", "level"),
    [("sre_drop", ("sg", "sr"), CRITICAL), ("gain_drop", ("sG", "si"), WARNING)],
)
def test_a_drop_is_below_the_baseline_while_labels_come(
    name: str, codes: tuple[str, str], level: str
) -> None:
    """Five minutes or half an hour suffice; without labels there is no verdict."""
    part, whole = codes
    usual = {part: 1_000, whole: 1_000, "l": 900, "u": 1_000}
    low = {part: 700, whole: 1_000, "l": 800, "u": 1_000}
    few = {**low, "l": 300}

    assert agent(name, usual, m5=low).level == level
    assert agent(name, usual, m30=low).level == level
    assert agent(name, usual).level == OK
    assert agent(name, usual, m5=few).level == UNKNOWN
    assert agent(name, usual, m5=few).why.endswith("but few labels have come in 5m")
    assert agent(name, usual, m5=few, m30=low).level == level


def test_results_drop_if_searches_find_less_than_half() -> None:
    """Five minutes or half an hour suffice, even if searches find nothing at all."""
    usual = {"r": 10_000, "s": 1_000}

    assert agent("results_drop", usual, m5={"r": 0, "s": 20}).level == CRITICAL
    assert agent("results_drop", usual, m30={"r": 499, "s": 100}).level == CRITICAL
    assert agent("results_drop", usual, m30={"r": 501, "s": 100}).level == OK
    assert "returns 5.0 results in 30m; usually it is 10.0" in (
        agent("results_drop", usual, m30={"r": 501, "s": 100}).why
    )


def test_missed_retrievals_are_wrong_skips() -> None:
    """The rule fires above a fifth of labelled decisions in five minutes, or a tenth in an hour."""
    usual = {"q|skip|yes": 500, "q|search|yes": 19_500}

    def level(**windows: Sums) -> str:
        return agent("missed_retrievals", usual, **windows).level

    assert level(m5={"q|skip|yes": 2_100, "q|search|yes": 7_900}) == CRITICAL
    assert level(m5={"q|skip|yes": 1_900, "q|search|yes": 8_100}) == OK
    assert level(h1={"q|skip|yes": 1_100, "q|search|yes": 8_900}) == CRITICAL
    assert level(h1={"q|skip|yes": 900, "q|search|yes": 9_100}) == OK


def test_a_share_that_chance_explains_is_no_fault() -> None:
    """Three of ten decisions are more than a fifth, but no reason for an alert."""
    found = agent(
        "missed_retrievals",
        {"q|skip|yes": 5, "q|search|yes": 195},
        m5={"q|skip|yes": 3, "q|search|yes": 7},
    )

    assert found.level == OK
    assert found.why.endswith("30% of the cases of 5m; usually it is 2%, which may be chance")


def test_routing_drops_below_the_baseline() -> None:
    """Ten points in five minutes or five in an hour fire; accuracy that was never good does not."""
    usual = {"R|a|yes": 90_000, "R|a|no": 10_000}

    def level(**windows: Sums) -> str:
        return agent("routing_drop", usual, **windows).level

    assert level(m5={"R|a|yes": 7_900, "R|a|no": 2_100}) == WARNING
    assert level(m5={"R|a|yes": 8_100, "R|a|no": 1_900}) == OK
    assert level(h1={"R|a|yes": 8_400, "R|a|no": 1_600}) == WARNING
    assert level(h1={"R|a|yes": 8_600, "R|a|no": 1_400}) == OK


def test_harmful_reranking_compares_the_two_orders() -> None:
    """In five minutes it compares with the original order, in an hour also with the baseline."""
    usual = {"kc": 100, "ks|shown": 120, "ks|baseline": 100}

    def found(**windows: Sums) -> Finding:
        return agent("reranking_worse", usual, **windows)

    assert found(m5={"kc": 1_000, "ks|shown": 99, "ks|baseline": 100}).level == WARNING
    assert found(h1={"kc": 1_000, "ks|shown": 114, "ks|baseline": 100}).level == WARNING
    assert found().level == OK
    assert (
        "114% of that before in 1h"
        in found(h1={"kc": 1_000, "ks|shown": 114, "ks|baseline": 100}).why
    )
    assert agent("reranking_worse", {}, h1={"kc": 144, "ks|shown": 89, "ks|baseline": 100}) == (
        Finding(WARNING, "NDCG after reranking is 89% of that before in 1h")
    )
    nothing = {"kc": 1_000, "ks|shown": 0, "ks|baseline": 0}
    assert found(m5=nothing, h1=nothing).level == UNKNOWN


@pytest.mark.parametrize(
    ("name", "usual", "few", "why"),
    [
        ("srr_spike", srr(1_000, 10), srr(199, 90), "199 results in 30m, 200 are needed"),
        (
            "missed_retrievals",
            {"q|skip|no": 100},
            {"q|skip|no": 4},
            "4 labelled decisions in 1h, 5 are needed",
        ),
    ],
)
def test_too_little_data_gives_no_verdict(name: str, usual: Sums, few: Sums, why: str) -> None:
    """The sentence says how much there is and how much is needed."""
    windows = dict.fromkeys(("m1", "m5", "m30", "h1"), few)

    assert agent(name, usual).level == OK
    assert agent(name, usual, **windows) == Finding(UNKNOWN, why)


@pytest.mark.parametrize(
    ("name", "day", "now", "why"),
    [
        (
            "srr_spike",
            srr(999, 10),
            srr(5_000, 3_050),
            "61% of its results in 5m repeat what the turn had already, which is above 40%; "
            "whether that is unusual cannot be told yet: 999 results in the day before the last "
            "hour, 1000 are needed to know what is usual",
        ),
        (
            "missed_retrievals",
            {},
            {"q|skip|yes": 15, "q|search|yes": 85},
            "the gate skipped a search that was needed in 15% of the cases of 1h, which is above "
            "10%; whether that is unusual cannot be told yet: 0 labelled decisions in the day "
            "before the last hour, 100 are needed to know what is usual",
        ),
    ],
)
def test_a_new_agent_above_a_threshold_is_named_without_a_verdict(
    name: str, day: Sums, now: Sums, why: str
) -> None:
    """It is neither fine nor at fault."""
    found = agent(name, day, **dict.fromkeys(("m1", "m5", "m30", "h1"), now))

    assert found == Finding(UNKNOWN, why, above=True)


def test_below_a_fixed_threshold_no_baseline_is_needed() -> None:
    """A rule that cannot fire for any baseline finds the agent fine."""
    found = agent("srr_spike", {}, **dict.fromkeys(("m1", "m5", "m30", "h1"), srr(500, 50)))

    assert found.level == OK
    assert found.why == (
        "10% of its results in 30m repeat what the turn had already, which is not above 25%"
    )


def test_the_last_hour_is_not_part_of_the_baseline() -> None:
    """An agent that started half an hour ago has none, however active it is."""
    busy = {"r": 50_000, "s": 5_000}
    half_an_hour = dict.fromkeys(("m5", "m30", "h1"), busy)
    found = agent("results_drop", {}, **half_an_hour)

    assert found.level == UNKNOWN
    assert found.why == (
        "0 searches in the day before the last hour, 100 are needed to know what is usual"
    )


@pytest.mark.parametrize(
    ("name", "usual", "nothing", "why"),
    [
        ("srr_spike", srr(5_000, 10), {}, "no results in 30m"),
        ("sre_drop", {"sr": 5_000, "sg": 1_000, "r": 6_000}, {}, "no results in 30m"),
        ("missed_retrievals", {}, {"r": 900, "q|search|unknown": 90}, "no skipped searches in 1h"),
        ("routing_drop", {}, {"r": 900, "s": 90}, "no routed searches in 1h"),
        ("labels_missing", {"u": 9_000, "l": 9_000}, {}, "no documents in 1h"),
    ],
)
def test_inactive_agents_do_not_lack_data(name: str, usual: Sums, nothing: Sums, why: str) -> None:
    """This covers agents that make no searches or have no gate."""
    windows = dict.fromkeys(("m1", "m5", "m30", "h1"), nothing)

    assert agent(name, usual, **windows) == Finding(NONE, why)


def test_without_labels_sre_is_unknown() -> None:
    """Agents search but no label comes, so the rule applies without a verdict."""
    now = {"r": 900, "i": 90}

    assert agent("sre_drop", now).level == UNKNOWN
    assert agent("gain_drop", now).level == UNKNOWN
    assert agent("missed_retrievals", {"q|skip|unknown": 900}).level == UNKNOWN


def test_iterations_without_need_of_labels_do_not_make_an_agent_fine() -> None:
    """Iterations of only duplicates have SRE 0 without any label."""
    now = {"r": 9_000, "i": 900, "u": 5_000, "l": 0, "sr": 2_000, "si": 200}

    for name in ("sre_drop", "gain_drop"):
        found = agent(name, now)
        assert found.level == UNKNOWN
        assert found.why.startswith("0 labelled ")
        assert agent(name, {**now, "l": 5_000}).level == OK


@pytest.mark.parametrize(
    ("long", "usual", "level"),
    [
        ({"l": 0, "u": 300}, {"l": 5_000, "u": 9_000}, WARNING),
        ({"l": 60, "u": 300}, {"l": 5_000, "u": 9_000}, WARNING),
        ({"l": 90, "u": 300}, {"l": 5_000, "u": 9_000}, OK),
        ({"l": 0, "u": 300}, {"l": 0, "u": 9_000}, UNKNOWN),  # nobody labels here
        ({"l": 0, "u": 10}, {"l": 5_000, "u": 9_000}, UNKNOWN),
        ({"l": 300, "u": 300}, {"l": 999, "u": 999}, UNKNOWN),
    ],
)
def test_labels_are_missing_only_if_there_were_some_before(
    long: Sums, usual: Sums, level: str
) -> None:
    """If nothing was ever labelled, nothing has stopped."""
    assert agent("labels_missing", usual, h1=long).level == level


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.of_agent], ids=lambda r: r.name)
def test_a_rule_without_its_windows_gives_no_verdict(rule: Rule) -> None:
    """Settings may replace the default windows."""
    assert rule.of_agent is not None
    assert rule.of_agent({"7d": srr(9_000, 9_000)}).level == UNKNOWN


def test_a_rule_without_one_of_its_windows_never_finds_an_agent_fine() -> None:
    """It still finds faults in the other windows, and names the missing one."""
    usual = with_day(dict.fromkeys(("1m", "5m", "30m", "1h"), srr(9_000, 900)), srr(9_000, 900))
    spike = usual | dict.fromkeys(("1m", "5m", "30m"), srr(9_000, 8_000))

    def found(sums: dict[str, Sums], left_out: str) -> Finding:
        judge_agent = BY_NAME["srr_spike"].of_agent
        assert judge_agent is not None
        return judge_agent({name: of for name, of in sums.items() if name != left_out})

    assert found(usual, "").level == OK
    assert found(spike, "1m").level == CRITICAL
    for sums, window in ((spike, "5m"), (usual, "5m"), (usual, "1m")):
        assert found(sums, window).level == UNKNOWN
        assert found(sums, window).why.endswith(f"; the window {window} is not kept")


@pytest.mark.parametrize("window", ["1h", "24h"])
def test_the_label_rule_names_a_missing_window(window: str) -> None:
    """A missing window differs from one without labels."""
    judge_agent = BY_NAME["labels_missing"].of_agent
    assert judge_agent is not None
    sums = {name: {"u": 9_000, "l": 9_000} for name in ("1h", "24h") if name != window}

    assert judge_agent(sums) == Finding(UNKNOWN, f"the window {window} is not kept")


def test_reranking_is_not_fine_without_a_baseline() -> None:
    """An hour of improvement does not show whether it was better the day before."""
    helped = {"kc": 500, "ks|shown": 1_100, "ks|baseline": 1_000}
    found = agent("reranking_worse", {}, m5=helped, h1=helped)

    assert found.level == UNKNOWN
    assert found.why.startswith("NDCG after reranking is 110% of that before in 1h; 0 reranked")


def test_partitions_are_not_complete_while_their_number_is_unknown() -> None:
    """There is no finding about them until then."""
    rule = BY_NAME["partitions"].of_worker
    assert rule is not None
    uncounted = Worker(OperationsSample(0), History(), {}, coverage=Coverage((), None))

    assert rule(uncounted).level == UNKNOWN


def test_a_worker_that_is_not_ready_says_why() -> None:
    """The sentence has each reason of ``/readyz``."""
    found = worker("not_ready", OperationsSample(0), redis="cannot be reached")

    assert (found.level, found.why) == (CRITICAL, "redis: cannot be reached")
    assert worker("not_ready", OperationsSample(0)).level == OK


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
        (0, 0, UNKNOWN),
        (900, 0, OK),
        (700, 1_000, OK),
        (850, 1_000, WARNING),
    ],
)
def test_memory_is_judged_only_with_a_limit(used: int, limit: int, level: str) -> None:
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
    usual = srr(9_000, 900)
    good = with_day(dict.fromkeys(("1m", "5m", "30m", "1h"), usual), usual)
    bad = with_day({**good, "1m": srr(500, 400), "5m": srr(500, 400)}, usual)
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
    usual = srr(9_000, 900)
    good = with_day(dict.fromkeys(("1m", "5m", "30m", "1h"), usual), usual)
    now, history = OperationsSample(600, 0.0, 0.0, events=10, memory_bytes=1), History()
    history.add(OperationsSample(0))
    rules = [rule for rule in RULES if rule.name in ("srr_spike", "dead_letters", "lag")]

    def level(**agents: Any) -> str:
        return verdict(judge(agents, Worker(now, history, {}), rules), {})["level"]

    assert level(good=good) == OK
    assert level(good=good, other={}) == UNKNOWN
    assert level(good=good, other=good) == UNKNOWN
    assert level(good=good, other={name: {} for name in good}) == OK


def test_without_an_agent_nothing_is_fine() -> None:
    """Before the first search neither an agent rule nor the page is green."""
    states = judge({}, Worker(OperationsSample(0), History(), {}))

    assert {state["level"] for state in states if state["of"] == "agent"} == {NONE}
    assert verdict(states, {})["title"] == "No searches yet"
    assert verdict(states, {})["level"] == UNKNOWN


def test_a_rule_without_a_verdict_on_one_agent_is_not_fine() -> None:
    """Another agent is fine; the page names the new one."""
    usual = {"r": 9_000, "s": 900}
    known = with_day(dict.fromkeys(("1m", "5m", "30m", "1h"), usual), usual)
    fresh = with_day(dict.fromkeys(("1m", "5m", "30m", "1h"), usual), {})

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
        "1 rule finds no fault. What is usual for a and b is known after more than an hour of "
        "searches."
    )
    assert verdict(states_of(OK), {}, ["a"])["text"] == "1 rule finds no fault."


@pytest.mark.parametrize(
    ("reason", "title"),
    [
        ("redis", "Waiting for Redis"),
        ("kafka", "This worker is not reading"),
        ("partitions", "Figures stand still: topics have other partition counts than the state"),
    ],
)
def test_a_waiting_worker_is_not_green(reason: str, title: str) -> None:
    """Whatever the rules find, the page begins with the reason of the wait."""
    found = verdict(states_of(OK), {reason: "cannot be reached"})

    assert (found["level"], found["title"]) == (CRITICAL, title)


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
