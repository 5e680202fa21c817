"""The conditions of the page's rules on agents, which are those of the alerts.

A condition compares one window, or two together, with a limit. The usual value is that of the same
agent over the last day without the last hour. A rule with too little data reports that. Conditions
of alerts on ten-minute windows are left out, because the page does not have those windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stream_metrics.core.alerts import windows
from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.alerts.thresholds import (
    BASELINE,
    COVERED,
    LABELLED_OF_DAY,
    RECENT,
    RESULTS,
    USUAL_RESULTS,
)
from stream_metrics.core.alerts.windows import TEN_MINUTES, Condition, WindowRule
from stream_metrics.core.engine.windows import Sums
from stream_metrics.core.metrics.labels import nothing_labelled
from stream_metrics.live.page import figures

OK: Final = "ok"
UNKNOWN: Final = "unknown"  # too little data
NONE: Final = "none"  # nothing to judge, such as for an agent that does not search now
# Of several findings the first of these is shown: an ok finding does not hide an unknown one.
LEVELS: Final = (CRITICAL, WARNING, UNKNOWN, OK, NONE)
DAY_BEFORE: Final = "the day before the last hour"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a rule for an agent (None: for the worker), with the reason.

    ``above`` means that a figure is above the rule's fixed threshold, but that it is not known
    whether this is unusual for the agent.
    """

    level: str
    why: str
    agent: str | None = None
    above: bool = False


ByWindow = Mapping[str, Sums]  # an agent's sums in each window that is kept
AgentRule = Callable[[ByWindow], Finding]


@dataclass(frozen=True, slots=True)
class Measure:
    """How the page computes and words the ratio of an alert, whose conditions are ``rule``.

    ``count`` counts the items of the ratio, which ``unit`` names. ``format`` formats a value,
    ``sentence`` is a template for a value and a window. ``subject_count`` counts what could be
    judged, which ``subject`` names: if it is 0, there is nothing to judge.
    """

    rule: WindowRule
    figure: Callable[[Sums], figures.Figure]
    unit: str
    sentence: str
    format: Callable[[float], str]
    count: Callable[[Sums], int]
    subject: str
    subject_count: Callable[[Sums], int]


def percent_text(value: float) -> str:
    """A ratio as people say it.

    >>> percent_text(0.357)
    '36%'
    """
    return f"{value:.0%}"


def agent_rule(measure: Measure) -> AgentRule:
    """The judgement by an alert's conditions: the first that is met is what it finds."""
    conditions = [c for c in measure.rule.conditions if TEN_MINUTES not in c.windows]
    longest = conditions[-1].windows[-1]
    windows = {window for condition in conditions for window in condition.windows}
    uses_labels = {c.labels for c in conditions if c.labels is not None}
    asked = windows | uses_labels

    def judge(sums: ByWindow) -> Finding:
        for window in (longest, BASELINE, RECENT):
            if window not in sums:
                return Finding(UNKNOWN, f"the window {window} is not kept")
        now, day = sums[longest], figures.day_before(sums)
        if not any(measure.subject_count(sums.get(window, {})) for window in windows):
            return Finding(NONE, f"no {measure.subject} in {longest}")
        unlabelled = uses_labels and nothing_labelled(day.get("u", 0), day.get("l", 0))
        known = 0 if unlabelled else measure.count(day)
        usual = measure.figure(day)["value"] if known >= measure.rule.ratio.min_usual else None
        able = [c for c in conditions if _has_enough_data(c, measure, sums, usual)]
        if not able and usual is None:
            return _without_baseline(measure, conditions, sums, known)
        if not able:
            why = f"{measure.count(now)} {measure.unit} in {longest}"
            return Finding(UNKNOWN, f"{why}, {measure.rule.ratio.min_count} are needed")
        met = [c for c in able if _met(c, measure, sums, usual)]
        certain = [c for c in met if _is_significant(c, measure, sums, usual)]
        trusted = [c for c in certain if _has_enough_labels(c, sums)]
        chosen = (trusted or certain or met or able[-1:])[0]
        value = measure.figure(_last(sums, chosen))["value"]
        if value is None:
            return Finding(UNKNOWN, f"nothing to compare in {chosen.windows[-1]}")
        why = measure.sentence.format(measure.format(value), chosen.windows[-1])
        if usual is not None:
            why += f"; usually it is {measure.format(usual)}"
        if trusted:
            return Finding(chosen.severity, why)
        if certain:
            return Finding(UNKNOWN, f"{why}, but few labels have come in {chosen.labels}")
        why = f"{why}, which may be chance" if met else why
        if usual is None:  # the other conditions were not asked
            return Finding(UNKNOWN, f"{why}; {_missing_data(measure, known)}")
        if left_out := sorted(asked - sums.keys()):
            return Finding(UNKNOWN, f"{why}; the window {left_out[0]} is not kept")
        return Finding(OK, why)

    return judge


