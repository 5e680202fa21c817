"""The conditions of the page's rules on agents, which are those of the alerts.

A condition compares one window, or two together, with a limit. The usual value is that of the same
agent over the last day without the last hour. A rule with too little data reports that. Conditions
of alerts on ten-minute windows are left out, because the page does not have those windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stream_metrics.core.engine.windows import Sums
from stream_metrics.core.metrics.labels import nothing_labelled
from stream_metrics.live.page import figures
from stream_metrics.live.page.significance import (
    SignificanceTest,
    few_above,
    mean_below,
    relative_below,
    share_above,
    skewed_below,
    spread_below,
)
from stream_metrics.live.page.thresholds import (
    BASELINE,
    COVERED,
    DECISIONS,
    DROPS,
    EVEN_RERANKED,
    ITERATIONS,
    LABELLED_OF_USUAL,
    MISSED,
    MISSED_OF_USUAL,
    RECENT,
    RERANKED,
    RERANKING,
    RERANKING_DROP,
    RESULTS,
    RESULTS_DROPS,
    ROUTES,
    ROUTING_DROP,
    SEARCHES,
    SRR_CRITICAL,
    SRR_OF_USUAL,
    SRR_WARNING,
    SRR_WINDOWS,
    USUAL_DECISIONS,
    USUAL_ITERATIONS,
    USUAL_RERANKED,
    USUAL_RESULTS,
    USUAL_ROUTES,
    USUAL_SEARCHES,
)

OK: Final = "ok"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
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
    """A ratio, and how much data it needs to be judged.

    ``count`` counts the items of the ratio, which ``unit`` names; ``min_count`` are needed in the
    judged window, ``min_baseline`` in the baseline. ``is_significant`` excludes chance. ``format``
    formats a value, ``sentence`` is a template for a value and a window. ``subject_count`` counts
    what could be judged, which ``subject`` names: if it is 0, there is nothing to judge.
    """

    figure: Callable[[Sums], figures.Figure]
    unit: str
    min_count: int
    min_baseline: int
    sentence: str
    format: Callable[[float], str]
    count: Callable[[Sums], int]
    is_significant: SignificanceTest
    subject: str
    subject_count: Callable[[Sums], int]


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of an alert on one window or two: ``is_beyond`` holds in all of them.

    ``is_beyond`` takes a value and the usual one. ``labels`` is the window in which there must be
    about as many labels as usual. ``fixed_baseline`` is a value to use as the usual one, and the
    number of items needed then. ``limit`` is a fixed threshold that the value must exceed as well.
    """

    level: str
    windows: tuple[str, ...]
    is_beyond: Callable[[float, float], bool]
    labels: str | None = None
    fixed_baseline: tuple[float, int] | None = None
    limit: float | None = None


def percent_text(value: float) -> str:
    """A ratio as people say it.

    >>> percent_text(0.357)
    '36%'
    """
    return f"{value:.0%}"


def agent_rule(measure: Measure, conditions: Sequence[Condition]) -> AgentRule:
    """A rule of ``conditions``, the worst first: the first that is met is what it finds."""
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
        usual = measure.figure(day)["value"] if known >= measure.min_baseline else None
        able = [c for c in conditions if _has_enough_data(c, measure, sums, usual)]
        if not able and usual is None:
            return _without_baseline(measure, conditions, sums, known)
        if not able:
            why = f"{measure.count(now)} {measure.unit} in {longest}"
            return Finding(UNKNOWN, f"{why}, {measure.min_count} are needed")
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
            return Finding(chosen.level, why)
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
        and measure.count(_last(sums, condition)) >= measure.min_count
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
    return (
        f"{known} {measure.unit} in {DAY_BEFORE}, {measure.min_baseline} are needed to know "
        "what is usual"
    )


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
    _, enough = condition.fixed_baseline or (usual, measure.min_count)
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
    return measure.is_significant(value, compared, measure.count(last))


def _has_enough_labels(condition: Condition, sums: ByWindow) -> bool:
    """Whether there are enough labels for settled iterations to represent the others."""
    if condition.labels is None:
        return True
    now = figures.coverage(sums.get(condition.labels, {}))["value"]
    usual = figures.coverage(figures.day_before(sums))["value"]
    return now is not None and usual is not None and now > LABELLED_OF_USUAL * usual


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


