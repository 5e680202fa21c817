"""The page's rules on agents: a fault from the threshold of evidence on, and never a guess."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.alerts.evidence import LEAST_ACTIVE
from stream_metrics.core.alerts.figures import FIGURES, Figure
from stream_metrics.core.alerts.hour import LEAST_PARTS
from stream_metrics.core.alerts.shifts import Evidence
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, parse_window, without_loops
from stream_metrics.live.page import agent_rules
from stream_metrics.live.page.agent_rules import LIKELY, is_new
from stream_metrics.live.page.courses import Course
from stream_metrics.live.page.finding import FAULTS, NONE, OK, UNKNOWN, Finding
from tests.rules.page import (
    Sums,
    course,
    empty,
    found,
    gain,
    missed,
    repeated,
    reranking,
    routing,
    sre,
    srr,
)

Of = Callable[[int, int], Sums]

# For each figure: its rule, its sums of a part and a whole, its usual ratio and a bad one.
RULES: dict[str, tuple[agent_rules.EvidenceRule, Of, float, float]] = {
    "srr": (agent_rules.srr_spike, srr, 0.25, 0.65),
    "results": (agent_rules.results_drop, found, 9.0, 1.0),
    "sre": (agent_rules.sre_drop, sre, 0.3, 0.1),
    "gain": (agent_rules.gain_drop, gain, 5.0, 1.5),
    "missed_searches": (agent_rules.missed_retrievals, missed, 0.02, 0.5),
    "wrong_routes": (agent_rules.routing_drop, routing, 0.08, 0.5),
    "reranking": (agent_rules.reranking_worse, reranking, 1.1, 0.7),
    "repeated_searches": (agent_rules.searches_repeated, repeated, 0.05, 0.4),
    "empty_searches": (agent_rules.searches_empty, empty, 0.02, 0.4),
}
EACH = pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
LABELLED = pytest.mark.parametrize(
    "figure", [figure for figure in FIGURES if figure.labelled], ids=lambda figure: figure.name
)


def at(of: Of, ratio: float, whole: int) -> Sums:
    """Sums at a ratio."""
    return of(round(ratio * whole), whole)


def usual_day(figure: Figure, parts_of_day: int = 50) -> list[Sums]:
    """Parts of a day at the usual ratio."""
    _, of, ratio, _ = RULES[figure.name]
    return [at(of, ratio, 100)] * parts_of_day


def judged(figure: Figure, day: list[Sums], hour: list[Sums]) -> Finding:
    """What the rule of a figure finds."""
    return RULES[figure.name][0](course(day, hour))


def evidence_of(figure: Figure, of: Course) -> tuple[float, float]:
    """The evidence of a small and of a large shift."""
    evidence = (of.evidence or {})[figure.name].evidence
    assert evidence is not None
    small, large = evidence
    return small, large


def with_evidence(figure: Figure, **found: tuple[float, float]) -> Course:
    """An agent that has this evidence, its own or that of its pool."""
    _, of, usually, _ = RULES[figure.name]
    now = course(usual_day(figure), [at(of, usually, 50)] * 60)
    stands = (now.evidence or {})[figure.name]
    shifts = {name: tuple(Evidence(value, 4) for value in each) for name, each in found.items()}
    return replace(now, evidence={figure.name: replace(stands, **shifts)})  # type: ignore[arg-type]


@EACH
@pytest.mark.parametrize("large", [0.0, 1.0, 1.01, 2.0])
@pytest.mark.parametrize("small", [0.0, 1.0, 1.01])
def test_a_shift_is_a_fault_above_its_threshold(figure: Figure, small: float, large: float) -> None:
    """With a little less it is none; a large shift is critical where its alert pages."""
    rule = RULES[figure.name][0]

    level = rule(with_evidence(figure, own=(small, large))).level

    assert (level in FAULTS) == (max(small, large) > 1)
    assert (level == CRITICAL) == (large > 1 and figure.pages)


@EACH
def test_agents_have_a_fault_together_that_none_has_alone(figure: Figure) -> None:
    """That of their pool, at the same thresholds."""
    rule = RULES[figure.name][0]
    one = with_evidence(figure, own=(0.6, 0.7), pooled=(1.2, 1.0))
    worse = with_evidence(figure, own=(0.6, 0.7), pooled=(1.0, 1.2))
    well = with_evidence(figure, own=(0.6, 0.7), pooled=(0.9, 1.0))

    assert rule(one).level not in FAULTS
    assert rule.pool_level(one) == WARNING
    assert rule.pool_level(worse) == (CRITICAL if figure.pages else WARNING)
    assert rule.pool_level(well) is None
    assert rule.pool_level(course(usual_day(figure), [])) is None


@pytest.mark.parametrize("figure", [f for f in FIGURES if f.limited], ids=lambda f: f.name)
def test_one_or_two_minutes_are_neither_a_fault_nor_well(figure: Figure) -> None:
    """However much is wrong in them: that may be one turn. Three such minutes are a fault."""
    _, of, _, bad = RULES[figure.name]
    minute = [at(of, bad, 500)]

    for minutes in (1, 2):
        found = judged(figure, usual_day(figure), minute * minutes)
        assert found.level == UNKNOWN
        assert f"{minutes} of 60 minutes had" in found.why
    assert judged(figure, usual_day(figure), minute * 3).level in FAULTS


@EACH
def test_a_fault_says_since_when_how_it_is_and_what_is_usual(figure: Figure) -> None:
    """The minutes are those in which evidence has grown, not the whole hour."""
    _, of, usually, bad = RULES[figure.name]
    hour = [at(of, usually, 100)] * 55 + [at(of, bad, 100)] * 5

    fault = judged(figure, usual_day(figure), hour)

    assert fault.level in FAULTS
    assert "the last 5 minutes" in fault.why
    assert "; usually it is " in fault.why


@EACH
def test_an_agent_as_usual_is_fine(figure: Figure) -> None:
    """Its finding says how it is and what is usual."""
    _, of, usually, _ = RULES[figure.name]

    well = judged(figure, usual_day(figure), [at(of, usually, 50)] * 60)

    assert well.level == OK
    assert "the last hour" in well.why
    assert "; usually it is " in well.why


@EACH
def test_a_shift_for_the_better_is_no_fault(figure: Figure) -> None:
    """Evidence is of shifts in the bad direction only."""
    _, of, usually, bad = RULES[figure.name]
    better = max(0.0, usually + (usually - bad) / 2)

    assert judged(figure, usual_day(figure), [at(of, better, 50)] * 60).level == OK


@EACH
def test_an_incident_that_is_over_is_no_fault_any_more(figure: Figure) -> None:
    """Evidence goes down again with what comes after it."""
    _, of, usually, bad = RULES[figure.name]
    hour = [at(of, bad, 40)] * 10 + [at(of, usually, 200)] * 50

    assert judged(figure, usual_day(figure), hour).level == OK


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        (
            "srr",
            "65% of its results in the last 7 minutes repeat what the turn had already; usually it "
            "is 25%",
        ),
        ("results", "a search returns 1.0 results in the last 7 minutes; usually it is 9.0"),
        ("sre", "SRE is 10% in the last 7 minutes; usually it is 30%"),
        ("gain", "good gain per iteration is 1.50 in the last 7 minutes; usually it is 5.00"),
        (
            "missed_searches",
            "the gate skipped a search that was needed in 50% of the cases of the last 7 minutes; "
            "usually it is 2%",
        ),
        (
            "wrong_routes",
            "50% of the searches of the last 7 minutes took the best route; usually it is 92%",
        ),
        (
            "reranking",
            "NDCG after reranking is 70% of that before in the last 7 minutes; usually it is 110%",
        ),
        (
            "repeated_searches",
            "40% of its searches in the last 7 minutes ask again what the turn had asked; usually "
            "it is 5%",
        ),
        (
            "empty_searches",
            "40% of its searches in the last 7 minutes returned nothing; usually it is 2%",
        ),
    ],
)
def test_findings_are_sentences(figure: str, why: str) -> None:
    """With the figure since evidence has grown, and the usual one."""
    rule, of, usually, bad = RULES[figure]
    hour = [at(of, usually, 40)] * 53 + [at(of, bad, 40)] * 7

    assert rule(course([at(of, usually, 100)] * 50, hour)).why == why


def test_a_figure_that_may_be_chance_is_said_to_be() -> None:
    """It has half of the evidence that a fault needs."""
    srr_figure, usually, most = FIGURES[0], srr(25, 100), 0.0

    most = 0.0
    for duplicates in range(8, 33):
        now = course([usually] * 50, [usually, srr(duplicates, 32)])
        most = max(evidence_of(srr_figure, now))
        if most < 1:
            why = agent_rules.srr_spike(now).why
            assert why.endswith("; usually it is 25%, which may be chance") == (most >= LIKELY)
    assert most >= 1


# -- what is missing -------------------------------------------------------------------------------


@EACH
def test_too_little_traffic_to_notice_a_shift_is_no_verdict(figure: Figure) -> None:
    """So much as the finding says, in three minutes, is enough for one."""
    _, of, usually, _ = RULES[figure.name]
    few = judged(figure, usual_day(figure), [at(of, usually, 1)])
    assert few.level == UNKNOWN
    needed = int(few.why.split(" in the last hour, ")[1].split()[0])

    enough = judged(figure, usual_day(figure), [at(of, usually, needed + 1)] * 3)

    assert enough.level == OK


def test_the_finding_says_what_could_be_told_with_more_traffic() -> None:
    """The shift with the least traffic, beside what is usual."""
    few = agent_rules.srr_spike(course([srr(25, 100)] * 50, [srr(3, 12)]))

    assert few.level == UNKNOWN
    assert re.fullmatch(
        r"12 results in the last hour, \d+ are needed to tell 70% from the usual 25%", few.why
    )


@EACH
def test_a_new_agent_has_no_usual_figures(figure: Figure) -> None:
    """However active it is in a few parts of its day; the finding says how many are needed."""
    _, of, usually, bad = RULES[figure.name]
    few = [at(of, usually, 9_000)] * (LEAST_ACTIVE - 1)

    unknown = judged(figure, few, [at(of, bad, 900)] * 60)
    known = judged(figure, [*few, *usual_day(figure, 20)], [at(of, bad, 900)] * 60)

    assert unknown.level == UNKNOWN
    assert re.search(
        f"{LEAST_ACTIVE - 1} minutes with [a-z ]+ in the day before the last hour, "
        f"{LEAST_ACTIVE} are needed to know what is usual$",
        unknown.why,
    )
    assert known.level in FAULTS


@EACH
def test_the_last_hour_is_not_part_of_what_is_usual(figure: Figure) -> None:
    """An agent that has started within it has no usual figures."""
    _, of, _, bad = RULES[figure.name]

    assert judged(figure, [], [at(of, bad, 900)] * 60).level == UNKNOWN
    assert "0 minutes" in judged(figure, [], [at(of, bad, 900)] * 60).why


@pytest.mark.parametrize(
    ("rule", "now", "why"),
    [
        (
            agent_rules.srr_spike,
            srr(61, 100),
            "61% of its results in the last hour repeat what the turn had already, which is above "
            "40%; whether that is unusual cannot be told yet: 0 minutes with "
            "results in the day before the last hour, 30 are needed to know what is usual",
        ),
        (
            agent_rules.missed_retrievals,
            missed(30, 100),
            "the gate skipped a search that was needed in 30% of the cases of the last hour, which "
            "is above 20%; whether that is unusual cannot be told yet: 0 minutes with labelled "
            "decisions in the day before the last hour, 30 are needed to know what is usual",
        ),
    ],
)
def test_a_new_agent_above_a_fixed_threshold_is_named_without_a_verdict(
    rule: agent_rules.AgentRule, now: Sums, why: str
) -> None:
    """It is neither fine nor at fault."""
    assert rule(course([], [now] * 60)) == Finding(UNKNOWN, why, above=True)


@pytest.mark.parametrize("hour", [[srr(40, 100)] * 60, [srr(119, 199)]])
def test_a_new_agent_below_the_threshold_or_with_few_results_is_not_named(hour: list[Sums]) -> None:
    """Nor is it fine: what is usual may be less."""
    unknown = agent_rules.srr_spike(course([], hour))

    assert (unknown.level, unknown.above) == (UNKNOWN, False)
    assert unknown.why.startswith("0 minutes with results in ")


@pytest.mark.parametrize(
    ("rule", "usually", "now", "why"),
    [
        (agent_rules.srr_spike, srr(1, 10), {}, "no results in the last hour"),
        (agent_rules.results_drop, found(9, 1), {}, "no searches in the last hour"),
        (agent_rules.sre_drop, sre(3, 10), {"s": 5}, "no results in the last hour"),
        (agent_rules.gain_drop, gain(30, 10), {}, "no iterations in the last hour"),
        (
            agent_rules.missed_retrievals, missed(1, 50), {"r": 900, "q|search|unknown": 90},
            "no skipped searches in the last hour",
        ),
        (
            agent_rules.routing_drop, routing(1, 20), {"r": 900, "s": 90},
            "no routed searches in the last hour",
        ),
        (
            agent_rules.reranking_worse, reranking(11, 10), {"r": 900},
            "no reranked searches in the last hour",
        ),
        (
            agent_rules.searches_repeated, repeated(1, 20), {"r": 900, "s": 90},
            "no searches with a query in the last hour",
        ),
        (agent_rules.searches_empty, empty(1, 20), {}, "no searches in the last hour"),
        (agent_rules.labels_missing, {"u": 900, "l": 900}, {}, "no documents in 1h"),
    ],
)  # fmt: skip
def test_inactive_agents_do_not_lack_data(
    rule: agent_rules.AgentRule, usually: Sums, now: Sums, why: str
) -> None:
    """This covers agents that make no searches or have no gate."""
    assert rule(course([usually] * 50, [now] * 60)) == Finding(NONE, why)


@LABELLED
def test_an_hour_without_its_labels_is_no_evidence(figure: Figure) -> None:
    """What is settled there needs no label, and is not like the rest; once labels come, it is."""
    _, of, _, bad = RULES[figure.name]
    waiting = [{**at(of, bad, 40), "u": 90, "l": 40}] * 60
    came = [at(of, bad, 40)] * 60

    assert judged(figure, usual_day(figure), waiting).level not in FAULTS
    assert judged(figure, usual_day(figure), came).level in FAULTS


@LABELLED
def test_an_hour_without_its_labels_is_no_verdict(figure: Figure) -> None:
    """The finding says that few have come."""
    _, of, usually, _ = RULES[figure.name]
    waiting = [{**at(of, usually, 40), "u": 90, "l": 10}] * 60

    unknown = judged(figure, usual_day(figure), waiting)

    assert unknown.level == UNKNOWN
    assert unknown.why.endswith(", but few labels have come")


@LABELLED
def test_iterations_without_need_of_labels_do_not_make_an_agent_fine(figure: Figure) -> None:
    """Iterations of only duplicates have SRE 0 without any label."""
    _, of, usually, _ = RULES[figure.name]
    unlabelled = [{**at(of, usually, 100), "l": 0, "u": 500}]

    assert judged(figure, unlabelled * 50, unlabelled * 60) == Finding(
        UNKNOWN, "no document of the day before the last hour has a label"
    )


@pytest.mark.parametrize(
    ("rule", "unlabelled", "why"),
    [
        (agent_rules.sre_drop, {"r": 900, "i": 90, "u": 9, "l": 9}, "labelled results"),
        (agent_rules.missed_retrievals, {"q|skip|unknown": 900}, "labelled decisions"),
        (agent_rules.routing_drop, {"R|a|unknown": 900}, "labelled routes"),
    ],
)
def test_what_labels_alone_can_show_is_unknown_without_them(
    rule: agent_rules.AgentRule, unlabelled: Sums, why: str
) -> None:
    """Agents search but no label of that kind comes, so the rule applies without a verdict."""
    unknown = rule(course([unlabelled] * 50, [unlabelled] * 60))

    assert unknown.level == UNKNOWN
    assert f"0 minutes with {why} in " in unknown.why


@pytest.mark.parametrize(
    ("rule", "now", "why"),
    [
        (agent_rules.srr_spike, srr(96, 100), "usually it is 96%, and can hardly get worse"),
        (agent_rules.sre_drop, sre(1, 100), "usually it is 1%, and can hardly get worse"),
    ],
)
def test_what_is_as_bad_as_can_be_is_not_judged(
    rule: agent_rules.AgentRule, now: Sums, why: str
) -> None:
    """Nothing that comes could be told from what is usual."""
    assert rule(course([now] * 50, [now] * 60)) == Finding(NONE, why)


@EACH
def test_evidence_needs_no_windows(figure: Figure) -> None:
    """Settings may replace the default windows; only whether an agent is active is unknown then."""
    rule, of, usually, bad = RULES[figure.name]
    kept = [each for each in DEFAULT_WINDOWS if each.name not in ("1h", "24h")]
    day = [at(of, usually, 100)] * 50

    assert rule(course(day, [at(of, bad, 900)] * 60, kept)).level in FAULTS
    assert rule(course(day, [{}], kept)) == Finding(UNKNOWN, "the window 1h is not kept")


@pytest.mark.parametrize(
    ("figure", "head", "named"),
    [
        ("missed_searches", "q", "gate decisions"),
        ("wrong_routes", "R", "routes"),
        ("reranking", "ks", "reranked searches"),
        ("repeated_searches", "aa", "figures of loops"),
        ("empty_searches", "e", "figures of loops"),
    ],
)
def test_a_rule_names_what_a_window_is_kept_without(figure: str, head: str, named: str) -> None:
    """Settings say which windows have which series."""
    rule, of, usually, _ = RULES[figure]
    hour = parse_window("1h")
    kept = [hour._replace(heads=hour.heads - {head}), parse_window("24h")]
    found = rule(course([at(of, usually, 100)] * 50, [{}] * 60, kept))

    assert found == Finding(UNKNOWN, f"the window 1h is kept without {named}")


def test_without_evidence_nothing_is_said_of_agents() -> None:
    """It is gathered once all partitions have been read."""
    now = replace(course([srr(1, 10)] * 50, [srr(9, 10)] * 60), evidence=None)

    why = "the evidence is not known now; the log says why"
    assert agent_rules.srr_spike(now) == Finding(UNKNOWN, why)


@pytest.mark.parametrize("figure", ["repeated_searches", "empty_searches"])
def test_state_without_figures_of_loops_is_told_and_is_no_fault(figure: str) -> None:
    """It was built under earlier tables, so that what it lacks is unknown, and not 0."""
    rule, of, usually, _ = RULES[figure]
    sums = at(of, usually, 100)

    found = rule(course([sums] * 50, [sums] * 60, without_loops(DEFAULT_WINDOWS)))

    assert found == Finding(
        NONE, "no figures of loops are kept; they need dedup.tables 3 and a build"
    )


def test_an_agent_is_new_until_enough_parts_of_its_day_have_searches() -> None:
    """One that does not search now is not new."""
    now = [found(9, 1)]

    assert is_new(course([], now))
    assert is_new(course(now * (LEAST_PARTS - 1), now))
    assert not is_new(course(now * LEAST_PARTS, now))
    assert not is_new(course([], []))


# -- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("long", "usually", "level"),
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
    long: Sums, usually: Sums, level: str
) -> None:
    """If nothing was ever labelled, nothing has stopped."""
    assert agent_rules.labels_missing(course([usually], [long])).level == level


@pytest.mark.parametrize("window", ["1h", "24h"])
def test_the_label_rule_names_a_missing_window(window: str) -> None:
    """A missing window differs from one without labels."""
    kept = [each for each in DEFAULT_WINDOWS if each.name != window]
    of = course([{"u": 9_000, "l": 9_000}], [{"u": 900, "l": 900}], kept)

    assert agent_rules.labels_missing(of) == Finding(UNKNOWN, f"the window {window} is not kept")