def _without_baseline(
    measure: Measure, conditions: Sequence[Condition], sums: ByWindow, known: int
) -> Finding:
    """The finding without a usual value: whether fixed thresholds are exceeded."""
    needed = _missing_data(measure, known)
    limited = [
        (condition, condition.limit)
        for condition in conditions
        if condition.limit is not None
        and measure.count(_last(sums, condition)) >= measure.rule.ratio.min_count
    ]
    if not limited:
        return Finding(UNKNOWN, needed)
    above = [(c, limit) for c, limit in limited if _exceeded(c, measure, sums)]
    condition, limit = (above or limited[-1:])[0]
    value, window = measure.figure(_last(sums, condition))["value"], condition.windows[-1]
    why = measure.sentence.format(measure.format(value), window)
    if not above:  # the rule does not fire, whatever the usual value
        return Finding(OK, f"{why}, which is not above {measure.format(limit)}")
    return Finding(
        UNKNOWN,
        f"{why}, which is above {measure.format(limit)}; whether that is unusual cannot be told "
        f"yet: {needed}",
        above=True,
    )


def _missing_data(measure: Measure, known: int) -> str:
    """The message that the day before has too little data for a usual value."""
    needed = measure.rule.ratio.min_usual
    return f"{known} {measure.unit} in {DAY_BEFORE}, {needed} are needed to know what is usual"


def _values(condition: Condition, measure: Measure, sums: ByWindow) -> list[float | None]:
    return [measure.figure(sums.get(window, {}))["value"] for window in condition.windows]


def _exceeded(condition: Condition, measure: Measure, sums: ByWindow) -> bool:
    """Whether the figure exceeds the fixed threshold, if any, in all windows."""
    limit = condition.limit
    return limit is None or all(
        value is not None and value > limit for value in _values(condition, measure, sums)
    )


def _last(sums: ByWindow, condition: Condition) -> Sums:
    """The sums of the condition's longest window."""
    return sums.get(condition.windows[-1], {})


def _has_enough_data(
    condition: Condition, measure: Measure, sums: ByWindow, usual: float | None
) -> bool:
    """Whether there is enough data to evaluate the condition."""
    _, enough = condition.fixed_baseline or (usual, measure.rule.ratio.min_count)
    known = condition.fixed_baseline is not None or usual is not None
    return known and measure.count(_last(sums, condition)) >= enough


def _met(condition: Condition, measure: Measure, sums: ByWindow, usual: float | None) -> bool:
    compared, _ = condition.fixed_baseline or (usual, 0)
    return _exceeded(condition, measure, sums) and all(
        value is not None and compared is not None and condition.is_beyond(value, compared)
        for value in _values(condition, measure, sums)
    )


def _is_significant(
    condition: Condition, measure: Measure, sums: ByWindow, usual: float | None
) -> bool:
    """Whether the longest window of a condition that is met differs significantly."""
    compared, _ = condition.fixed_baseline or (usual, 0)
    last = _last(sums, condition)
    value = measure.figure(last)["value"]
    if value is None or compared is None:
        return False
    return bool(measure.rule.ratio.bound(value, compared, measure.count(last)))


def _has_enough_labels(condition: Condition, sums: ByWindow) -> bool:
    """Whether there are enough labels for settled iterations to represent the others."""
    if condition.labels is None:
        return True
    now = figures.coverage(sums.get(condition.labels, {}))["value"]
    usual = figures.coverage(figures.day_before(sums))["value"]
    return now is not None and usual is not None and now > LABELLED_OF_DAY * usual


def is_new(sums: ByWindow) -> bool:
    """Whether all searches of an agent in the last day are in its last hour.

    Then the agent has no usual values yet.
    """
    kept = BASELINE in sums and RECENT in sums
    return kept and bool(sums[BASELINE].get("s")) and not figures.day_before(sums).get("s")