def _above_usual(times: float) -> Callable[[float, float], bool]:
    return lambda value, usual: value > times * usual


def _drops(level: str) -> list[Condition]:
    return [
        Condition(level, (window,), _below_usual(part), labels) for window, part, labels in DROPS
    ]


def _below_usual(part: float) -> Callable[[float, float], bool]:
    return lambda value, usual: value < part * usual


def _under_usual(by: float) -> Callable[[float, float], bool]:
    return lambda value, usual: value < usual - by


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
        figures.srr, "results", RESULTS, USUAL_RESULTS,
        "{} of its results in {} repeat what the turn had already", percent_text,
        _whole(figures.srr),
        share_above(4.5, 4), "results", _count("r"),
    ),
    [
        Condition(level, windows, _above_usual(SRR_OF_USUAL), limit=limit)
        for level, limit in ((CRITICAL, SRR_CRITICAL), (WARNING, SRR_WARNING))
        for windows in SRR_WINDOWS
    ],
)  # fmt: skip

results_drop: Final = agent_rule(
    Measure(
        figures.results_per_search, "searches", SEARCHES, USUAL_SEARCHES,
        "a search returns {} results in {}", "{:.1f}".format, _whole(figures.results_per_search),
        relative_below(4, 0.75), "searches", _count("s"),
    ),
    [Condition(CRITICAL, (window,), _below_usual(part)) for window, part in RESULTS_DROPS],
)  # fmt: skip

sre_drop: Final = agent_rule(
    Measure(
        figures.sre, "labelled results", RESULTS, USUAL_RESULTS,
        "SRE is {} in {}", "{:.2f}".format, _whole(figures.sre),
        skewed_below(4, 2.5), "results", _count("r", "sr"),
    ),
    _drops(CRITICAL),
)  # fmt: skip

gain_drop: Final = agent_rule(
    Measure(
        figures.gain, "labelled iterations", ITERATIONS, USUAL_ITERATIONS,
        "good gain per iteration is {} in {}", "{:.2f}".format, _whole(figures.gain),
        mean_below(4, 6), "iterations", _count("i", "si"),
    ),
    _drops(WARNING),
)  # fmt: skip

missed_retrievals: Final = agent_rule(
    Measure(
        missed_share, "labelled decisions", DECISIONS, USUAL_DECISIONS,
        "the gate skipped a search that was needed in {} of the cases of {}",
        percent_text, _whole(missed_share), few_above(4, least=0.02), "skipped searches", _skips,
    ),
    [
        Condition(CRITICAL, (window,), _above_usual(MISSED_OF_USUAL), limit=limit)
        for window, limit in MISSED.items()
    ],
)  # fmt: skip

routing_drop: Final = agent_rule(
    Measure(
        routing_accuracy, "labelled routes", ROUTES, USUAL_ROUTES,
        "{} of the searches of {} took the best route", percent_text, _whole(routing_accuracy),
        skewed_below(4, 1, most=0.98), "routed searches", _count("R"),
    ),
    [Condition(WARNING, (window,), _under_usual(by)) for window, by in ROUTING_DROP.items()],
)  # fmt: skip

reranking_worse: Final = agent_rule(
    Measure(
        figures.reranking, "reranked searches", RERANKED, USUAL_RERANKED,
        "NDCG after reranking is {} of that before in {}", percent_text,
        lambda sums: sums.get("kc", 0),
        spread_below(4, 0.25), "reranked searches", _count("kc"),
    ),
    [
        Condition(WARNING, ("5m",), lambda value, _: value < RERANKING),
        Condition(WARNING, ("1h",), _under_usual(RERANKING_DROP)),
        Condition(
            WARNING, ("1h",), lambda value, _: value < RERANKING,
            fixed_baseline=(RERANKING, EVEN_RERANKED),
        ),
    ],
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
    level = OK if now["value"] > LABELLED_OF_USUAL * usual["value"] else WARNING
    why = f"{percent_text(now['value'])} of the documents of {COVERED} have a label"
    return Finding(level, f"{why}; usually it is {percent_text(usual['value'])}")