# -- the rules -------------------------------------------------------------------------------------


def _whole(of: Callable[[Sums], figures.Figure]) -> Callable[[Sums], int]:
    return lambda sums: int(of(sums)["whole"])


def _count(*heads: str) -> Callable[[Sums], int]:
    """Counts by the heads of series codes."""
    return lambda sums: sum(n for code, n in sums.items() if code.partition("|")[0] in heads)


def _skips(sums: Sums) -> int:
    skips: int = figures.gate(sums)["skips"]["part"]
    return skips


def missed_share(sums: Sums) -> figures.Figure:
    """Searches that were skipped and needed, of labelled gate decisions."""
    missed: figures.Figure = figures.gate(sums)["missed_share"]
    return missed


def routing_accuracy(sums: Sums) -> figures.Figure:
    """Searches that took the best route, of those whose best route is known."""
    accuracy: figures.Figure = figures.routing(sums)["accuracy"]
    return accuracy


srr_spike: Final = agent_rule(
    Measure(
        windows.SRR, figures.srr, "results",
        "{} of its results in {} repeat what the turn had already", percent_text,
        _whole(figures.srr), "results", _count("r"),
    )
)  # fmt: skip

results_drop: Final = agent_rule(
    Measure(
        windows.RESULTS_PER_SEARCH, figures.results_per_search, "searches",
        "a search returns {} results in {}", "{:.1f}".format, _whole(figures.results_per_search),
        "searches", _count("s"),
    )
)  # fmt: skip

sre_drop: Final = agent_rule(
    Measure(
        windows.SRE, figures.sre, "labelled results", "SRE is {} in {}", "{:.2f}".format,
        _whole(figures.sre), "results", _count("r", "sr"),
    )
)  # fmt: skip

gain_drop: Final = agent_rule(
    Measure(
        windows.GAIN, figures.gain, "labelled iterations",
        "good gain per iteration is {} in {}", "{:.2f}".format, _whole(figures.gain),
        "iterations", _count("i", "si"),
    )
)  # fmt: skip

missed_retrievals: Final = agent_rule(
    Measure(
        windows.MISSED_SEARCHES, missed_share, "labelled decisions",
        "the gate skipped a search that was needed in {} of the cases of {}", percent_text,
        _whole(missed_share), "skipped searches", _skips,
    )
)  # fmt: skip

routing_drop: Final = agent_rule(
    Measure(
        windows.CORRECT_ROUTES, routing_accuracy, "labelled routes",
        "{} of the searches of {} took the best route", percent_text, _whole(routing_accuracy),
        "routed searches", _count("R"),
    )
)  # fmt: skip

reranking_worse: Final = agent_rule(
    Measure(
        windows.RERANKED_ORDER, figures.reranking, "reranked searches",
        "NDCG after reranking is {} of that before in {}", percent_text,
        lambda sums: sums.get("kc", 0), "reranked searches", _count("kc"),
    )
)  # fmt: skip


def labels_missing(sums: ByWindow) -> Finding:
    """Far fewer documents of the last hour have a label than usual; there is no such alert."""
    for window in (COVERED, BASELINE):
        if window not in sums:
            return Finding(UNKNOWN, f"the window {window} is not kept")
    now = figures.coverage(sums[COVERED])
    usual = figures.coverage(figures.day_before(sums))
    if not now["whole"]:
        return Finding(NONE, f"no documents in {COVERED}")
    if not now["part"] and not usual["part"]:
        return Finding(UNKNOWN, f"no label has come in {BASELINE}")
    if usual["whole"] < USUAL_RESULTS:
        why = f"{usual['whole']} documents in {DAY_BEFORE}, {USUAL_RESULTS} are needed"
        return Finding(UNKNOWN, f"{why} to know what is usual")
    if now["whole"] < RESULTS:
        return Finding(UNKNOWN, f"{now['whole']} documents in {COVERED}, {RESULTS} are needed")
    level = OK if now["value"] > LABELLED_OF_DAY * usual["value"] else WARNING
    why = f"{percent_text(now['value'])} of the documents of {COVERED} have a label"
    return Finding(level, f"{why}; usually it is {percent_text(usual['value'])}")
